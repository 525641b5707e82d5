"""What comes in between an operation's steps: the death of its process, or another process."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from random import Random
from typing import Any
from unittest.mock import patch

from dedup_platform.lake.aliases import AliasTable
from dedup_platform.lake.feeds import FeedTable
from dedup_platform.lake.points import PointTags
from dedup_platform.platform import Platform
from dedup_platform_tests.sinks.sqlite_table import SqliteTable

STEPS = ("write_receipt", "publish", "replace_files", "sync")
"""What a process can be killed before and after."""


DEADLY = (
    (FeedTable, "append"),
    (AliasTable, "replace"),
    (SqliteTable, "write"),
    (PointTags, "_commit"),
    (PointTags, "_untag"),
)
"""The same of what a process makes anew."""


class Killed(BaseException):
    """The process dies here: nothing that would tidy up runs."""


@contextmanager
def dying(platform: Platform, random: Random) -> Iterator[None]:
    """Let the process die at one of its steps; it is of no use afterwards."""
    left = [random.randrange(12)]

    def before_and_after(step: Callable[..., Any]) -> Callable[..., Any]:
        def deadly(*args: Any, **kwargs: Any) -> Any:
            _count_down(left)
            result = step(*args, **kwargs)
            _count_down(left)
            return result

        return deadly

    # It dies at changes of claims, too, and once it is dead no claim of its is ended. The others are counted as ever.
    changes, change = [Random(left[0]).randrange(30)], platform.claims.boards.change

    def deadly_change(*args: Any) -> Any:
        if left[0] < 0:
            raise Killed
        _count_down(changes)
        return change(*args)

    platform.claims.boards.change = deadly_change  # type: ignore[assignment, method-assign]
    for owner in (platform.lake, platform.lake.catalog, platform.ledger):
        for name in STEPS:
            if hasattr(owner, name):
                setattr(owner, name, before_and_after(getattr(owner, name)))
    with ExitStack() as stack:
        for kind, name in DEADLY:
            stack.enter_context(patch.object(kind, name, before_and_after(getattr(kind, name))))
        yield


@contextmanager
def before_commit(platform: Platform, number: int, act: Callable[[], None]) -> Iterator[None]:
    """Do something just before one of the process's commits; they are counted from 0."""
    numbers, publish = count(), platform.lake.publish

    def late(staged: Any) -> None:
        if next(numbers) == number:
            act()
        publish(staged)

    def later(commit: Callable[..., Any]) -> Callable[..., Any]:
        def late_commit(*args: Any) -> Any:
            if next(numbers) == number:
                act()
            return commit(*args)

        return late_commit

    with ExitStack() as stack:
        stack.enter_context(patch.object(platform.lake, "publish", late))
        for kind, name in ((FeedTable, "append"), (AliasTable, "replace")):
            stack.enter_context(patch.object(kind, name, later(getattr(kind, name))))
        yield


def _count_down(left: list[int]) -> None:
    left[0] -= 1
    if left[0] < 0:
        raise Killed
