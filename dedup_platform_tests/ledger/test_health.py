"""The state of ingests in the control database: kept between processes, apart from the fold, and free to be deleted."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Thread

import sqlalchemy as sa

from dedup_platform.ledger import Health
from dedup_platform.ledger.health import HEALTH
from dedup_platform.ledger.schema import METADATA
from dedup_platform.planning.circuit_breaker import NORMAL, Circuit

NOON = datetime(2026, 1, 5, 12, 0, 0, 123456, tzinfo=UTC)
OPEN = Circuit(
    state="open",
    reason="no answer",
    attempts=3,
    opened=1,
    since=NOON,
    next_try=NOON + timedelta(minutes=5),
    evidence="1",
    batch=None,
)


def test_a_stream_that_nothing_is_known_of_is_normal(engine: sa.Engine) -> None:
    assert Health(lambda: engine).of("clicks") == NORMAL


def test_every_part_of_a_state_is_kept_and_each_stream_has_its_own(engine: sa.Engine) -> None:
    health = Health(lambda: engine)
    held = replace(OPEN, state="failing", next_try=None, batch='[{"path": "a"}]')
    for stream, state in (("clicks", OPEN), ("visits", held)):
        assert health.change(stream, lambda _, state=state: state) == state  # type: ignore[misc]
    assert (health.of("clicks"), health.of("visits")) == (OPEN, held)
    health.change("clicks", lambda _: NORMAL)
    assert (health.of("clicks"), health.of("visits")) == (NORMAL, held)


def test_a_table_that_was_dropped_means_normal(engine: sa.Engine) -> None:
    health = Health(lambda: engine)
    health.change("clicks", lambda _: OPEN)
    HEALTH.drop(engine)
    assert health.of("clicks") == NORMAL
    assert health.change("clicks", lambda _: OPEN) == OPEN


def test_no_failure_of_several_processes_is_lost(engine: sa.Engine) -> None:
    health = Health(lambda: engine)
    health.change("clicks", lambda _: OPEN)

    def fail() -> None:
        for _ in range(10):
            health.change("clicks", lambda before: replace(before, attempts=before.attempts + 1))

    threads = [Thread(target=fail) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert health.of("clicks").attempts == 3 + 40


def test_the_fold_knows_nothing_of_it() -> None:
    assert HEALTH.name not in METADATA.tables
