"""After how long a gap a session ends: what the distribution of the gaps between events says."""

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from math import log
from typing import Any

import polars as pl

from dedup_platform.infer.columns import percent
from dedup_platform.planning.moments import in_microseconds
from dedup_platform.stream import format_duration

__all__ = ["Timeout", "timeout_of"]

USUAL = timedelta(minutes=30)
_CHOICES = [timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 240, 480, 1440)]
_ENOUGH = 100
"""Gaps, from which on they tell more than what is usual."""
_ROOM = 10
"""So many times as long as a gap must a sample last to tell of it."""
_SIDE = 0.05
"""So many of the gaps must be shorter, and so many longer, for there to be a valley in between."""


@dataclass(frozen=True)
class Timeout:
    """A timeout, and why."""

    length: timedelta
    evidence: str


def timeout_of(entities: pl.Series, moments: pl.Series) -> Timeout:
    """The length around which there are the fewest gaps between two events of an entity.

    People pause for seconds within a visit and for hours between two: the fewer gaps lie near the timeout (from half of
    it to twice), the less its exact length matters. Half an hour, as analysts use, unless another has not half as many.
    """
    gaps = _gaps(entities, moments)
    if len(gaps) < _ENOUGH:
        return Timeout(USUAL, f"usual; {len(gaps):,} gaps between events of an entity are too few to tell")
    about = partial(_evidence, gaps)
    lasted: Any = moments.drop_nulls().max() - moments.drop_nulls().min()  # type: ignore[operator]  # there are some
    if lasted < in_microseconds(_ROOM * USUAL):
        return Timeout(USUAL, f"usual; the sample is too short to tell: {about(USUAL)}")
    near = {each: _near(gaps, each) for each in _CHOICES if _is_between(gaps, each, lasted)}
    fewest = min(near, key=lambda each: (near[each], abs(log(each / USUAL))), default=USUAL)
    chosen = fewest if _near(gaps, fewest) < _near(gaps, USUAL) / 2 else USUAL
    return Timeout(chosen, about(chosen))


def _evidence(gaps: pl.Series, length: timedelta) -> str:
    shorter, near = percent(_share(gaps, timedelta(0), length)), percent(_near(gaps, length))
    return f"{shorter} of {len(gaps):,} gaps are at most {format_duration(length)}, {near} from half to twice that"


def _gaps(entities: pl.Series, moments: pl.Series) -> pl.Series:
    """Microseconds between events of an entity that follow one another; copies make none."""
    frame = pl.DataFrame({"entity": entities, "at": moments}).drop_nulls().unique().sort("entity", "at")
    gap = pl.col("at").diff().over("entity")
    return frame.select(gap.alias("gap")).drop_nulls()["gap"]


def _is_between(gaps: pl.Series, length: timedelta, lasted: int) -> bool:
    """Whether a sample that lasted so long has gaps on both sides of a length, and could have longer ones."""
    shorter = _share(gaps, timedelta(0), length)
    return _SIDE <= shorter <= 1 - _SIDE and in_microseconds(length) * _ROOM <= lasted


def _near(gaps: pl.Series, length: timedelta) -> float:
    return _share(gaps, length / 2, length * 2)


def _share(gaps: pl.Series, above: timedelta, upto: timedelta) -> float:
    inside = (gaps > in_microseconds(above)) & (gaps <= in_microseconds(upto))
    return float(inside.mean())  # type: ignore[arg-type]  # there are gaps
