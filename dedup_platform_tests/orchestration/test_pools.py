"""Steps that wait for a pool, and what Dagster forgets about them."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event, Timer

import dagster as dg
import pytest
from dagster import DagsterInstance
from sqlalchemy.exc import OperationalError

from dedup_platform.orchestration import pools
from dedup_platform.orchestration.embedded import open_instance
from dedup_platform.settings import Settings

POOL = "a.table"


@dg.op(pool=POOL)
def step() -> None: ...


@dg.job(executor_def=dg.in_process_executor)
def job() -> None:
    step()


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DagsterInstance]:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with open_instance(Settings(home=tmp_path)) as opened:
        yield opened


def queue_unseen(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for the pool from now on finds its slot taken, and it is given back before he says that he waits."""
    slots = instance.event_log_storage
    slots.initialize_concurrency_limit_to_default(POOL)
    monkeypatch.setattr(type(slots), "has_unassigned_slots", lambda *_: False)


def claim(instance: DagsterInstance, run: dg.DagsterRun) -> bool:
    return instance.event_log_storage.claim_concurrency_slot(POOL, run.run_id, "step").is_claimed


def test_a_step_that_began_to_wait_when_the_slot_was_given_back_gets_it(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue_unseen(instance, monkeypatch)
    run = instance.create_run_for_job(job)
    assert not claim(instance, run)
    assert not claim(instance, run), "Dagster finds it by itself now: this module is needed no longer"
    pools.free_slots(instance)
    assert claim(instance, run)


def test_one_slot_goes_to_one_of_those_who_wait(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    queue_unseen(instance, monkeypatch)
    first, second = (instance.create_run_for_job(job) for _ in range(2))
    assert not claim(instance, first)
    assert not claim(instance, second)
    for _ in range(3):
        pools.free_slots(instance)
    # Which of them is Dagster's to say: it knows only the second in which each began to wait.
    winners, losers = ([run for run in (first, second) if claim(instance, run) is claimed] for claimed in (True, False))
    assert [len(winners), len(losers)] == [1, 1]
    instance.report_run_failed(winners[0])
    pools.free_slots(instance)
    assert claim(instance, losers[0])


def test_a_run_without_a_daemon_does_not_wait_for_ever(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue_unseen(instance, monkeypatch)
    gave_up = Event()

    def open_pool() -> None:
        gave_up.set()
        instance.event_log_storage.delete_concurrency_limit(POOL)

    # The run has this thread for itself: what else would end it?
    rescue = Timer(30, open_pool)
    rescue.start()
    with pools.looked_after(instance, seconds=0.2):
        assert job.execute_in_process(instance=instance).success
    rescue.cancel()
    assert not gave_up.is_set()
    assert pools.busy_pools(instance, [POOL]) == []


def test_what_is_locked_is_looked_at_again(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    again = Event()

    def look(at: DagsterInstance) -> None:
        looks.append(at)
        if len(looks) == 1:
            raise OperationalError("SELECT 1", {}, Exception("database is locked"))
        again.set()

    monkeypatch.setattr(pools, "free_slots", look)
    with pools.looked_after(instance, seconds=0.01):
        assert again.wait(10)
    assert set(looks) == {instance}
