"""`python -m benchmarks`: medians and ratios of warm runs in turn, on data generated from a seed.

Writes `build/bench.json`: measure -> contender -> `median_s`, `runs_s`.
"""

import argparse
import json
import os
import platform as machine
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.contenders import naive, ours, timed
from benchmarks.data import STREAM, write_events, write_late_event
from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.spark import spark_session
from dedup_platform.stream import load_streams

Runs = dict[str, dict[str, list[float]]]


def main() -> None:
    """Measure, print and write the figures; fails if the contenders disagree."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        runs = _measure(Path(folder), options)
    figures = {
        measure: {name: {"median_s": median(each), "runs_s": each} for name, each in contenders.items()}
        for measure, contenders in runs.items()
    }
    Path("build").mkdir(exist_ok=True)
    about = {"machine": f"{machine.platform()}, {os.cpu_count()} cores", **vars(options)}
    Path("build/bench.json").write_text(json.dumps({"about": about, **figures}, indent=2), encoding="utf-8")
    _show(figures)


def _measure(folder: Path, options: argparse.Namespace) -> Runs:
    settings = Settings(home=folder / "home", driver_memory="4g")
    spark = spark_session(settings)
    write_events(spark, folder, options.events, options.days, options.copies)
    (folder / "bench.yaml").write_text(STREAM.format(buckets=options.buckets), encoding="utf-8")
    lake = Platform.open(settings, load_streams(folder / "bench.yaml"), lambda: spark)
    runs: Runs = defaultdict(lambda: defaultdict(list))
    started = time.monotonic()
    lake.ingest("bench")
    runs["ingest"]["ours"].append(time.monotonic() - started)
    for _ in range(options.runs):
        seconds, found = timed(lambda: ours(lake, "bench"))
        runs["rebuild"]["ours"].append(seconds)
        seconds, expected = timed(lambda: naive(spark, folder / "events", folder / "naive"))
        runs["rebuild"]["naive"].append(seconds)
        assert found[0] == expected[0], f"events differ: {found[0]} against {expected[0]}"
        assert found[1] == expected[1], f"sessions differ: {found[1]} against {expected[1]}"
    for number in range(options.runs):
        write_late_event(spark, folder, options.days // 2, number)
        started = time.monotonic()
        lake.ingest("bench")
        lake.repair("bench")
        runs["late event"]["ours"].append(time.monotonic() - started)
    return runs


def _show(figures: dict[str, dict[str, dict[str, float]]]) -> None:
    table = Table("measure", "contender", "median", "ratio to ours")
    for measure, contenders in figures.items():
        for name, figure in contenders.items():
            ratio = figure["median_s"] / contenders["ours"]["median_s"]
            table.add_row(measure, name, f"{figure['median_s']:.2f} s", f"{ratio:.2f}")
    Console().print(table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--copies", type=float, default=0.02, help="share of the events that come twice")
    parser.add_argument("--buckets", type=int, default=8)
    parser.add_argument("--runs", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
