"""Which files of a feed hold which of its changes, by the bounds in its manifests."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.types import LongType

from dedup_platform.lake.snapshots import head, live_files

__all__ = ["Change", "FeedFile", "feed_files", "in_turns"]

Change = tuple[int, int]
"""The version and the ordinal of a change: the order in which changes are to be applied."""


@dataclass(frozen=True)
class FeedFile:
    """A data file of a feed; all its changes lie between `first` and `last`."""

    file: DataFile
    first: Change
    last: Change


def feed_files(feed: Table) -> list[FeedFile]:
    """All files of a feed as it is now, by their first change."""
    version, ordinal = (feed.schema().find_field(name).field_id for name in ("_commit_version", "_change_ordinal"))
    found = []
    for file in live_files(feed, head(feed)):
        first, last = (_change(bounds, version, ordinal) for bounds in (file.lower_bounds, file.upper_bounds))
        found.append(FeedFile(file, first, last))
    return sorted(found, key=lambda each: (each.first, each.last, each.file.file_path))


def in_turns(files: Iterable[FeedFile], after: Change) -> Iterator[Sequence[DataFile]]:
    """The files that hold changes after this one, in groups: what is in a group comes before all of the next one."""
    group: list[DataFile] = []
    last = (0, 0)
    for each in files:
        if each.last <= after:
            continue
        if group and each.first > last:
            yield group
            group = []
        group.append(each.file)
        last = max(last, each.last)
    if group:
        yield group


def _change(bounds: dict[int, bytes] | None, version: int, ordinal: int) -> Change:
    known = bounds or {}
    return int(from_bytes(LongType(), known[version])), int(from_bytes(LongType(), known[ordinal]))
