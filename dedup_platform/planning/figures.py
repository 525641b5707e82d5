"""What is counted of the rows of a cell, so that the figures of a whole partition are sums over its cells. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

DIGITS = 3
"""Seconds of lateness are counted to so many digits, rounded down: percentiles are at most 1 % too small."""


def percentile(counts: Mapping[int, int], percent: int) -> int | None:
    """The least value that so many percent of all do not pass, by the nearest rank; `counts`: value -> how many."""
    rank = -(-sum(counts.values()) * percent // 100)
    for value, count in sorted(counts.items()):
        rank -= count
        if rank <= 0:
            return value
    return None


@dataclass(frozen=True)
class Lateness:
    """How long after their partition closed the late events of some cells arrived. Those of several cells add up."""

    seconds: Mapping[int, int] = field(default_factory=dict)
    """Whole seconds, rounded down to `DIGITS` digits -> late events."""
    longest: timedelta = timedelta(0)
    """Exact; 0 where nothing is late."""

    @property
    def events(self) -> int:
        """How many events are late."""
        return sum(self.seconds.values())

    def percentile(self, percent: int) -> int | None:
        """The least lateness, in seconds to `DIGITS` digits, that so many percent of the late events do not pass.

        None if nothing is late.
        """
        return percentile(self.seconds, percent)


NOT_LATE = Lateness()


@dataclass(frozen=True)
class CellFigures:
    """What is counted of the rows of a cell: of duplicates the conflicts, of events how late they are."""

    conflicts: int = 0
    lateness: Lateness = NOT_LATE


NO_FIGURES = CellFigures()


def added_up(figures: Iterable[CellFigures]) -> CellFigures:
    """The figures of all cells together, or of all shares of one."""
    conflicts, longest, seconds = 0, timedelta(0), Counter[int]()
    for each in figures:
        conflicts += each.conflicts
        longest = max(longest, each.lateness.longest)
        seconds.update(each.lateness.seconds)
    return CellFigures(conflicts, Lateness(dict(sorted(seconds.items())), longest))
