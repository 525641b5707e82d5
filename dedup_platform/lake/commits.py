"""What one step did to one table, in the form that people, metadata and tests read."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dedup_platform.planning.cells import Cell
from dedup_platform.sources.clock_skew import Clocks


@dataclass(frozen=True)
class Commit:
    """One published commit, or none (`snapshot_id` is None) if there was nothing to do."""

    table: str
    snapshot_id: int | None
    reason: str
    cells_checked: frozenset[Cell] = frozenset()
    cells_rewritten: frozenset[Cell] = frozenset()
    rows_written: int = 0
    bytes_read: int = 0
    """The sizes of the data files that the work on cells read columns of; what Spark itself reads is not in it."""
    bytes_written: int = 0
    seconds: float = 0.0
    built_from: Mapping[str, int] = field(default_factory=dict)
    """Table -> the snapshot of it that was read."""
    partitions: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """Ordinal -> what the commit did in this partition, and says nothing of what it holds."""

    clocks: Clocks | None = None
    """What the records of an ingest tell about their producers' clocks."""
    left: str = ""
    """What of the request was left to other processes, which are at it, in words."""

    @property
    def changed(self) -> bool:
        """Whether any row may differ from before."""
        return bool(self.cells_rewritten) or self.rows_written > 0

    def then(self, later: "Commit") -> "Commit":
        """What this commit and a later one of the same table, which may be none, did together."""
        if later.snapshot_id is None or self.snapshot_id is None:
            return self if later.snapshot_id is None else later
        return replace(
            later,
            reason="+".join(dict.fromkeys((*self.reason.split("+"), *later.reason.split("+")))),
            cells_checked=self.cells_checked | later.cells_checked,
            cells_rewritten=self.cells_rewritten | later.cells_rewritten,
            rows_written=self.rows_written + later.rows_written,
            bytes_read=self.bytes_read + later.bytes_read,
            bytes_written=self.bytes_written + later.bytes_written,
            seconds=self.seconds + later.seconds,
            partitions={
                partition: _added(self.partitions.get(partition, {}), later.partitions.get(partition, {}))
                for partition in sorted({*self.partitions, *later.partitions})
            },
        )


def _added(one: Mapping[str, float], other: Mapping[str, float]) -> Mapping[str, float]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
