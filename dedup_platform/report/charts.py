"""Pictures of numbers as SVG inside a page, without a script. Their numbers are in tables beside them, too."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from xml.etree.ElementTree import Element

from dedup_platform.report.elements import element
from dedup_platform.stream.values import format_duration

WIDTH, HEIGHT = 900, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 12, 22
_ACROSS, _UP = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
_BASE = HEIGHT - _BOTTOM
_LABEL = 90
"""So much room a label needs."""
_POINTS = 300
"""A curve has no more of them: it is not wider than so many lines."""
_TICKS = (1, 60, 3600, 86_400, 864_000, 8_640_000)
"""Seconds that are named below a curve."""
Names = Iterable[tuple[str, float]]
"""What stands below the axis, and where."""


def bars(title: str, labels: Sequence[str], series: Mapping[str, Sequence[int]]) -> Element:
    """A column for each label, in which the numbers of all series are stacked."""
    highest = max(map(sum, zip(*series.values(), strict=True)), default=0)
    step = _ACROSS / max(len(labels), 1)
    drawn, below = [], [0] * len(labels)
    for number, values in enumerate(series.values()):
        above = [under + value for under, value in zip(below, values, strict=True)]
        shapes = [
            _column(_LEFT + place * step, step - min(2.0, step / 4), _height(low, highest), _height(high, highest))
            for place, (low, high) in enumerate(zip(below, above, strict=True))
            if high > low
        ]
        drawn.append(element("path", d="".join(shapes), class_=f"series-{number}"))
        below = above
    every = max(1, math.ceil(len(labels) * _LABEL / _ACROSS))
    names = [(label, _LEFT + (place + 0.5) * step) for place, label in enumerate(labels)]
    return _chart(title, drawn, f"{highest:,}", names[::every])


def curve(title: str, counts: Mapping[int, int], marks: Mapping[str, int]) -> Element:
    """The share of all that are at most so many seconds, which grow by factors from left to right.

    `counts`: seconds -> how many are so large. `marks`: what is written at which number of seconds.
    """
    total, largest = sum(counts.values()), max(counts, default=0)

    def across(seconds: int) -> float:
        return _LEFT + (_ACROSS * math.log1p(seconds) / math.log1p(largest) if largest else 0)

    points: dict[int, str] = {}
    share = 0
    for seconds, count in sorted(counts.items()):
        share += count
        x = across(seconds)
        # Of all that lie at the same place the last one is the highest.
        points[round((x - _LEFT) * _POINTS / _ACROSS)] = f"H{x:.1f}V{_height(share, total):.1f}"
    drawn = [element("path", d=f"M{_LEFT} {_BASE}" + "".join(points.values()), class_="curve")]
    for number, (name, seconds) in enumerate(marks.items()):
        x = across(seconds)
        drawn.append(element("path", d=f"M{x:.1f} {_TOP}V{_BASE}", class_="mark"))
        drawn.append(element("text", name, x=round(x - 4, 1), y=_BASE - 6 - 14 * number, class_="left"))
    ticks = [(format_duration(timedelta(seconds=each)), across(each)) for each in _TICKS if each <= largest]
    return _chart(title, drawn, "100 %", ticks)


def _chart(title: str, drawn: Sequence[Element], highest: str, names: Names) -> Element:
    axis = element("path", d=f"M{_LEFT} {_TOP}V{_BASE}H{WIDTH - _RIGHT}", class_="axis")
    beside = [
        element("text", highest, x=_LEFT - 6, y=_TOP + 6, class_="left"),
        element("text", "0", x=_LEFT - 6, y=_BASE, class_="left"),
    ]
    below = [element("text", name, x=round(x, 1), y=HEIGHT - 6, class_="below") for name, x in names]
    parts = (element("title", title), *drawn, axis, *beside, *below)
    return element("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img")


def _height(value: int, highest: int) -> float:
    """Where a value is, from the top."""
    return _TOP + _UP * (1 - (value / highest if highest else 0))


def _column(left: float, width: float, bottom: float, top: float) -> str:
    # What is there is seen, however little it is.
    return f"M{left:.1f} {bottom:.1f}v{min(top - bottom, -0.5):.1f}h{width:.1f}V{bottom:.1f}z"
