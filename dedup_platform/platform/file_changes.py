"""The door to what a change of a stream file does: what it said before, what it makes stale, what it would heal."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise

from dedup_platform.lake.definitions import Known
from dedup_platform.planning.planner import StaleCell, TablePlan
from dedup_platform.platform.context import Context
from dedup_platform.replay.trial import Trial, try_rejected
from dedup_platform.stream.deciding import Decides, decides, deciding
from dedup_platform.tables import RAW_EVENTS

__all__ = ["FileChange", "FileChanges", "StreamFile"]


@dataclass(frozen=True)
class FileChange:
    """One key of the stream file: what it said when records were taken in or cells were built, and what it says now.

    None is nothing.
    """

    key: str
    old: str | None
    new: str | None
    decides: Decides


@dataclass(frozen=True)
class FileChanges:
    """What changed, and what that concerns."""

    changes: tuple[FileChange, ...] = ()
    records: int = 0
    """Records that were taken in while the stream file said otherwise what becomes of them."""
    partitions: tuple[int, ...] = ()
    """All partitions that hold events, in order, if there are such records."""
    stale: tuple[StaleCell, ...] = ()
    """Cells that are stale because of settings."""
    rejected: int = 0
    try_rejected: Callable[[], Trial] = field(default=Trial, compare=False, repr=False)

    @cached_property
    def trial(self) -> Trial:
        """What some of the rejected records would be now: decoded when somebody asks, and not with each status."""
        return self.try_rejected()


class StreamFile:
    """What changes of stream files do. From metadata and a few rejected records; needs no Spark."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def changes(self, stream: str, plans: Iterable[TablePlan], rejected: int) -> FileChanges:
        """What changed since records were taken in, and since cells were built that are stale by these plans."""
        definition = self._context.stream(stream)
        known, now = self._context.lake.known_definitions(definition), deciding(definition)
        stale = [cell for plan in plans for cell in plan.stale if cell.reason == "settings"]
        total = self._context.rows(stream, RAW_EVENTS)
        before = _records_before(known, now, total)
        concerns: Mapping[Decides, bool] = {"decoding": bool(before), "rules": bool(stale)}
        found = [each for each in _changes(known, now) if concerns[each.decides]]
        return FileChanges(
            changes=tuple(found),
            records=before,
            partitions=tuple(sorted(self._context.ledger.arrivals(stream))) if before else (),
            stale=tuple(stale),
            rejected=rejected,
            try_rejected=partial(try_rejected, self._context.lake, self._context.ledger, definition)
            if rejected
            else Trial,
        )


def _changes(known: Sequence[Known], now: Mapping[str, str]) -> list[FileChange]:
    """The keys that say something else now, each with what it said last before."""
    found: dict[str, FileChange] = {}
    for each in reversed(known):
        for key in sorted({*each.says, *now}):
            old, new = each.says.get(key), now.get(key)
            if old != new:
                found.setdefault(key, FileChange(key, old, new, decides(key)))
    return list(found.values())


def _records_before(known: Sequence[Known], now: Mapping[str, str], total: int) -> int:
    """How many records were taken in while something else was said of what becomes of them."""
    ends = [*(each.records for each in known), total]
    counts = zip(known, pairwise(ends), strict=True)
    return sum(max(0, end - begin) for each, (begin, end) in counts if _decoding(each.says) != _decoding(now))


def _decoding(says: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in says.items() if decides(key) == "decoding"}
