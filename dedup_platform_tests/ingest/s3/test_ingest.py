"""Files on a real S3 server are taken in exactly once, whatever happens to the server and on the way to it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from dedup_platform.errors import DedupPlatformError, SourceChangedError, SourceError
from dedup_platform.ledger.schema import HEADS
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream
from dedup_platform.testing import (
    HeldClock,
    Record,
    Rules,
    SessionIds,
    differences,
    histories,
    make_stream,
    temporary_platform,
    write_batch,
)
from dedup_platform.testing.judge import wrong_rows
from dedup_platform.testing.servers import Faults, FaultyProxy, S3Server
from dedup_platform_tests.homes import all_rows
from dedup_platform_tests.ingest.s3.landing import Landing
from dedup_platform_tests.servers import running

ENTITIES = 30
TRIES = 100


@dataclass
class Delivery:
    """Histories in files of a folder, and what tells when all of them have come."""

    folder: Path
    stream: Stream
    records: list[Record]
    clock: HeldClock

    @property
    def files(self) -> list[Path]:
        return sorted(self.stream.files.root.iterdir())

    def platform(self, spark: SparkSession) -> Platform:
        """One that reads the files where they are."""
        return temporary_platform(self.folder / "home", self.stream, spark, self.clock, in_process=True)

    def platform_on(self, landing: Landing, spark: SparkSession, **source: object) -> Platform:
        """One that reads them where they land."""
        stream = landing.of(self.stream, f"in/{self.stream.name}/*.json", **source)
        return temporary_platform(
            self.folder / landing.bucket, stream, spark, self.clock, in_process=True, **landing.places
        )

    def land(self, landing: Landing) -> None:
        for file in self.files:
            landing.put(f"in/{self.stream.name}/{file.name}", file.read_bytes())


@pytest.fixture
def delivery(tmp_path: Path) -> Delivery:
    stream = make_stream(tmp_path, buckets=2)
    history = histories(11, ENTITIES, Rules.of(stream), stream.partitions.start)
    write_batch(stream, history.records)
    return Delivery(tmp_path, stream, history.records, HeldClock(datetime.now(UTC) + timedelta(hours=1)))


def run(platform: Platform) -> dict[str, list[str]]:
    """All rows of all tables, when everything was taken in and repaired."""
    [stream] = platform.streams
    platform.ingest(stream)
    platform.repair(stream)
    return all_rows(platform)


def test_files_on_s3_give_the_same_tables_as_files_in_a_folder(
    delivery: Delivery, s3_server: S3Server, spark: SparkSession
) -> None:
    landing = Landing.on(s3_server)
    delivery.land(landing)
    there = delivery.platform_on(landing, spark)
    assert run(there) == run(delivery.platform(spark))
    assert wrong_rows(there, delivery.stream.name) == []
    assert there.ingest(delivery.stream.name) == []
    secret = s3_server.secret_key.encode()
    assert not [path for path in there.settings.home.rglob("*") if path.is_file() and secret in path.read_bytes()]


def test_files_that_come_in_any_order_are_taken_in_with_the_next_listing_of_all_keys(
    delivery: Delivery, s3_server: S3Server, spark: SparkSession
) -> None:
    landing = Landing.on(s3_server)
    platform = delivery.platform_on(landing, spark, max_batch_files=5)
    for part in (delivery.files[::3], delivery.files[1::3], delivery.files[2::3]):
        for file in part:
            landing.put(f"in/{delivery.stream.name}/{file.name}", file.read_bytes())
        platform.ingest(delivery.stream.name)
        # Keys come in any order here, which a listing of all keys finds.
        delivery.clock.advance(timedelta(hours=1))
    platform.repair(delivery.stream.name)
    assert all_rows(platform) == run(delivery.platform(spark))


def test_exactly_once_though_the_server_is_killed_and_answers_break_off(
    delivery: Delivery, tmp_path: Path, spark: SparkSession
) -> None:
    with (
        running(S3Server, tmp_path / "s3") as server,
        FaultyProxy(server.port, 5, Faults(refuse=0.1, drop=0.05, cut=0.05)) as proxy,
    ):
        landing = Landing.on(server, f"http://127.0.0.1:{proxy.port}")
        delivery.land(landing)
        platform = delivery.platform_on(landing, spark, max_batch_files=2)
        with killed_again_and_again(server, Random(3)) as kills:
            failures = until_all_is_read(platform, delivery)
        platform.repair(delivery.stream.name)
        assert all_rows(platform) == run(delivery.platform(spark))
        assert len(kills) > 1
        assert proxy.happened.total() > 0
        assert set(map(type, failures)) <= {SourceError}


def until_all_is_read(platform: Platform, delivery: Delivery) -> list[DedupPlatformError]:
    """The failures on the way there."""
    failures: list[DedupPlatformError] = []
    for _ in range(TRIES):
        try:
            platform.ingest(delivery.stream.name)
        except DedupPlatformError as error:
            failures.append(error)
        if platform.ledger.files_read(delivery.stream.name) == len(delivery.files):
            return failures
    raise AssertionError(f"not all was read in {TRIES} tries: {failures[-1]}")


@contextmanager
def killed_again_and_again(server: S3Server, random: Random) -> Iterator[list[float]]:
    """While the block runs: SIGKILL every now and then, and a new start a little later."""
    kills: list[float] = []
    done = threading.Event()

    def spoil() -> None:
        while not done.wait(random.uniform(0.2, 1.0)):
            server.kill()
            kills.append(time.monotonic())
            done.wait(random.uniform(0.0, 0.5))
            server.start()

    killer = threading.Thread(target=spoil)
    killer.start()
    try:
        yield kills
    finally:
        done.set()
        killer.join()
        # What a thread started ends with it.
        server.restart()


def test_what_changes_or_vanishes_after_it_was_listed_does_not_hold_up_the_others(
    delivery: Delivery, s3_server: S3Server, spark: SparkSession
) -> None:
    landing = Landing.on(s3_server)
    delivery.land(landing)
    platform, name = delivery.platform_on(landing, spark, max_batch_files=3), delivery.stream.name
    platform.source._ingest.next_batch(platform.stream(name), delivery.clock())
    read = platform.ledger.files(name)
    changed, gone, *_ = [file for file in delivery.files if file.name not in read]
    content = changed.read_bytes()
    landing.put(f"in/{name}/{changed.name}", content + b"\n")
    landing.delete(f"in/{name}/{gone.name}")
    until_all_is_read_but(platform, delivery, 1)
    assert platform.ledger.files(name)[changed.name].size == len(content) + 1
    landing.put(f"in/{name}/{gone.name}", gone.read_bytes())
    delivery.clock.advance(timedelta(hours=1))
    platform.ingest(name)
    platform.repair(name)
    assert differences(platform, platform.stream(name), delivery.records, SessionIds()) == []


def until_all_is_read_but(platform: Platform, delivery: Delivery, missing: int) -> None:
    for _ in range(TRIES):
        try:
            platform.ingest(delivery.stream.name)
        except SourceChangedError:
            continue
        assert platform.ledger.files_read(delivery.stream.name) == len(delivery.files) - missing
        return


def test_a_file_that_was_rewritten_is_read_again_when_a_person_accepts_it(
    delivery: Delivery, s3_server: S3Server, spark: SparkSession
) -> None:
    landing, name = Landing.on(s3_server), delivery.stream.name
    delivery.land(landing)
    platform = delivery.platform_on(landing, spark)
    before = run(platform)
    first = delivery.files[0]
    landing.put(f"in/{name}/{first.name}", first.read_bytes() + b"not json\n")
    delivery.clock.advance(timedelta(hours=1))
    assert platform.source.waiting(name).changed == (first.name,)
    assert platform.ingest(name) == []
    platform.source.accept_files(name, [first.name])
    platform.ingest(name)
    platform.repair(name)
    after = all_rows(platform)
    lines = first.read_bytes().count(b"\n")
    assert len(after["raw_events"]) == len(before["raw_events"]) + lines + 1
    assert len(after["deduplicated_events"]) == len(before["deduplicated_events"])
    assert platform.source.waiting(name).changed == ()


def test_what_is_folded_anew_is_listed_anew(delivery: Delivery, s3_server: S3Server, spark: SparkSession) -> None:
    landing, name = Landing.on(s3_server), delivery.stream.name
    delivery.land(landing)
    platform = delivery.platform_on(landing, spark)
    platform.ingest(name)
    platform.source.waiting(name)
    assert platform.ledger.listing(name)
    with platform.ledger.engine.begin() as connection:
        connection.execute(sa.update(HEADS).values(snapshot_id=1))
    platform.ledger.sync(name)
    assert platform.ledger.listing(name) is None
    assert platform.ingest(name) == []


def test_s3_that_stays_away_is_named(delivery: Delivery, s3_server: S3Server, spark: SparkSession) -> None:
    landing = Landing(s3_server, s3_server.endpoint, "nobody-made-this")
    platform = delivery.platform_on(landing, spark)
    with pytest.raises(SourceError, match=r"^s3://nobody-made-this/in/events/: cannot be read: NoSuchBucket: "):
        platform.source.waiting(delivery.stream.name)
