"""Random histories, delivered batch by batch to a real platform, against the oracle after every repair.

Each test holds many histories, one for each entity, in one lake. With many buckets nearly every entity has cells of
its own, so that a batch touches some of a history's cells and a repair must find the others; with few buckets a batch
touches nearly all cells, and the many histories of a cell meet.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from dedup_platform.platform import Platform
from dedup_platform.stream import Stream
from dedup_platform.testing import (
    HeldClock,
    History,
    Record,
    Rules,
    SessionIds,
    differences,
    histories,
    make_stream,
    rebatched,
    temporary_platform,
    write_batch,
)


@dataclass(frozen=True)
class Setting:
    """How a stream is cut and judged, how many histories it gets, and whether Spark's workers do the work."""

    granularity: str
    window: str
    timeout: str
    buckets: int
    entities: int
    in_process: bool = False

    def __str__(self) -> str:
        return f"{self.granularity}-{self.window}-{self.timeout}-{self.buckets}"


DAYS = Setting("day", "1d", "30m", buckets=64, entities=20)
HOURS = Setting("hour", "2h", "90m", buckets=64, entities=20)
SETTINGS = [
    DAYS,
    HOURS,
    Setting("day", "0s", "90m", buckets=1, entities=80, in_process=True),
    Setting("day", "3d", "2h", buckets=64, entities=20, in_process=True),
    Setting("hour", "0s", "2h", buckets=64, entities=20, in_process=True),
    Setting("hour", "1d", "30m", buckets=2, entities=80, in_process=True),
]


@dataclass
class Run:
    """One stream on one platform, and all that was delivered to it so far."""

    stream: Stream
    platform: Platform
    ids: SessionIds
    delivered: list[Record]

    def deliver(self, batch: Sequence[Record]) -> None:
        write_batch(self.stream, batch)
        self.delivered += batch
        self.platform.ingest(self.stream.name)

    def check(self) -> None:
        assert differences(self.platform, self.stream, self.delivered, self.ids) == []

    def repair_in_part(self, random: Random) -> None:
        """Only some of the tables, and of them only some partitions: other runs failed, or were never started."""
        ordinals = [self.stream.partitions.ordinal(each.event_time) for each in self.delivered]
        partitions = range(min(ordinals), max(ordinals) + 1)
        for table in ("deduplicated_events", "session_fragments", "sessions"):
            chosen = random.choice([None, [], random.sample(partitions, len(partitions) // 2)])
            if chosen != []:
                self.platform.recompute_stale(self.stream.name, table, chosen)

    def stale(self) -> list[object]:
        return [cell for table in self.platform.plan(self.stream.name) for cell in table.stale]


@pytest.fixture(scope="module")
def share(thorough: bool) -> float:
    """Of the histories, where there is less time: each entity has one of its own."""
    return 1 if thorough else 0.25


def start(folder: Path, spark: SparkSession, setting: Setting, seed: int, share: float) -> tuple[Run, History]:
    stream = make_stream(
        folder,
        granularity=setting.granularity,
        window=setting.window,
        timeout=setting.timeout,
        buckets=setting.buckets,
    )
    history = histories(seed, round(setting.entities * share), Rules.of(stream), stream.partitions.start)
    clock, in_process = HeldClock(history.now), setting.in_process
    platform = temporary_platform(folder / "home", stream, spark, clock, in_process=in_process)
    return Run(stream, platform, SessionIds(), []), history


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_tables_equal_the_oracle_after_every_repair(
    setting: Setting, tmp_path: Path, spark: SparkSession, share: float
) -> None:
    random = Random(str(setting))
    run, history = start(tmp_path, spark, setting, seed=setting.entities, share=share)
    for number, batch in enumerate(history.batches):
        run.deliver(batch)
        luck = random.random()
        if luck < 0.4:
            run.repair_in_part(random)
        if luck > 0.7 or number == len(history.batches) - 1:
            run.platform.repair(run.stream.name)
            assert run.stale() == []
            run.check()
    # Where the oracle judges, one of the settings shows that SQL says the same.
    if setting == HOURS:
        assert run.platform.verify(run.stream.name) == []


@pytest.mark.parametrize("setting", [DAYS, replace(HOURS, in_process=True)], ids=str)
def test_another_order_in_other_batches_gives_the_same_sessions_and_ids(
    setting: Setting, tmp_path: Path, spark: SparkSession, share: float
) -> None:
    found = []
    for name, batches in [("told", 2), ("shuffled", 4)]:
        folder = tmp_path / name
        folder.mkdir()
        run, history = start(folder, spark, setting, seed=99, share=share)
        for batch in rebatched(history, seed=batches, batches=batches).batches:
            run.deliver(batch)
            run.platform.repair(run.stream.name)
        run.check()
        found.append(rows(run, "sessions") | rows(run, "deduplicated_events") | rows(run, "duplicate_events"))
    assert found[0] == found[1]


def test_backfill_cut_into_chunks_equals_the_oracle(tmp_path: Path, spark: SparkSession, share: float) -> None:
    """Whole partitions in any order, in chunks that cut through windows and sessions, instead of a repair."""
    run, history = start(tmp_path, spark, HOURS, seed=5, share=share)
    for batch in history.batches:
        run.deliver(batch)
    ordinals = [run.stream.partitions.ordinal(each.event_time) for each in run.delivered]
    partitions = range(min(ordinals), max(ordinals) + 1)
    chunks = [partitions[n : n + 5] for n in range(0, len(partitions), 5)]
    for table in ("deduplicated_events", "session_fragments", "sessions"):
        for chunk in Random(table).sample(chunks, len(chunks)):
            run.platform.recompute(run.stream.name, table, chunk)
    assert run.stale() == []
    run.check()


def test_repairing_again_writes_nothing(tmp_path: Path, spark: SparkSession, share: float) -> None:
    run, history = start(tmp_path, spark, DAYS, seed=7, share=share)
    for batch in history.batches[:2]:
        run.deliver(batch)
    run.platform.repair(run.stream.name)
    assert [cell for commit in run.platform.repair(run.stream.name) for cell in commit.cells_rewritten] == []
    assert run.platform.ingest(run.stream.name) == []
    run.check()


def rows(run: Run, table: str) -> set[str]:
    return {f"{table} {row}" for row in run.platform.read(run.stream.name, table).toArrow().to_pylist()}
