"""A run that is killed with SIGKILL at any step and started again ends with the rows of one that was never killed."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import pytest
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.spark.connect_server import ConnectServer
from dedup_platform.tables import DEDUPLICATED_EVENTS, RAW_EVENTS, SESSIONS
from dedup_platform.testing import HeldClock, Rules, histories, make_stream, temporary_platform, write_batch
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.conftest import for_other_homes
from dedup_platform_tests.crashes.child import BUCKETS
from dedup_platform_tests.crashes.crash import Forks, crash, forking
from dedup_platform_tests.homes import Home, all_rows, references, stale

SECONDS_TO_FINISH = 5
"""For a process that was held in the middle of its work, and has nothing left to do but that."""
THOROUGH = pytest.mark.thorough
FIRST_RUN = (f"before the first snapshot of {RAW_EVENTS}", f"after creating {RAW_EVENTS}")
"""Steps that only a stream's first run takes: these crash in an empty home."""

AMID_FILES = {f"amid the files of {table}": table for table in (RAW_EVENTS, DEDUPLICATED_EVENTS)}
STEPS = (
    *FIRST_RUN,
    *AMID_FILES,
    f"before the receipt of {RAW_EVENTS}",
    *(f"{side} publishing {table}" for table in tables.ALL for side in ("before", "after")),
    *(f"{side} {table}" for table in AMID_FILES.values() for side in ("amid the fold of", "after folding")),
)
WITH_A_SPARK_OF_ITS_OWN = (f"amid the files of {DEDUPLICATED_EVENTS}", f"after publishing {tables.DUPLICATE_EVENTS}")
"""Steps at which a whole Spark is killed with the run; elsewhere it is a server's, which goes on."""
QUICK = (
    f"after creating {RAW_EVENTS}",
    f"amid the files of {DEDUPLICATED_EVENTS}",
    f"before the receipt of {RAW_EVENTS}",
    f"after publishing {tables.DUPLICATE_EVENTS}",
    f"before publishing {SESSIONS}",
    f"amid the fold of {RAW_EVENTS}",
)
"""Steps at which a run is killed where time is short: one of each kind."""


@dataclass(frozen=True)
class Outcome:
    """What a crash left, and what the next run made of it."""

    ended: int
    said: str
    left: dict[str, dict[str, int]]
    """Table -> `main` or a staged branch -> snapshot."""
    rows: dict[str, list[str]]
    stale: list[object]


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> "SimpleQueue[Home]":
    """Two homes in which the first batch was taken in; the second one waits. Whoever takes one gives it back."""
    folder = tmp_path_factory.mktemp("crashes")
    stream = make_stream(folder, buckets=2, timeout="2h")
    history = histories(3, 40, Rules.of(stream), stream.partitions.start, batches=2)
    write_batch(stream, history.batches[0])
    free: SimpleQueue[Home] = SimpleQueue()
    for name in ("one", "two"):
        home = Home(folder / name, stream, spark, HeldClock(history.now))
        home.run()
        home.keep()
        free.put(home)
    write_batch(stream, history.batches[1])
    return free


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory, connect: ConnectServer) -> "Iterator[SimpleQueue[Forks]]":
    """One for each home."""
    free: SimpleQueue[Forks] = SimpleQueue()
    with ExitStack() as stack:
        for name in ("one", "two"):
            free.put(stack.enter_context(forking(for_other_homes(connect), tmp_path_factory.mktemp(name))))
        yield free


@pytest.fixture(scope="module")
def never_killed(homes: "SimpleQueue[Home]") -> dict[str, list[str]]:
    """The rows of a run that was never killed."""
    home = homes.get()
    platform = home.run()
    rows = all_rows(platform)
    assert wrong_rows(platform, home.stream.name) == []
    homes.put(home)
    return rows


