"""What the harness is asked to do."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contenders import NAMES
from benchmarks.process import PROJECT

DEFAULT_MEASURES = ("rebuild", "rebuild_cold", "next_hour", "repair", "skew", "state")
MEASURES = (
    *DEFAULT_MEASURES,
    "ingest",
    "history",
    "upkeep",
    "landing",
    "tick",
    "kafka",
    "publish",
    "scale",
    "explain",
    "report",
    "beside",
)
"""Each is a module of `benchmarks.measures`."""


@dataclass(frozen=True)
class Options:
    """Parsed arguments."""

    measures: tuple[str, ...]
    contenders: tuple[str, ...]
    events: int
    days: int
    copies: float
    buckets: int
    runs: int
    memory: str
    folder: Path
    beside: Path | None
    docs: Path | None

    def described(self) -> dict[str, object]:
        """What decides the figures, without places of this machine."""
        return {name: getattr(self, name) for name in ("events", "days", "copies", "buckets", "memory")}


def parse(arguments: Sequence[str] | None = None) -> Options:
    """The options of a command line; exits with a message if it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure the platform beside what people would otherwise write, on data generated from a seed.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--events", type=int, default=10_000_000, help="events before copies")
    parser.add_argument("--days", type=int, default=10, help="days that the events are spread over")
    parser.add_argument("--copies", type=float, default=0.02, help="share of the events that come twice")
    parser.add_argument("--buckets", type=int, default=8, help="buckets of the platform's tables")
    parser.add_argument("--runs", type=int, default=3, help="timed runs of the contenders that are compared most")
    parser.add_argument("--memory", default="4g", help="heap of every Java process")
    parser.add_argument(
        "--measures", type=_names(MEASURES), default=DEFAULT_MEASURES, help=f"comma-separated: {', '.join(MEASURES)}"
    )
    parser.add_argument("--contenders", type=_names(NAMES), default=NAMES, help=f"comma-separated: {', '.join(NAMES)}")
    parser.add_argument("--folder", type=_absolute, default=PROJECT / "build", help="where data and figures go")
    parser.add_argument("--beside", type=_absolute, default=None, help="another checkout, for the measure of this name")
    parser.add_argument("--docs", type=Path, default=None, help="also write the page of figures to this file")
    options = Options(**vars(parser.parse_args(arguments)))
    if "beside" in options.measures and not (options.beside and (options.beside / "benchmarks").is_dir()):
        parser.error("the measure beside needs --beside FOLDER, another checkout of this project")
    return options


def _absolute(text: str) -> Path:
    return Path(text).absolute()


def _names(allowed: Sequence[str]) -> "type[tuple[str, ...]]":
    def names(text: str) -> tuple[str, ...]:
        found = tuple(name.strip() for name in text.split(","))
        if unknown := [name for name in found if name not in allowed]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: allowed are {', '.join(allowed)}")
        return found

    return names  # type: ignore[return-value]
