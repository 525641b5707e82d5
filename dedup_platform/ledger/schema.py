"""The SQL tables of the ledger and how their database is opened."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import sqlalchemy as sa

from dedup_platform import tables
from dedup_platform.lateness import Cell, rectangles
from dedup_platform.settings import ENV_PREFIX
from dedup_platform.uris import reaching

T = TypeVar("T")

METADATA = sa.MetaData()

_OUR_LOCKS = 0x64656475
"""Tells the platform's advisory locks from those of others in the same Postgres database."""
VALUES_A_STATEMENT = 10_000
"""Databases bound how many values a statement may hold; SQLite's bound is the lowest, 32,766."""


def _table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    # SQLite keeps such a table in the order of its key, so that what is asked for together lies together.
    return sa.Table(name, METADATA, _key("stream", sa.String()), *columns, sqlite_with_rowid=False)


def _key(name: str, kind: sa.types.TypeEngine[Any]) -> sa.Column[Any]:
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def _value(name: str, kind: sa.types.TypeEngine[Any], nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=nullable)


def _cell() -> tuple[sa.Column[Any], ...]:
    return _key("table", sa.String()), _key("partition", sa.Integer()), _key("bucket", sa.Integer())


HEADS = _table(
    "heads",
    _key("table", sa.String()),
    _value("uuid", sa.String()),
    _value("snapshot_id", sa.BigInteger()),
    _value("sequence", sa.BigInteger()),
    _value("receipt", sa.String(), nullable=True),
    _value("complete", sa.Boolean()),
)
CELLS = _table(
    "cells",
    *_cell(),
    _value("rows", sa.BigInteger()),
    _value("files", sa.Integer()),
    _value("bytes", sa.BigInteger()),
    _value("arrival_max", sa.BigInteger(), nullable=True),
)
CHANGES = _table(
    "changes",
    *_cell(),
    _key("sequence", sa.BigInteger()),
    _value("committed_at", sa.BigInteger()),
    _value("rows_added", sa.BigInteger()),
    _value("arrival_min", sa.BigInteger(), nullable=True),
)
"""What the table built from this one has not seen yet; times are microseconds since 1970."""
BUILT = _table(
    "built",
    *_cell(),
    _value("input_sequence", sa.BigInteger()),
    _value("fingerprint", sa.String()),
)
sa.Index("built_by_fingerprint", *BUILT.c["stream", "table", "fingerprint"])
FILES = _table(
    "files",
    _key("path", sa.String()),
    _key("generation", sa.Integer()),
    _value("size", sa.BigInteger(), nullable=True),
    _value("etag", sa.String(), nullable=True),
    _value("records", sa.BigInteger()),
)
ACCEPTED = _table("accepted", _key("path", sa.String()), _key("etag", sa.String()))
LISTINGS = _table("listings", _value("content", sa.Text()))
"""Where the next listing of a bucket may start. No part of the fold, and no fact: lost, all keys are listed again.

It is forgotten with the stream's facts, so that keys are looked at again of which it is no longer known that they were
read.
"""

for _of_files in (FILES, ACCEPTED):
    # Postgres orders no text of more than 2.7 KB, and a path may have 4: there each is found by its hash, and rows are
    # unique because they are written under a lock.
    _of_files.primary_key.ddl_if(dialect="sqlite")
    sa.Index(f"{_of_files.name}_by_path", _of_files.c.path, postgresql_using="hash").ddl_if(dialect="postgresql")

CONSUMER = {source: target for target, source in tables.INPUT_OF.items()}
"""The table that is built from another."""


def open_database(uri: str) -> sa.Engine:
    """The database of this URI, with all tables created; UnreachableError if it cannot be opened."""
    engine = _engine(uri)
    with reaching(f"{ENV_PREFIX}CONTROL_URI"), engine.begin() as connection:
        lock(connection, "")
        METADATA.create_all(connection)
        for table in METADATA.sorted_tables:
            for index in table.indexes:
                # A table that is there already may be older than its index.
                index.create(connection, checkfirst=True)
    return engine


def _engine(uri: str) -> sa.Engine:
    if sa.make_url(uri).get_backend_name() == "sqlite":
        engine = sa.create_engine(uri)
        _serialize(engine)
        return engine
    # Connections may have died since they were used last; deleting by key is one round trip for many keys.
    return sa.create_engine(uri, pool_pre_ping=True, executemany_mode="values_plus_batch")


def lock(connection: sa.Connection, stream: str) -> None:
    """Wait until no other transaction folds this stream, and let none do so before this one ends.

    On SQLite every transaction keeps out all others from its beginning. On Postgres there may be no row to lock yet.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_OUR_LOCKS, sa.func.hashtext(stream))))


def for_reading(engine: sa.Engine) -> sa.Engine:
    """An engine all of whose statements in one transaction see the database as it was at the first of them."""
    if engine.dialect.name == "postgresql":
        return engine.execution_options(isolation_level="REPEATABLE READ")
    return engine


def of(table: sa.Table, stream: str, name: str) -> sa.ColumnElement[bool]:
    """The rows of one table of one stream."""
    return sa.and_(table.c.stream == stream, table.c.table == name)


def in_cells(table: sa.Table, cells: Iterable[Cell]) -> Iterator[sa.ColumnElement[bool]]:
    """Conditions that together choose the rows of these cells, each for one statement that the primary key answers."""
    for partitions, buckets in rectangles(cells):
        for some in _cut(partitions):
            yield sa.and_(table.c.partition.in_(some), table.c.bucket.in_(buckets))


def in_partitions(table: sa.Table, partitions: Iterable[int]) -> Iterator[sa.ColumnElement[bool]]:
    """Conditions that together choose the rows of these partitions, each for one statement."""
    return (table.c.partition.in_(some) for some in _cut(tuple(partitions)))


def in_paths(table: sa.Table, paths: Iterable[str]) -> Iterator[sa.ColumnElement[bool]]:
    """Conditions that together choose the rows of these paths, each for one statement."""
    return (table.c.path.in_(some) for some in _cut(tuple(paths)))


def _cut(values: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    return (values[start : start + VALUES_A_STATEMENT] for start in range(0, len(values), VALUES_A_STATEMENT))


def _serialize(engine: sa.Engine) -> None:
    """Two folds must not read the same head, so the write lock is taken before the first read."""

    @sa.event.listens_for(engine, "connect")
    def _manual(connection: Any, _: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA busy_timeout = 60000")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