@pytest.fixture(scope="module")
def outcomes(
    homes: "SimpleQueue[Home]", forks: "SimpleQueue[Forks]", request: pytest.FixtureRequest
) -> Iterator[dict[str, Future[Outcome]]]:
    """Every chosen step's crash, two at a time."""
    request.getfixturevalue("never_killed")  # it needs a home too, and has to wait for none now
    chosen = [item.callspec.params.get("step") for item in request.session.items if hasattr(item, "callspec")]
    with ThreadPoolExecutor(max_workers=homes.qsize()) as executor:
        yield {step: executor.submit(crash_and_run_again, homes, forks, step) for step in STEPS if step in chosen}
        executor.shutdown(cancel_futures=True)


def crash_and_run_again(homes: "SimpleQueue[Home]", forks: "SimpleQueue[Forks]", step: str) -> Outcome:
    home, fork = homes.get(), forks.get()
    try:
        home.clear() if step in FIRST_RUN else home.put_back()
        ended, said = crash(home, step) if step in WITH_A_SPARK_OF_ITS_OWN else fork.crash(home, step)
        left = {table: references(home.platform(), table) for table in tables.ALL}
        platform = home.run()
        return Outcome(ended, said, left, all_rows(platform), stale(platform))
    finally:
        homes.put(home)
        forks.put(fork)


@pytest.mark.parametrize("step", [each if each in QUICK else pytest.param(each, marks=THOROUGH) for each in STEPS])
def test_killed_and_started_again_ends_with_the_same_rows(
    step: str, outcomes: dict[str, Future[Outcome]], never_killed: dict[str, list[str]]
) -> None:
    outcome = outcomes[step].result()
    assert outcome.ended == -signal.SIGKILL, f"it never came to {step!r}: {outcome.said}"
    if step in AMID_FILES:
        # Tasks write before there is a branch to name what they wrote.
        assert outcome.left[AMID_FILES[step]].keys() == {"main"}, "nothing should be committed yet"
    assert outcome.rows == never_killed
    assert outcome.stale == []


def test_a_dead_writers_java_process_that_wakes_up_after_newer_commits_changes_nothing(
    homes: "SimpleQueue[Home]", never_killed: dict[str, list[str]]
) -> None:
    home = homes.get()
    home.put_back()
    ended, said = crash(home, f"amid the files of {RAW_EVENTS}", victim="python")
    assert ended == -signal.SIGKILL, said
    platform = home.run()
    before = {table: references(platform, table) for table in tables.ALL}
    assert all_rows(platform) == never_killed

    wake(home.path / "java.pid")
    time.sleep(SECONDS_TO_FINISH)
    (home.path / "java.pid").unlink()

    assert {table: references(platform, table) for table in tables.ALL} == before
    platform = home.run()
    assert all_rows(platform) == never_killed
    homes.put(home)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(f"after copying {SESSIONS}", marks=THOROUGH),
        f"after swapping {RAW_EVENTS}",
        pytest.param(f"after swapping {DEDUPLICATED_EVENTS}", marks=THOROUGH),
    ],
)
def test_a_change_of_buckets_that_was_killed_is_finished_by_the_next(
    homes: "SimpleQueue[Home]", forks: "SimpleQueue[Forks]", never_killed: dict[str, list[str]], step: str
) -> None:
    home, fork = homes.get(), forks.get()
    home.put_back()
    ended, said = fork.crash(home, step, job="buckets")
    forks.put(fork)
    assert ended == -signal.SIGKILL, said
    assert all_rows(home.platform()) == never_killed
    changed = home.stream.model_copy(update={"buckets": 0})
    platform = temporary_platform(home.path, changed, home.spark, home.clock, in_process=True)
    platform.change_buckets(changed.name, BUCKETS)
    assert platform.lake.buckets(changed) == BUCKETS
    assert all_rows(platform) == never_killed
    assert stale(platform) == []
    homes.put(home)


def wake(process: Path) -> None:
    os.kill(int(process.read_text()), signal.SIGCONT)
