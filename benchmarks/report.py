"""Shows the figures on the console and as a plot."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from rich.console import Console
from rich.table import Table

from benchmarks.contenders import OURS
from benchmarks.figures import Figure, Figures

REPAIRS = "Repair by this platform"
_OURS, _OTHERS = "#1b6ca8", "#b8c4cc"


def show(figures: Figures, console: Console) -> None:
    """Print the table of all measures."""
    table = Table("measure", "contender", "median", "of ours", "peak", "read", "written", "files")
    for measure, contenders in figures.measures.items():
        for name, figure in contenders.items():
            if "median_s" in figure:
                table.add_row(measure, name, seconds(figure["median_s"]), ratio(contenders, name), *costs(figure))
    console.print(table)


def plot(figures: Figures, path: Path) -> bool:
    """Draw the rebuilds, warm and cold, and the repairs, as far as they were measured; whether any was."""
    drawn = {
        "Everything from nothing, warm": figures.measures.get("rebuild", {}),
        "Everything from nothing, cold": figures.measures.get("rebuild_cold", {}),
        REPAIRS: _repairs(figures),
    }
    drawn = {title: {name: bar for name, bar in bars.items() if "median_s" in bar} for title, bars in drawn.items()}
    drawn = {title: bars for title, bars in drawn.items() if bars}
    if not drawn:
        return False
    mpl.use("Agg")
    rows = [len(bars) for bars in drawn.values()]
    drawing = Drawing(figsize=(8, 0.4 * sum(rows) + 1.0 * len(drawn)), layout="constrained")
    for axes, (title, bars) in zip(
        drawing.subplots(len(drawn), height_ratios=rows, squeeze=False).flat, drawn.items(), strict=True
    ):
        _draw(axes, title, bars)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=110)
    return True


def _draw(axes: Axes, title: str, bars: dict[str, Figure]) -> None:
    names = list(bars)[::-1]
    medians = [bars[name]["median_s"] for name in names]
    drawn = axes.barh(names, medians, color=[_OURS if name == OURS or title == REPAIRS else _OTHERS for name in names])
    axes.bar_label(drawn, labels=[seconds(median) for median in medians], padding=3)
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel("seconds")
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)


def _repairs(figures: Figures) -> dict[str, Figure]:
    repairs = {name: each for name, each in figures.measures.items() if name.startswith("repair: ")}
    return {name.removeprefix("repair: "): each[OURS] for name, each in repairs.items() if OURS in each}


def ratio(contenders: dict[str, Figure], name: str) -> str:
    """How many times as long as ours; empty where ours was not measured."""
    ours = contenders.get(OURS, {}).get("median_s")
    return f"{contenders[name]['median_s'] / ours:.2f}" if ours else ""


def costs(figure: Figure) -> list[str]:
    """Peak memory, bytes read and written, files written; empty where nobody counted."""
    peak, files = figure.get("peak_mb"), figure.get("data_files_written")
    return [
        "" if peak is None else f"{peak:,} MB",
        megabytes(figure.get("data_bytes_read")),
        megabytes(figure.get("data_bytes_written")),
        "" if files is None else f"{files:,}",
    ]


def seconds(value: float) -> str:
    """A time for people."""
    return f"{value:.1f} s" if value >= 10 else f"{value:.2f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def megabytes(count: int | None) -> str:
    """A number of bytes for people."""
    return "" if count is None else f"{count / 1e6:,.1f} MB"
