"""Two processes, each with its own Spark, do the same at the same moment; nothing but the lake keeps them apart."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import pytest
from pyspark.sql import SparkSession

from dedup_platform.platform import Platform
from dedup_platform.stream import Stream, load_stream
from dedup_platform.testing import (
    HeldClock,
    History,
    Rules,
    SessionIds,
    differences,
    histories,
    make_stream,
    temporary_platform,
    utc,
    write_batch,
)
from dedup_platform.testing.delivery import ATTRIBUTES
from dedup_platform.testing.judge import wrong_rows
from dedup_platform.testing.servers import PostgresServer
from dedup_platform_tests.conftest import PROJECT
from dedup_platform_tests.servers import new_name

ROUNDS, ROUNDS_THOROUGH = 4, 20
ROUNDS_ELSEWHERE = 2
FIRST_RUNS = 3
NOW = utc("2024-06-01")
NewPlaces = Callable[[], dict[str, str]]


@dataclass(frozen=True)
class Worker:
    """One of the two processes."""

    process: "subprocess.Popen[str]"

    def tell(self, **command: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{json.dumps(command)}\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, str]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, f"a worker ended with {self.process.wait()}"
        return dict(json.loads(line))


@dataclass(frozen=True)
class Race:
    """One home on which both workers run."""

    home: Path
    stream: Stream
    places: dict[str, Any]
    workers: tuple[Worker, Worker]

    def platform(self, spark: SparkSession) -> Platform:
        return temporary_platform(self.home, self.stream, spark, HeldClock(NOW), **self.places)

    def together(self, one: dict[str, Any], other: dict[str, Any]) -> None:
        """Give each worker its command at the same moment; each is done or was beaten, and says so."""
        for worker, command in zip(self.workers, (one, other), strict=True):
            worker.tell(home=str(self.home), stream=str(self.stream.origin), places=self.places, **command)
        answers = [worker.answer() for worker in self.workers]
        assert [each for each in answers if "failed" in each] == []


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Worker, Worker]]:
    folder = tmp_path_factory.mktemp("workers")
    with ExitStack() as stack:
        one, other = (start(stack.enter_context((folder / name).open("w"))) for name in ("one", "other"))
        assert (one.answer(), other.answer()) == ({}, {})
        yield one, other
        for worker in (one, other):
            worker.process.communicate()


def start(log: IO[str]) -> Worker:
    command = [sys.executable, "-m", "dedup_platform_tests.races.worker", NOW.isoformat()]
    pipe = subprocess.PIPE
    return Worker(subprocess.Popen(command, cwd=PROJECT, stdin=pipe, stdout=pipe, stderr=log, text=True))


@pytest.fixture(params=["sqlite", "postgres"])
def new_places(request: pytest.FixtureRequest) -> NewPlaces:
    """Gives new databases for the catalog and the ledger, as settings say them; none are those in the home."""
    if request.param == "sqlite":
        return dict
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return lambda: {name: server.create_database(new_name()) for name in ("catalog_uri", "control_uri")}


def prepare(
    folder: Path, new_places: NewPlaces, workers: tuple[Worker, Worker], entities: int, batches: int
) -> tuple[Race, History]:
    folder.mkdir(parents=True, exist_ok=True)
    stream = make_stream(folder, buckets=2, timeout="2h")
    history = histories(batches, entities, Rules.of(stream), stream.partitions.start, batches=batches)
    assert history.now < NOW
    return Race(folder / "home", stream, new_places(), workers), history


def test_the_first_ingest_of_a_stream_raced_by_two_takes_in_each_record_once(
    tmp_path: Path, new_places: NewPlaces, workers: tuple[Worker, Worker], spark: SparkSession, thorough: bool
) -> None:
    for number in range(FIRST_RUNS if thorough else 1):
        race, history = prepare(tmp_path / str(number), new_places, workers, entities=10, batches=1)
        write_batch(race.stream, history.records)
        race.together({"do": "ingest"}, {"do": "ingest"})
        platform = race.platform(spark)
        assert platform.rows(race.stream.name, "raw_events") == len(history.records)
        race.together({"do": "repair"}, {"do": "repair"})
        assert wrong_rows(platform, race.stream.name) == []


def test_a_new_column_raced_by_two_is_added_once(
    tmp_path: Path, new_places: NewPlaces, workers: tuple[Worker, Worker], spark: SparkSession
) -> None:
    race, history = prepare(tmp_path, new_places, workers, entities=10, batches=2)
    write_batch(race.stream, history.batches[0])
    race.together({"do": "ingest"}, {"do": "ingest"})
    race = replace(race, stream=with_new_column(race.stream))
    write_batch(race.stream, history.batches[1])
    race.together({"do": "ingest"}, {"do": "ingest"})
    race.together({"do": "repair"}, {"do": "repair"})
    platform = race.platform(spark)
    platform.repair(race.stream.name)
    rows = platform.read(race.stream.name, "raw_events")
    assert rows.where("referrer is null").count() == len(history.records)
    assert wrong_rows(platform, race.stream.name) == []


def with_new_column(stream: Stream) -> Stream:
    """The same stream with an attribute more, in a stream file of its own."""
    attributes = ATTRIBUTES | {"referrer": "string"}
    wider = make_stream(stream.origin.parent, buckets=2, timeout="2h", attributes=attributes)
    return load_stream(wider.origin.rename(wider.origin.with_stem("wider")))


def test_the_same_files_and_overlapping_partitions_raced_again_and_again_end_equal(
    tmp_path: Path, new_places: NewPlaces, workers: tuple[Worker, Worker], spark: SparkSession, thorough: bool
) -> None:
    rounds = (ROUNDS_THOROUGH if thorough else ROUNDS) if new_places is dict else ROUNDS_ELSEWHERE
    race, history = prepare(tmp_path, new_places, workers, entities=40, batches=rounds)
    stream = race.stream
    platform = race.platform(spark)
    ordinals = {stream.partitions.ordinal(each.event_time) for each in history.records}
    earlier, later = [sorted(ordinals)[:-1], sorted(ordinals)[1:]]
    written = 0
    for number, batch in enumerate(history.batches):
        write_batch(stream, batch)
        written += len(batch)
        race.together({"do": "ingest"}, {"do": "ingest"})
        assert platform.rows(stream.name, "raw_events") == written
        if number % 2:
            race.together({"do": "repair"}, {"do": "repair"})
        else:
            race.together({"do": "recompute", "partitions": earlier}, {"do": "recompute", "partitions": later})
    # A worker that was beaten too often left its work to the next run.
    platform.repair(stream.name)
    assert wrong_rows(platform, stream.name) == []
    assert differences(platform, stream, history.records, SessionIds()) == []
