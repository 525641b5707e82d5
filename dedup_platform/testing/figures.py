"""What the figures of each partition must be, counted from rows in plain Python and without any shortcut.

It shares no code with what counts them for the platform, and takes each percentile from the sorted list of all values.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dedup_platform.testing.oracle import EPOCH

Figures = Mapping[str, float | None]


@dataclass
class _Partition:
    records: int = 0
    events: int = 0
    lateness: list[timedelta] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    sessions: int = 0
    rejected: int = 0

    def figures(self) -> Figures:
        late = sorted(self.lateness)
        percentiles = {f"lateness_p{percent}_seconds": _percentile(late, percent) for percent in (50, 95, 99)}
        return {
            "records": self.records,
            "events": self.events,
            "copies": self.kinds.count("copy"),
            "conflicts": self.kinds.count("conflict"),
            "late_rows": len(late),
            "longest_lateness_seconds": late[-1].total_seconds() if late else 0.0,
            **percentiles,
            "rejected": self.rejected,
            "sessions": self.sessions,
        }


def expected_figures(
    length: timedelta,
    grace: timedelta,
    *,
    records: Iterable[datetime],
    events: Iterable[tuple[datetime, datetime]],
    duplicates: Iterable[tuple[datetime, str]],
    sessions: Iterable[datetime],
    rejected: Iterable[datetime] = (),
) -> dict[int, Figures]:
    """Ordinal of each partition -> its figures under the names of `PartitionFigures.plain`.

    `records` of raw by event time, `events` by event and arrival time, `duplicates` by event time and kind, `sessions`
    by their start and `rejected` records by arrival time.
    """
    found: dict[int, _Partition] = {}

    def at(time: datetime) -> _Partition:
        return found.setdefault((time - EPOCH) // length, _Partition())

    for time in records:
        at(time).records += 1
    for time, arrived in events:
        at(time).events += 1
        closed = EPOCH + ((time - EPOCH) // length + 1) * length + grace
        if arrived > closed:
            at(time).lateness.append(arrived - closed)
    for time, kind in duplicates:
        at(time).kinds.append(kind)
    for time in sessions:
        at(time).sessions += 1
    for time in rejected:
        at(time).rejected += 1
    return {partition: found[partition].figures() for partition in sorted(found)}


def _percentile(late: list[timedelta], percent: int) -> int | None:
    """By the nearest rank, in whole seconds of which all digits but the first three are 0."""
    if not late:
        return None
    rank = next(n for n in range(1, len(late) + 1) if 100 * n >= percent * len(late))
    digits = str(late[rank - 1] // timedelta(seconds=1))
    return int(digits[:3].ljust(len(digits), "0"))
