"""The SQL tables of the ledger, and conditions that their keys answer."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import sqlalchemy as sa

from dedup_platform import tables
from dedup_platform.planning.cells import Cell, rectangles

T = TypeVar("T")

METADATA = sa.MetaData()
VERSION = 6
"""Goes up with every change of these tables: a database of another version is not read, but made anew from the lake."""

LOST = "lost"
"""In place of a fingerprint, where it is unknown how a cell was built: it equals none, so the cell is stale. It was
built from nothing newer than the input of its `input_sequence`. With a colon and a fingerprint behind it: a foreign
writer changed what was built under that one."""
_AFTER_LOST = "losu"
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
    _value("disturbed", sa.Boolean()),
)
"""What the table built from this one has not seen yet; times are microseconds since 1970."""
BUILT = _table(
    "built",
    *_cell(),
    _value("input_sequence", sa.BigInteger()),
    _value("fingerprint", sa.String()),
)
sa.Index("built_by_fingerprint", *BUILT.c["stream", "table", "fingerprint"])
UNTOLD = _table(
    "untold",
    *_cell(),
    _value("sequence", sa.BigInteger()),
    _value("committed_at", sa.BigInteger()),
    _value("disturbed", sa.Boolean()),
)
"""The newest change of cells where it cannot be derived from the live data files: of emptied cells, and of disturbed
cells of raw."""
FILES = _table(
    "files",
    _key("path", sa.String()),
    _key("generation", sa.Integer()),
    _value("size", sa.BigInteger(), nullable=True),
    _value("etag", sa.String(), nullable=True),
    _value("records", sa.BigInteger()),
    _value("skipped", sa.Boolean()),
)
ACCEPTED = _table(
    "accepted",
    _key("path", sa.String()),
    _key("etag", sa.String()),
    _key("generation", sa.Integer()),
)
FIGURES = _table(
    "figures",
    *_cell(),
    _value("conflicts", sa.BigInteger()),
    _value("longest", sa.BigInteger()),
    _value("late", sa.Text(), nullable=True),
    _value("grace", sa.BigInteger()),
)
"""What whoever wrote or read a cell's rows counted of them (`planning.figures`). Lost, the rows are read again.

The fold forgets those of a cell whose rows change. `late` tells late events by their seconds, as JSON, and is null
where there are none; `longest`, and the `grace` by which they are late, are in microseconds.
"""
LISTINGS = _table("listings", _value("content", sa.Text()))
"""Where the next listing of an S3 bucket may start. No part of the fold, and no fact: lost, all keys are listed again.

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


def is_lost(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """Cells of which it is not known how they are built, in a form that the index by fingerprint answers."""
    # Whatever the order of a database takes a colon for. Fingerprints are hexadecimal, so none lies between.
    return sa.and_(table.c.fingerprint >= LOST, table.c.fingerprint < _AFTER_LOST)


def of(table: sa.FromClause, stream: str, name: str) -> sa.ColumnElement[bool]:
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
