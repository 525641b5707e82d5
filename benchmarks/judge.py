"""One judge for all: checksums over the files of a result that do not depend on the order of rows, by DuckDB."""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from benchmarks.contender import Output

# No arrival time: some contenders keep any copy of an event, and copies differ in nothing else.
WITHOUT_DETAILS = "entity_id, event_id, epoch_us(event_time), page, amount::DECIMAL(12, 2)"
_EVENTS = f"{WITHOUT_DETAILS}, details"
_SESSIONS = (
    "entity_id, epoch_us(started_at), epoch_us(ended_at), event_count::BIGINT, revenue::DECIMAL(38, 2), pages::BIGINT"
)


class DisagreementError(Exception):
    """A contender's result is not that of the others."""


@dataclass(frozen=True)
class Verdict:
    """Rows and checksum of the events and of the sessions."""

    events: tuple[int, int]
    sessions: tuple[int, int]


class Judge:
    """Remembers the first result and holds every other against it."""

    def __init__(self, events: int | None = None, columns: str = _EVENTS) -> None:
        self._expected_events = events
        self._columns = columns
        self._first: tuple[str, Verdict] | None = None

    def judge(self, name: str, output: Output) -> Verdict:
        """Raises DisagreementError unless this result is equal to those before."""
        found = verdict(output, self._columns)
        if self._expected_events not in (None, found.events[0]):
            raise DisagreementError(f"{name} has {found.events[0]:,} events of {self._expected_events:,}")
        if self._first is None:
            self._first = (name, found)
        other, expected = self._first
        for what in ("events", "sessions"):
            (rows, checksum), (right_rows, right_checksum) = getattr(found, what), getattr(expected, what)
            if rows != right_rows:
                raise DisagreementError(f"{name} has {rows:,} {what}, {other} has {right_rows:,}")
            if checksum != right_checksum:
                raise DisagreementError(f"{name} has other {what} than {other}, though as many ({rows:,})")
        return found


def verdict(output: Output, columns: str = _EVENTS) -> Verdict:
    """Rows and checksums of one result, of events by these columns."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return Verdict(_sum(connection, output.events, columns), _sum(connection, output.sessions, _SESSIONS))


def _sum(connection: duckdb.DuckDBPyConnection, files: Sequence[str], columns: str) -> tuple[int, int]:
    if not files:
        return 0, 0
    # A sum, as equal rows would cancel in an exclusive or.
    query = f"SELECT count(*), coalesce(sum(hash({columns})), 0)::HUGEINT FROM read_parquet(?)"
    row = connection.execute(query, [list(files)]).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])
