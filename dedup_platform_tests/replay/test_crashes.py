"""A replay that is killed with SIGKILL moved all records or none, and the next one finishes it."""

import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dedup_platform.spark.connect_server import ConnectServer
from dedup_platform.stream import load_stream
from dedup_platform.tables import RAW_EVENTS
from dedup_platform.testing import HeldClock, make_stream, record, utc
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.conftest import for_other_homes
from dedup_platform_tests.crashes.crash import forking
from dedup_platform_tests.homes import Home, all_rows, references, stale
from dedup_platform_tests.replay.conftest import NOW, Deployment

STEPS = {
    f"before the receipt of {RAW_EVENTS}": 0,
    f"before publishing {RAW_EVENTS}": 0,
    f"after publishing {RAW_EVENTS}": 20,
}
"""Where it dies, and how many events there are then."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Home:
    """Twenty rejected records that can be events by now."""
    folder = tmp_path_factory.mktemp("crashes")
    stream = make_stream(folder, buckets=2)
    home = Home(folder / "home", stream, spark, HeldClock(NOW))
    deploy = Deployment(home.platform(), stream, stream.origin.read_text())
    deploy.spoil()
    deploy.deliver(*(record(f"user {n}", f"{n}", utc("2024-03-01T10:00"), page="/") for n in range(20)), file="a.json")
    deploy.put_right()
    home = Home(home.folder, load_stream(stream.origin), spark, home.clock)
    home.keep()
    return home


@pytest.fixture(scope="module")
def never_killed(home: Home) -> dict[str, list[str]]:
    platform = home.platform()
    platform.rejected.replay(home.stream.name)
    platform.repair(home.stream.name)
    assert wrong_rows(platform, home.stream.name) == []
    return all_rows(platform)


@pytest.mark.parametrize("step", STEPS)
def test_killed_and_replayed_again_ends_with_the_same_rows(
    home: Home, never_killed: dict[str, list[str]], step: str, connect: ConnectServer, tmp_path: Path
) -> None:
    home.put_back()
    with forking(for_other_homes(connect), tmp_path) as forks:
        ended, said = forks.crash(home, step, job="replay")
    assert ended == -signal.SIGKILL, f"it never came to {step!r}: {said}"
    platform, name = home.platform(), home.stream.name
    raw = platform.read(name, RAW_EVENTS)
    assert (raw.count(), raw.where("event_time is not null").count()) == (20, STEPS[step])
    assert len(references(platform, RAW_EVENTS)) == (1 if STEPS[step] else 2), "what was staged is on a branch"
    assert platform.rejected.replay(name).accepted == 20 - STEPS[step]
    assert platform.rejected.replay(name).snapshot_id is None
    platform.repair(name)
    assert all_rows(platform) == never_killed
    assert stale(platform) == []
    assert wrong_rows(platform, name) == []
