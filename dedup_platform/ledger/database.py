"""How the control database is opened and locked. What is no ledger of this version is put aside and made anew.

Nothing is lost by it: the next fold reads everything from the lake again.
"""

import fcntl
import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dedup_platform.errors import LockedError
from dedup_platform.ledger.schema import METADATA, VERSION
from dedup_platform.settings import ENV_PREFIX, make_private
from dedup_platform.uris import reaching

_LOG = logging.getLogger(__name__)

_OUR_LOCKS = 0x64656475
"""Tells the platform's advisory locks from those of others in the same Postgres database."""
BUSY_SECONDS = 60.0
"""So long whoever finds a SQLite file locked waits. Nobody locks it for longer than it takes to write what was read."""
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_BESIDE = ("-journal", "-wal", "-shm")
"""What SQLite keeps beside a database and would take for a part of whatever has its name."""

_READING = "dedup_platform_reading"

_VERSIONS = sa.MetaData()
_LEDGER = sa.Table("ledger", _VERSIONS, sa.Column("version", sa.Integer(), primary_key=True))


def open_database(uri: str) -> sa.Engine:
    """The database of this URI, with all tables of this version; UnreachableError if it cannot be opened.

    Nothing is written, and nobody waited for, if it is as it should be.
    """
    engine = _engine(uri)
    with reaching(f"{ENV_PREFIX}CONTROL_URI"):
        if not _is_ready(engine):
            _make_ready(engine)
    return engine


def identity(engine: sa.Engine) -> tuple[int, int] | None:
    """What tells a SQLite file from another of the same name; None in Postgres, and where there is no file."""
    if engine.dialect.name != "sqlite":
        return None
    try:
        found = Path(str(engine.url.database)).stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def is_damaged(error: sa.exc.DBAPIError) -> bool:
    """Whether the error says that a SQLite file is no database, or not a whole one."""
    return _code(error.orig) in _DAMAGED


def _code(error: BaseException | None) -> int:
    """What went wrong, to SQLite; the higher bytes are details. 0 for the errors of others."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def put_aside(engine: sa.Engine, found: tuple[int, int] | None) -> None:
    """Let the next who opens the database start anew, unless another process did so: it is not `found` any more."""
    with _alone_in(Path(str(engine.url.database)).parent):
        if identity(engine) == found:
            _put_aside(engine)


def _put_aside(engine: sa.Engine) -> None:
    """Give the SQLite file, and what SQLite keeps beside it, another name."""
    file = Path(str(engine.url.database))
    engine.dispose()
    aside = file.with_name(f"{file.name}.aside-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
    _LOG.warning("%s is damaged or of another version: put aside as %s, and rebuilt from the tables", file, aside.name)
    # The file itself last: until then it is found as it was by whoever looks next.
    for suffix in (*_BESIDE, ""):
        if (part := Path(f"{file}{suffix}")).exists():
            part.rename(f"{aside}{suffix}")


def _is_ready(engine: sa.Engine) -> bool:
    try:
        with for_reading(engine).connect() as connection:
            return _is_of_this_version(connection)
    except sa.exc.DBAPIError as error:
        if is_damaged(error):
            return False
        raise


def _is_of_this_version(connection: sa.Connection) -> bool:
    found = set(sa.inspect(connection).get_table_names())
    if not {_LEDGER.name, *METADATA.tables} <= found:
        return False
    return connection.execute(sa.select(_LEDGER.c.version)).scalars().all() == [VERSION]


def _make_ready(engine: sa.Engine) -> None:
    if engine.dialect.name == "postgresql":
        with engine.begin() as connection:
            lock(connection, "")
            if not _is_of_this_version(connection):
                _drop_ours(connection)
                _create(connection)
        return
    file = Path(str(engine.url.database))
    with _alone_in(file.parent):
        # Another process may have been first, and what we opened may bear another name by now.
        engine.dispose()
        if not _is_ready(engine):
            if file.stat().st_size:
                _put_aside(engine)
                make_private(file)
            with engine.begin() as connection:
                _create(connection)


def _create(connection: sa.Connection) -> None:
    for metadata in (METADATA, _VERSIONS):
        metadata.create_all(connection)
    connection.execute(sa.insert(_LEDGER).values(version=VERSION))


def _drop_ours(connection: sa.Connection) -> None:
    """Others may keep tables in the same database, and our names are plain ones: each of ours tells streams apart."""
    inspector = sa.inspect(connection)
    for table in METADATA.sorted_tables:
        if inspector.has_table(table.name) and "stream" in {each["name"] for each in inspector.get_columns(table.name)}:
            table.drop(connection)
    _LEDGER.drop(connection, checkfirst=True)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep other processes from doing the same in this folder meanwhile."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _engine(uri: str) -> sa.Engine:
    if sa.make_url(uri).get_backend_name() == "sqlite":
        engine = sa.create_engine(uri)
        make_private(Path(str(engine.url.database)))
        _serialize(engine)
        return engine
    # Connections may have died since they were used last; deleting by key is one round trip for many keys.
    return sa.create_engine(uri, pool_pre_ping=True, executemany_mode="values_plus_batch")


def lock(connection: sa.Connection, stream: str) -> None:
    """Wait until no other transaction folds this stream, and let none do so before this one ends.

    On SQLite a transaction that writes keeps out all others that do, from its beginning. On Postgres there may be no
    row to lock yet.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_OUR_LOCKS, sa.func.hashtext(stream))))


def for_reading(engine: sa.Engine) -> sa.Engine:
    """An engine all of whose statements in one transaction see the database as it was at the first of them.

    It writes nothing and waits for nobody who writes.
    """
    if engine.dialect.name == "postgresql":
        return engine.execution_options(isolation_level="REPEATABLE READ")
    return engine.execution_options(**{_READING: True})


def _serialize(engine: sa.Engine) -> None:
    """Two folds must not write on the same head, so the write lock is taken before the first read."""

    @sa.event.listens_for(engine, "connect")
    def _manual(connection: Any, _: object) -> None:
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
        # Readers are locked out while changes go into the file: let that be at the end, not whenever memory is full.
        connection.execute("PRAGMA cache_spill = OFF")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        is_reading = connection.get_execution_options().get(_READING)
        connection.exec_driver_sql("BEGIN" if is_reading else "BEGIN IMMEDIATE")

    @sa.event.listens_for(engine, "handle_error")
    def _tell(context: sa.engine.ExceptionContext) -> None:
        if _code(context.original_exception) == sqlite3.SQLITE_BUSY:
            raise LockedError(f"{ENV_PREFIX}CONTROL_URI", str(engine.url.database), BUSY_SECONDS)
