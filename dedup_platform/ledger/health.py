"""Where the state of each stream's ingest, and of each of its sinks, is kept: no part of the fold of the facts.

It is what lately happened, and follows from no table: who deletes it loses nothing but the pauses between tries.
"""

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime

import sqlalchemy as sa

from dedup_platform.ledger.database import for_reading, lock
from dedup_platform.ledger.facts import micros, moment
from dedup_platform.planning.circuit_breaker import NORMAL, Circuit

_METADATA = sa.MetaData()
_TIMES = ("since", "next_try")
HEALTH = sa.Table(
    "health",
    _METADATA,
    sa.Column("stream", sa.String(200), primary_key=True),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("reason", sa.Text(), nullable=False),
    sa.Column("attempts", sa.Integer(), nullable=False),
    sa.Column("opened", sa.Integer(), nullable=False),
    *(sa.Column(name, sa.BigInteger(), nullable=True) for name in _TIMES),
    sa.Column("evidence", sa.Text(), nullable=False),
    sa.Column("batch", sa.Text(), nullable=True),
)


class Health:
    """One row for each ingest that is not normal, by its stream's name, and for each such sink, by `stream/sink`."""

    def __init__(self, engine: Callable[[], sa.Engine]) -> None:
        self._engine = engine

    def of(self, stream: str) -> Circuit:
        """The state of a stream's ingest."""
        with for_reading(self._engine()).connect() as connection:
            return _read(connection, stream)

    def change(self, stream: str, step: Callable[[Circuit], Circuit]) -> Circuit:
        """Put what `step` makes of the state in its place; nobody else changes it meanwhile."""
        before = self.of(stream)
        if step(before) == before:
            # Nothing to write is the rule, and no reason to wait for whoever writes.
            return before
        with self._engine().begin() as connection:
            lock(connection, "")
            _METADATA.create_all(connection)
            lock(connection, stream)
            before = _read(connection, stream)
            after = step(before)
            if after != before:
                connection.execute(sa.delete(HEALTH).where(HEALTH.c.stream == stream))
                if after != NORMAL:
                    times = {name: micros(getattr(after, name)) for name in _TIMES}
                    connection.execute(sa.insert(HEALTH).values(stream=stream, **{**asdict(after), **times}))
            return after

    def forget(self, stream: str) -> None:
        """Let a stream's ingest and all its sinks be normal."""
        with self._engine().begin() as connection:
            lock(connection, "")
            _METADATA.create_all(connection)
            of_sinks = HEALTH.c.stream.startswith(f"{stream}/", autoescape=True)
            connection.execute(sa.delete(HEALTH).where((HEALTH.c.stream == stream) | of_sinks))


def _read(connection: sa.Connection, stream: str) -> Circuit:
    # There is none before the first failure, and somebody may have dropped it since.
    if not sa.inspect(connection).has_table(HEALTH.name):
        return NORMAL
    query = sa.select(*(column for column in HEALTH.c if column.name != "stream")).where(HEALTH.c.stream == stream)
    row = connection.execute(query).mappings().one_or_none()
    if row is None:
        return NORMAL
    times: dict[str, datetime | None] = {name: moment(row[name]) for name in _TIMES}
    return Circuit(**{**row, **times})
