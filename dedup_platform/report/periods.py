"""Partitions put together so that a page can show them: by day where those are few, else by what is longer."""

from collections.abc import Mapping
from datetime import date, timedelta

from dedup_platform.platform.figures import PartitionFigures, total
from dedup_platform.stream import Partitions

MOST = 400
"""A page shows no more rows than these."""
_UNITS = {"day": 10, "month": 7, "year": 4, "century": 2}
"""Unit -> how many characters of `2026-01-31` tell it."""


def periods(partitions: Partitions, figures: Mapping[int, PartitionFigures]) -> tuple[str, dict[str, PartitionFigures]]:
    """The shortest unit of which at most `MOST` hold anything, and the figures of each, by its name and in order.

    A day is `2026-01-31`, a month `2026-01`, a year `2026` and a century `20`.
    """
    by_day = _together({partitions.start_of(each).isoformat(): [each] for each in sorted(figures)}, _UNITS["day"])
    candidates = ((unit, _together(by_day, characters)) for unit, characters in _UNITS.items())
    unit, inside = next((unit, inside) for unit, inside in candidates if len(inside) <= MOST)
    if unit == "day" and inside:
        inside = {day: inside.get(day, []) for day in _with_empty_days(list(inside))}
    return unit, {period: total(figures[each] for each in ordinals) for period, ordinals in inside.items()}


def _together(ordinals: Mapping[str, list[int]], characters: int) -> dict[str, list[int]]:
    """Those whose names begin by the same characters."""
    found: dict[str, list[int]] = {}
    for name, some in ordinals.items():
        found.setdefault(name[:characters], []).extend(some)
    return found


def _with_empty_days(days: list[str]) -> list[str]:
    """All days from the first to the last, unless those are too many: then just these."""
    first, last = (date.fromisoformat(day) for day in (days[0], days[-1]))
    every = (last - first).days + 1
    return days if every > MOST else [(first + timedelta(days=number)).isoformat() for number in range(every)]
