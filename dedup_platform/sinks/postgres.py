"""A table of Postgres as a copy: rows and position in one transaction, which only who opened it last can commit."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple
from io import BytesIO

import polars as pl
import psycopg2
import psycopg2.errors
from psycopg2 import sql
from psycopg2.extensions import connection as Connection, cursor as Cursor

from dedup_platform.errors import RefusedRowsError, SinkError, SinkTakenError
from dedup_platform.sinks import postgres_schema as schema
from dedup_platform.sinks.postgres_schema import AT, GONE, INCOMING, INTO, VERSION, WHY, Names
from dedup_platform.sinks.sink import Batch, Position, Refusal, SinkState, Target, Totals, net
from dedup_platform.stream import PostgresSink
from dedup_platform.tables import SESSIONS

_SECONDS_TO_CONNECT = 10
_SESSION = {
    # Who sleeps in the middle of a transaction, or is cut off, must not keep the next one out for ever.
    "lock_timeout": "60s",
    "idle_in_transaction_session_timeout": "60s",
    "tcp_user_timeout": "60s",
    "TimeZone": "UTC",
}
_TEXT = "%Y-%m-%d %H:%M:%S%.6f+00"
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class PostgresTable:
    """The sink of one table. Platform's own tables stand beside it: positions, refused rows, and retired keys."""

    def __init__(self, target: Target, said: PostgresSink, options: Mapping[str, str]) -> None:
        self._target = target
        self._uri = said.uri
        self._options = dict(options)
        self.names = Names.of(said.table)
        self._connection: Connection | None = None
        self._epoch = 0
        self._is_fresh = False
        """Whether the table had no row, and knew of none that is gone, when it began to be filled."""

    def open(self) -> SinkState:
        with self._transaction() as cursor:
            is_lost = schema.prepare(cursor, self.names, self._target)
            position = self._take_over(cursor)
            if is_lost:
                cursor.execute(schema.FORGET.format(positions=self.names.positions), (self.names.table,))
                position = None
            return SinkState(position, self._refused(cursor))

    def write(self, batch: Batch) -> None:
        with self._transaction() as cursor:
            self._move(cursor, batch)
            if batch.begins:
                self._forget_versions(cursor)
                self._is_fresh = schema.is_fresh(cursor, self.names, self._target)
            written, gone = net(batch.changes, self._target.key)
            if len(written):
                self._upsert(cursor, written, batch.forced)
            if len(gone):
                self._retire(cursor, gone, batch.forced)
            if batch.completes:
                self._remove_leftovers(cursor, batch.after)
                self._retire_before(cursor, batch)
                self._is_fresh = False
            self._note_refusals(cursor, batch)

    def look(self) -> SinkState:
        with self._transaction() as cursor:
            if not schema.are_there(cursor, self.names.needed):
                return SinkState()
            place = (self.names.table, self._target.stream, self._target.table)
            cursor.execute(schema.LOOK.format(positions=self.names.positions), place)
            found = cursor.fetchone()
            if found is None:
                return SinkState()
            feed, version, ordinal, snapshot_id, moved_at, *totals = found
            position = Position(feed, version, ordinal, snapshot_id) if feed else None
            return SinkState(position, self._refused(cursor), Totals(*totals), moved_at)

    def close(self) -> None:
        if self._connection:
            with suppress(psycopg2.Error):
                self._connection.close()
        self._connection, self._is_fresh = None, False

    @contextmanager
    def _transaction(self) -> Iterator[Cursor]:
        try:
            if self._connection is None:
                self._connection = self._connect()
            with self._connection, self._connection.cursor() as cursor:
                yield cursor
        except psycopg2.Error as error:
            if _is_of_rows(error):
                raise RefusedRowsError(_reason(error)) from error
            self.close()
            # A table that somebody changed, or a right that is missing.
            lasting = isinstance(error, psycopg2.ProgrammingError)
            raise SinkError(self._target.stream, self._target.sink, _reason(error), lasting) from error

    def _connect(self) -> Connection:
        settings = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
        common = {"connect_timeout": _SECONDS_TO_CONNECT, "application_name": "dedup_platform", "options": settings}
        # What is copied is UTF-8, whatever the database holds or the environment says.
        return psycopg2.connect(self._uri, **(common | self._options | {"client_encoding": "UTF8"}))

    def _take_over(self, cursor: Cursor) -> Position | None:
        target = self._target
        values = (self.names.table, target.stream, target.sink, target.table)
        cursor.execute(schema.TAKE_OVER.format(positions=self.names.positions), values)
        [(stream, table, self._epoch, feed, *place)] = cursor.fetchall()
        if (stream, table) != (target.stream, target.table):
            raise SinkError(
                target.stream,
                target.sink,
                f"{self.names.table} is a copy of {stream}.{table}; name another table, or drop it and its row of "
                f"{self.names.said(self.names.positions)}",
                lasting=True,
            )
        return Position(feed, *place) if feed else None

    def _refused(self, cursor: Cursor) -> dict[str, Refusal]:
        cursor.execute(schema.REFUSED.format(refused=self.names.refused), (self.names.table,))
        return {key: Refusal(key, *others) for key, *others in cursor.fetchall()}

    def _move(self, cursor: Cursor, batch: Batch) -> None:
        """Set the position, if this sink is at the one before and nobody else has opened it; else write nothing."""
        before, after = batch.before, batch.after
        old = (before.feed, before.version, before.ordinal, before.snapshot_id) if before else (None,) * 4
        new = (after.feed, after.version, after.ordinal, after.snapshot_id)
        place = (*new, *astuple(Totals().after(batch)), self.names.table, self._epoch, *old)
        cursor.execute(schema.MOVE.format(positions=self.names.positions), place)
        if cursor.rowcount != 1:
            raise SinkTakenError(self._target.stream, self._target.sink)

    def _forget_versions(self, cursor: Cursor) -> None:
        """What is there may be of any age, of another feed even: whatever comes now is newer."""
        for table in (self.names.rows, self.names.retired):
            statement = sql.SQL("UPDATE {} SET {version} = 0 WHERE {version} <> 0")
            cursor.execute(statement.format(table, version=sql.Identifier(VERSION)))

    def _upsert(self, cursor: Cursor, rows: pl.DataFrame, forced: bool) -> None:
        columns = [*(column.name for column in self._target.columns), VERSION]
        if self._is_fresh and not forced and self._fill(cursor, rows, columns):
            return
        cursor.execute(schema.temporary(INCOMING, self._target, columns))
        self._copy(cursor, sql.Identifier(INCOMING), rows, columns)
        into, out_of_retired = schema.upsert(self.names, self._target, columns, forced)
        cursor.execute(into)
        if known := len(rows) - cursor.rowcount:
            cursor.execute(schema.KNEW.format(positions=self.names.positions), (known, self.names.table))
        cursor.execute(out_of_retired)

    def _retire(self, cursor: Cursor, rows: pl.DataFrame, forced: bool) -> None:
        into = _told(rows, "merged_into") if self._target.table == SESSIONS else pl.lit(None, pl.String)
        told = {INTO: into, WHY: _told(rows, "reason"), AT: pl.col("_commit_timestamp")}
        columns = [*self._target.key, *told, VERSION]
        cursor.execute(schema.temporary(GONE, self._target, columns))
        self._copy(cursor, sql.Identifier(GONE), rows.select(*self._target.key, VERSION, **told), columns)
        for statement in schema.retire(self.names, self._target, forced):
            cursor.execute(statement)

    def _retire_before(self, cursor: Cursor, batch: Batch) -> None:
        for rows in batch.retired():
            self._retire(cursor, rows, forced=False)
        cursor.execute(schema.revive(self.names, self._target))

    def _fill(self, cursor: Cursor, rows: pl.DataFrame, columns: Sequence[str]) -> bool:
        """Copy rows into the table itself; False, and nothing is written, if that needs more care."""
        cursor.execute("SAVEPOINT filling")
        try:
            self._copy(cursor, self.names.rows, rows, columns)
        except psycopg2.Error as error:
            cursor.execute("ROLLBACK TO SAVEPOINT filling")
            # A row that Postgres does not take is no reason to take more care of the others. One that is there is: it
            # is somebody else's. So is a table that is none, or that policies guard.
            self._is_fresh = _is_of_rows(error) and not isinstance(error, psycopg2.errors.UniqueViolation)
            return False
        return True

    def _copy(self, cursor: Cursor, into: sql.Identifier, rows: pl.DataFrame, columns: Sequence[str]) -> None:
        target = sql.SQL("COPY {} ({}) FROM STDIN").format(into, schema.listed(columns))
        cursor.copy_expert(target, as_text(rows.select(columns)), 2**20)

    def _remove_leftovers(self, cursor: Cursor, after: Position) -> None:
        statement = sql.SQL("DELETE FROM {} WHERE {} < %s").format(self.names.rows, sql.Identifier(VERSION))
        try:
            cursor.execute(statement, (after.version,))
        except psycopg2.IntegrityError as error:
            reason = f"rows that are in {self.names.table} no more cannot be removed: {_reason(error)}"
            raise SinkError(self._target.stream, self._target.sink, reason, lasting=True) from error

    def _note_refusals(self, cursor: Cursor, batch: Batch) -> None:
        for each in batch.refused:
            values = (self.names.table, each.key, each.version, each.ordinal, each.reason)
            cursor.execute(schema.REFUSE.format(refused=self.names.refused), values)
        if batch.healed:
            cursor.execute(schema.HEAL.format(refused=self.names.refused), (self.names.table, list(batch.healed)))


