"""What ticks, plans and looks cost beside a ledger of many cells.

The tables are described and not there, so this needs no Spark. What is measured is real: snapshots, manifests and
receipts in files, the fold, the control database, the planner, and the sensor itself.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import dagster as dg
from pyspark.sql import SparkSession

from benchmarks.bench import Bench
from benchmarks.contender import Task
from benchmarks.contenders import OURS
from benchmarks.contenders.ours import STREAM, deployment, stream_file
from dedup_platform import tables
from dedup_platform.orchestration.build import build_definitions
from dedup_platform.orchestration.embedded import open_instance
from dedup_platform.orchestration.rehearsal import evaluate
from dedup_platform.planning.cells import Cell
from dedup_platform.platform import Platform
from dedup_platform.stream import load_stream
from dedup_platform.testing.described import DescribedTables

NAME = "tick"
CELLS = {10: 1, 1_000: 1, 100_000: 256}
"""Cells in each table -> buckets: with one bucket, a hundred thousand cells would be three centuries of days."""
CELLS_A_COMMIT = 5_000
SOME = 1_000
CHANGES_A_CELL = 50

Note = Callable[[str, Sequence[float]], None]


def measure(bench: Bench) -> None:
    """The life of a stream, for each number of cells."""
    bench.data.mkdir(parents=True, exist_ok=True)
    for cells, buckets in CELLS.items():
        task = replace(bench.task(OURS, bench.data, f"work/{NAME}"), buckets=buckets)
        bench.forget(task)
        Path(task.home).mkdir(parents=True)
        bench.say(f"{NAME}: {cells:,} cells")
        os.environ["DAGSTER_HOME"] = str(Path(task.home) / "dagster")
        _Life(task, cells, bench.options.runs, partial(_tell, bench, cells)).live()
        bench.forget(task)


def _tell(bench: Bench, cells: int, what: str, seconds: Sequence[float]) -> None:
    bench.say(f"  {what}: {sorted(seconds)[len(seconds) // 2]:.3f} s")
    bench.figures.seconds(f"{NAME}: {what}, {cells:,} cells", OURS, seconds)


class _Life:
    """One stream that lives through a first build, single late events, many of them, and many ingests."""

    def __init__(self, task: Task, cells: int, runs: int, note: Note) -> None:
        file = Path(task.home) / f"{STREAM}.yaml"
        file.write_text(stream_file(task), encoding="utf-8")
        self.settings, self.stream = deployment(task), load_stream(file)
        streams = {STREAM: self.stream}
        self.platform = Platform(self.settings, streams, _no_spark)
        self.definitions = build_definitions(self.settings, streams)
        self.tables = DescribedTables(self.platform, self.stream)
        first = self.stream.partitions.ordinal(self.stream.partitions.start)
        self.cells = [Cell(first + number // task.buckets, number % task.buckets) for number in range(cells)]
        self.arrived = datetime.now(UTC) - timedelta(days=1)
        self.runs = runs
        self.note = note

    def live(self) -> None:
        """Every case, in the order of a stream's life."""
        with open_instance(self.settings) as instance:
            for start in range(0, len(self.cells), CELLS_A_COMMIT):
                self.ingest(self.cells[start : start + CELLS_A_COMMIT])
            self.time("fold of the first ingests", self.sync)
            self.look("every cell stale", instance, len(self.cells))
            for table in tables.DERIVED:
                for start in range(0, len(self.cells), CELLS_A_COMMIT):
                    self.tables.build(table, self.arrived, self.cells[start : start + CELLS_A_COMMIT])
            self.sync()
            self.look("nothing stale", instance, 0)
            self.time("status", lambda: self.platform.status(STREAM))
            self.time("fold from nothing", self.fold_from_nothing)
            some = self.cells[:: max(1, len(self.cells) // SOME)][:SOME]
            for late in (self.cells[:1], some):
                self.repair(late, instance)
            for _ in range(CHANGES_A_CELL):
                self.ingest(some)
            self.sync()
            self.look(f"{len(some):,} stale by {CHANGES_A_CELL} ingests each", instance, len(some))

    def repair(self, late: Sequence[Cell], instance: dg.DagsterInstance) -> None:
        """A late event in each of these cells, and its repair."""
        self.ingest(late)
        self.time(f"fold of an ingest into {len(late):,}", self.sync)
        self.look(f"{len(late):,} stale", instance, len(late))
        for table in tables.DERIVED:
            self.tables.build(table, self.arrived)
        self.time(f"fold of a rebuild of {len(late):,}", self.sync)

    def look(self, case: str, instance: dg.DagsterInstance, stale: int) -> None:
        """Plan, and let the sensor tick as Dagster's daemon does; the first of each reads what is new."""
        found = sum(len(plan.stale) for plan in self.platform.plan(STREAM))
        assert found == stale, (
            f"{found} cells are stale, not {stale}: the ledger is not what this measure means to make"
        )
        self.time(f"plan, {case}", lambda: self.platform.plan(STREAM), self.runs)
        sensor = partial(evaluate, self.definitions, instance, f"{STREAM}_late_partitions")
        sensor()
        self.time(f"tick, {case}", sensor, self.runs)

    def ingest(self, cells: Sequence[Cell]) -> None:
        """An ingest whose records all arrived after those of the one before."""
        self.arrived += timedelta(seconds=1)
        self.tables.ingest(cells, self.arrived)

    def sync(self) -> None:
        """Fold what is new."""
        self.platform.ledger.sync(STREAM)

    def fold_from_nothing(self) -> None:
        """What the first command after the loss of the control database does."""
        self.platform.ledger.engine.dispose()
        Path(str(self.platform.ledger.engine.url.database)).unlink()
        self.platform.ledger = Platform(self.settings, self.platform.streams, _no_spark).ledger
        self.sync()

    def time(self, case: str, work: Callable[[], object], times: int = 1) -> None:
        """Note the seconds of some calls."""
        seconds = []
        for _ in range(times):
            started = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - started)
        self.note(case, seconds)


def _no_spark() -> SparkSession:
    raise AssertionError("a tick must not start Spark")
