"""A stream whose tables are described by metadata alone, so that a ledger can be lost and rebuilt in no time."""

import shutil
from pathlib import Path
from typing import Any

from dedup_platform import tables
from dedup_platform.ledger import Ledger
from dedup_platform.planning.cells import Cell
from dedup_platform.planning.facts import Change
from dedup_platform.platform import Platform
from dedup_platform.rules.fingerprints import fingerprint
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream
from dedup_platform.testing import HeldClock, make_stream, utc
from dedup_platform.testing.described import DescribedTables

ARRIVED = utc("2024-02-01")
BUCKETS = 2


def no_spark() -> Any:
    raise AssertionError("the ledger reads metadata alone")


class Lived:
    """A stream with some stale cells, and the ledger that tells of them."""

    def __init__(self, folder: Path) -> None:
        self.stream: Stream = make_stream(folder, buckets=BUCKETS)
        self.settings = Settings(home=folder / "home")
        self.platform = self.opened()
        self.described = DescribedTables(self.platform, self.stream)
        first = self.stream.partitions.ordinal(self.stream.partitions.start)
        self.cells = [Cell(first + day, bucket) for day in range(3) for bucket in range(BUCKETS)]
        self.described.ingest(self.cells, ARRIVED)
        self.described.build(tables.DEDUPLICATED_EVENTS, ARRIVED)
        self.described.ingest(self.cells[:1], ARRIVED)
        self.came = False
        self.told = self.tell(self.platform.ledger)

    @property
    def file(self) -> Path:
        return self.settings.home / "control.db"

    def opened(self, buckets: int | None = None) -> Platform:
        stream = self.stream if buckets is None else self.stream.model_copy(update={"buckets": buckets})
        return Platform(self.settings, {stream.name: stream}, no_spark, HeldClock(ARRIVED))

    def tell(self, ledger: Ledger) -> list[Any]:
        heads = ledger.sync(self.stream.name)
        return [heads, *(ledger.facts(self.stream, table, fingerprint(self.stream, table)) for table in tables.DERIVED)]

    def stale(self) -> dict[str, set[Cell]]:
        """What a process that remembers nothing finds stale in each derived table."""
        ledger = self.opened().ledger
        ledger.sync(self.stream.name)
        facts = {table: ledger.facts(self.stream, table, fingerprint(self.stream, table)) for table in tables.DERIVED}
        return {table: set(each.pending) for table, each in facts.items()}

    def lose_receipts(self) -> None:
        shutil.rmtree(self.settings.home / "warehouse" / self.stream.name / "receipts")

    def set_aside(self) -> list[Path]:
        return sorted(self.file.parent.glob("control.db.aside-*"))

    def changes(self) -> dict[Cell, Change]:
        self.platform.ledger.sync(self.stream.name)
        table = tables.DEDUPLICATED_EVENTS
        return dict(self.platform.ledger.facts(self.stream, table, fingerprint(self.stream, table)).changes)
