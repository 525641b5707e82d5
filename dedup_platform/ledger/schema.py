"""The SQL tables of the ledger and how their database is opened."""

from typing import Any

import sqlalchemy as sa

from dedup_platform import tables

METADATA = sa.MetaData()


def _table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    return sa.Table(name, METADATA, _key("stream", sa.String(200)), *columns)


def _key(name: str, kind: sa.types.TypeEngine[Any]) -> sa.Column[Any]:
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def _value(name: str, kind: sa.types.TypeEngine[Any], nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=nullable)


def _cell() -> tuple[sa.Column[Any], ...]:
    return _key("table", sa.String(50)), _key("partition", sa.Integer()), _key("bucket", sa.Integer())


HEADS = _table(
    "heads",
    _key("table", sa.String(50)),
    _value("uuid", sa.String(36)),
    _value("snapshot_id", sa.BigInteger()),
    _value("sequence", sa.BigInteger()),
    _value("receipt", sa.String(50), nullable=True),
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
    _value("fingerprint", sa.String(64)),
)
FILES = _table(
    "files",
    _key("path", sa.String(4000)),
    _key("generation", sa.Integer()),
    _value("size", sa.BigInteger(), nullable=True),
    _value("etag", sa.String(200), nullable=True),
    _value("records", sa.BigInteger()),
)
ACCEPTED = _table("accepted", _key("path", sa.String(4000)), _key("etag", sa.String(200)))

CONSUMER = {source: target for target, source in tables.INPUT_OF.items()}
"""The table that is built from another."""


def open_database(uri: str) -> sa.Engine:
    """The database of this URI, with all tables created."""
    engine = sa.create_engine(uri)
    if engine.dialect.name == "sqlite":
        _serialize(engine)
    with engine.begin() as connection:
        METADATA.create_all(connection)
    return engine


def of(table: sa.Table, stream: str, name: str) -> sa.ColumnElement[bool]:
    """The rows of one table of one stream."""
    return sa.and_(table.c.stream == stream, table.c.table == name)


def _serialize(engine: sa.Engine) -> None:
    """Two folds must not read the same head, so the write lock is taken before the first read."""

    @sa.event.listens_for(engine, "connect")
    def _manual(connection: Any, _: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA busy_timeout = 60000")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
