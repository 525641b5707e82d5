"""A sink of one's own, as somebody might write it: a table in a file of SQLite, each row as JSON."""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import astuple
from typing import Any

from dedup_platform.errors import RefusedRowsError, SinkTakenError
from dedup_platform.sinks import Batch, Position, Refusal, SinkState, Target
from dedup_platform.sinks.sink import net

_TABLES = """
    CREATE TABLE IF NOT EXISTS copies (key TEXT PRIMARY KEY, version INTEGER, row TEXT);
    CREATE TABLE IF NOT EXISTS state (epoch INTEGER, position TEXT);
    CREATE TABLE IF NOT EXISTS refused (key TEXT PRIMARY KEY, version INTEGER, ordinal INTEGER, reason TEXT);
"""


class SqliteTable:
    """One file for each sink."""

    def __init__(self, target: Target, options: Mapping[str, str]) -> None:
        self._target = target
        self._poison = options.get("poison")
        self._database = sqlite3.connect(options["file"], isolation_level=None, timeout=60)

    def open(self) -> SinkState:
        self._database.executescript(_TABLES)
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            if not self._database.execute("SELECT 1 FROM state").fetchone():
                self._database.execute("INSERT INTO state VALUES (0, NULL)")
            self._database.execute("UPDATE state SET epoch = epoch + 1")
            [(self._epoch, told)] = self._database.execute("SELECT epoch, position FROM state")
        refused = {row[0]: Refusal(*row) for row in self._database.execute("SELECT * FROM refused")}
        return SinkState(Position(*json.loads(told)) if told else None, refused)

    def write(self, batch: Batch) -> None:
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            place = (_told(batch.after), self._epoch, _told(batch.before))
            moved = self._database.execute("UPDATE state SET position = ? WHERE epoch = ? AND position IS ?", place)
            if moved.rowcount != 1:
                raise SinkTakenError(self._target.stream, self._target.sink)
            if batch.begins:
                self._database.execute("UPDATE copies SET version = 0")
            written, gone = net(batch.changes, self._target.key)
            for row in written.iter_rows(named=True):
                if self._poison and self._poison in row.values():
                    raise RefusedRowsError(f"{self._poison} is poison")
                values = {column.name: row[column.name] for column in self._target.columns}
                stored = (self._key(row), row["_commit_version"], json.dumps(values, default=str))
                self._database.execute("REPLACE INTO copies VALUES (?, ?, ?)", stored)
            keys = [(self._key(row),) for row in gone.iter_rows(named=True)]
            self._database.executemany("DELETE FROM copies WHERE key = ?", keys)
            if batch.completes:
                self._database.execute("DELETE FROM copies WHERE version < ?", (batch.after.version,))
            refused = [(each.key, each.version, each.ordinal, each.reason) for each in batch.refused]
            self._database.executemany("REPLACE INTO refused VALUES (?, ?, ?, ?)", refused)
            self._database.executemany("DELETE FROM refused WHERE key = ?", [(key,) for key in batch.healed])

    def look(self) -> SinkState:
        self._database.executescript(_TABLES)
        refused = {row[0]: Refusal(*row) for row in self._database.execute("SELECT * FROM refused")}
        [(told,)] = self._database.execute("SELECT position FROM state").fetchall() or [(None,)]
        return SinkState(Position(*json.loads(told)) if told else None, refused)

    def close(self) -> None:
        self._database.close()

    def _key(self, row: Mapping[str, Any]) -> str:
        return json.dumps([row[name] for name in self._target.key])


def open_table(target: Target, options: Mapping[str, str]) -> SqliteTable:
    """What a stream file names as its `factory`; `options.file` is the file's path."""
    return SqliteTable(target, options)


def copies(file: str) -> list[dict[str, Any]]:
    """The rows of a file."""
    with closing(sqlite3.connect(file)) as database:
        return [json.loads(row) for (row,) in database.execute("SELECT row FROM copies ORDER BY key")]


def position(file: str) -> Position | None:
    """How far a file has come; None before it got anything."""
    with closing(sqlite3.connect(file)) as database:
        [(told,)] = database.execute("SELECT position FROM state").fetchall() or [(None,)]
    return Position(*json.loads(told)) if told else None


def _told(position: Position | None) -> str | None:
    return json.dumps(astuple(position)) if position else None
