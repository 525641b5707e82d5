"""A deployment for tests of orchestration: the real platform, real definitions, and a real instance of Dagster."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dedup_platform.orchestration.build import build_definitions
from dedup_platform.orchestration.embedded import LISTENER, listening_logger, open_instance
from dedup_platform.orchestration.progress import Listener
from dedup_platform.orchestration.rehearsal import evaluate, execute
from dedup_platform.planning.planner import TablePlan
from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream, load_stream
from dedup_platform.testing import HeldClock, Record, lay_out, make_stream, record, utc, write_batch

QUIET = Listener(say=lambda _: None, done=lambda _: None)


@dataclass
class Deployment:
    """One stream, as Dagster sees it."""

    stream: Stream
    platform: Platform
    definitions: dg.Definitions
    instance: dg.DagsterInstance
    clock: HeldClock

    def deliver(self, name: str, *records: Record) -> None:
        """A file that is old enough to be read."""
        write_batch(self.stream, lay_out(records, name), modified=self.clock.now.replace(year=2020))

    def later(self, seconds: float) -> None:
        """Let the platform's clock be so much ahead of Dagster's, which nobody can hold."""
        self.clock.set(datetime.now(UTC) + timedelta(seconds=seconds))

    def tick(self, sensor: str) -> tuple[list[dg.RunRequest], str | None]:
        return evaluate(self.definitions, self.instance, f"{self.stream.name}_{sensor}")

    def follow(self, sensor: str, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        return execute(self.definitions, self.instance, f"{self.stream.name}_{sensor}", request)

    def ingest(self) -> dg.ExecuteInProcessResult:
        """What the new_input sensor asks for now, done."""
        [request], _ = self.tick("new_input")
        return self.follow("new_input", request)

    def materialize(self, *tables: str, partitions: Sequence[str], **tags: str) -> dg.ExecuteInProcessResult:
        """What the UI or a backfill starts for these assets and range."""
        first, last = partitions
        return self.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=self.instance,
            asset_selection=[self.key(table) for table in tables],
            tags={"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last, **tags},
            run_config={"loggers": {LISTENER: {}}},
        )

    def key(self, table: str) -> dg.AssetKey:
        return dg.AssetKey([self.stream.name, table])

    def stale(self) -> list[TablePlan]:
        return [plan for plan in self.platform.plan(self.stream.name) if plan.stale]


def numbers(result: dg.ExecuteInProcessResult, table: str) -> dict[str | None, dict[str, object]]:
    """Partition key -> metadata, for the materializations of a table in a run."""
    events = result.get_asset_materialization_events()
    return {
        event.partition: {name: value.value for name, value in event.materialization.metadata.items()}
        for event in events
        if event.asset_key and event.asset_key.path[-1] == table
    }


def click(entity: str, time: str, arrived: str | None = None, id: str | None = None) -> Record:  # noqa: A002
    """An event of `entity`, known by its time unless an id is given."""
    return record(entity, id or f"{entity}-{time}", utc(time), utc(arrived or time), page="/", quantity=1)


@pytest.fixture
def deploy(
    tmp_path: Path, settings: Settings, spark: SparkSession, request: pytest.FixtureRequest
) -> Iterator[Deployment]:
    """A stream of its own, named after the test, in the lake of this pytest process.

    A parameter is its `late` line and what follows, with FOLDER for the test's folder.
    """
    assert spark.version
    stream = stream_file(tmp_path, request.node.name.split("[")[0][:60], getattr(request, "param", "{settle: 0s}"))
    clock = HeldClock(datetime.now(UTC))
    definitions = build_definitions(settings, {stream.name: stream}, clock, {LISTENER: listening_logger(QUIET)})
    platform = Platform(settings, {stream.name: stream}, lambda: spark, clock)
    with open_instance(settings) as instance:
        yield Deployment(stream, platform, definitions, instance, clock)


def stream_file(folder: Path, name: str, late: str) -> Stream:
    """A stream that starts on 2024-03-01 and sessions of 30 minutes."""
    path = make_stream(folder, name, start="2024-03-01").origin
    path.write_text(f"{path.read_text()}late: {late}\n".replace("FOLDER", str(folder)))
    return load_stream(path)