def _told(rows: pl.DataFrame, name: str) -> pl.Expr:
    """What a feed tells of changes, if it does. The table may have a column of that name: then ours has another."""
    there = [each for each in (name, f"_{name}") if each in rows.columns][-1:]
    return pl.col(there[0]) if there else pl.lit(None, pl.String)


def as_text(rows: pl.DataFrame) -> BytesIO:
    """Rows as COPY reads them. Its csv would end at a line `\\.` inside of a text."""
    texts = pl.col(pl.String).str.replace_many(list(_ESCAPES), list(_ESCAPES.values()))
    found = BytesIO()
    rows.with_columns(texts).write_csv(
        found,
        include_header=False,
        separator="\t",
        quote_style="never",
        null_value="\\N",
        datetime_format=_TEXT,
    )
    found.seek(0)
    return found


def _is_of_rows(error: psycopg2.Error) -> bool:
    """Whether it is some row that Postgres does not take: data, constraints, views' checks, limits and triggers."""
    code = error.pgcode or ""
    return code[:2] in ("22", "23", "44", "54") or code == "P0001"


def _reason(error: psycopg2.Error) -> str:
    """What Postgres says, without the values of rows (`DETAIL`) and without what we sent."""
    if isinstance(error, psycopg2.InterfaceError) and isinstance(error.__context__, psycopg2.Error):
        # The transaction could not be taken back, since its connection had ended: for this reason.
        error = error.__context__
    said = error.diag.message_primary if error.diag else None
    return str(said or str(error).strip().partition("\n")[0] or type(error).__name__)
