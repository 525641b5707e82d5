"""What a tick, a plan and a look cost beside a ledger of many cells: `python -m benchmarks.ticks [CELLS]`.

The tables are described and not there, so this needs no Spark. What is measured is real: snapshots, manifests and
receipts in files, the fold, the control database, the planner, and the sensor itself.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dedup_platform import tables
from dedup_platform.fingerprints import fingerprint
from dedup_platform.lateness import Cell
from dedup_platform.orchestration.build import build_definitions
from dedup_platform.orchestration.embedded import open_instance
from dedup_platform.orchestration.rehearsal import evaluate
from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.spark import spark_session
from dedup_platform.testing import make_stream
from dedup_platform.testing.described import DescribedTables

BUCKETS = 256
CELLS_A_COMMIT = 5_000
SOME = 1_000
CHANGES_A_CELL = 50


def measure_tick(cells: int) -> dict[str, float]:
    """Seconds of each case, in a ledger of this many cells of each table."""
    with tempfile.TemporaryDirectory() as folder:
        return _Measures(Path(folder), cells).all()


class _Measures:
    """One stream that lives through a first build, single late events, many of them, and many ingests."""

    def __init__(self, folder: Path, cells: int) -> None:
        self.settings = Settings(home=folder / "home")
        self.stream = make_stream(folder, start="2024-01-01", buckets=BUCKETS)
        streams = {self.stream.name: self.stream}
        self.platform = Platform.open(self.settings, streams, lambda: spark_session(self.settings))
        self.definitions = build_definitions(self.settings, streams)
        self.tables = DescribedTables(self.platform, self.stream)
        first = self.stream.partitions.ordinal(self.stream.partitions.start)
        self.cells = [Cell(first + number // BUCKETS, number % BUCKETS) for number in range(cells)]
        self.arrived = datetime.now(UTC) - timedelta(days=1)
        self.seconds: dict[str, float] = {}

    def all(self) -> dict[str, float]:
        """Every case, in the order of a stream's life."""
        for start in range(0, len(self.cells), CELLS_A_COMMIT):
            self.take_in(self.cells[start : start + CELLS_A_COMMIT])
        self.time("fold of the first ingests", self.sync)
        self.plan_and_tick("all stale")
        for table in tables.DERIVED:
            for start in range(0, len(self.cells), CELLS_A_COMMIT):
                self.tables.build(table, self.arrived, self.cells[start : start + CELLS_A_COMMIT])
        self.time("fold of the last build's commit", self.sync)
        self.plan_and_tick("none stale")
        self.time("status", lambda: self.platform.status(self.stream.name))
        self.time("fold from nothing", self.fold_from_nothing)
        for name, cells in (("1", self.cells[:1]), (f"{SOME}", self.cells[:: max(1, len(self.cells) // SOME)][:SOME])):
            self.repair_some(name, cells)
        spread = self.cells[:: max(1, len(self.cells) // SOME)][:SOME]
        for _ in range(CHANGES_A_CELL):
            self.take_in(spread)
        self.sync()
        self.plan_and_tick(f"{len(spread)} stale by {CHANGES_A_CELL} ingests each")
        return self.seconds

    def repair_some(self, name: str, cells: list[Cell]) -> None:
        """A late event in each of these cells, and its repair."""
        self.take_in(cells)
        self.time(f"fold of an ingest into {name}", self.sync)
        self.plan_and_tick(f"{name} stale")
        facts = self.platform.ledger.facts
        mark = fingerprint(self.stream, tables.DEDUPLICATED_EVENTS)
        self.time(f"facts, {name} stale", lambda: facts(self.stream, tables.DEDUPLICATED_EVENTS, mark))
        sizes = self.platform.ledger.sizes
        self.time(f"sizes of {name}", lambda: sizes(self.stream.name, tables.DEDUPLICATED_EVENTS, cells))
        for table in tables.DERIVED:
            self.tables.build(table, self.arrived)
        self.time(f"fold of a rebuild of {name}", self.sync)

    def plan_and_tick(self, name: str) -> None:
        """`plan` twice, since the first reads what is new, and the sensor's tick."""
        self.platform.plan(self.stream.name)
        self.time(f"plan, {name}", lambda: self.platform.plan(self.stream.name))
        with open_instance(self.settings) as instance:
            sensor = f"{self.stream.name}_late_partitions"
            evaluate(self.definitions, instance, sensor)
            self.time(f"tick, {name}", lambda: evaluate(self.definitions, instance, sensor))

    def take_in(self, cells: list[Cell]) -> None:
        """An ingest whose records all arrived after those of the one before."""
        self.arrived += timedelta(seconds=1)
        self.tables.take_in(cells, self.arrived)

    def sync(self) -> None:
        """Fold what is new."""
        self.platform.ledger.sync(self.stream.name)

    def fold_from_nothing(self) -> None:
        """What the first command after the loss of the control database does."""
        self.platform.ledger.engine.dispose()
        Path(str(self.platform.ledger.engine.url.database)).unlink()
        again = Platform.open(self.settings, self.platform.streams, self.platform.lake.spark)
        self.platform.ledger = again.ledger
        self.sync()

    def time(self, case: str, work: Callable[[], Any]) -> None:
        """Note the seconds of one call."""
        started = time.perf_counter()
        work()
        self.seconds[case] = time.perf_counter() - started


def main() -> None:
    """Print the seconds of each case."""
    shown = Table("case", "seconds")
    for case, seconds in measure_tick(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000).items():
        shown.add_row(case, f"{seconds:.3f}")
    Console().print(shown)


if __name__ == "__main__":
    main()
