"""Dagster's event log on SQLite without opening a database, and compiling its statements, for every event."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import dagster as dg
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from sqlalchemy import Connection, Engine, StaticPool, create_engine

__all__ = ["kept_open"]


@contextmanager
def kept_open(instance: dg.DagsterInstance) -> Iterator[None]:
    """Keep the databases of the instance's event log open meanwhile, if it is one on SQLite: an event takes a third.

    A commit that looked at a thousand partitions tells five thousand.
    """
    storage = instance.event_log_storage
    if not isinstance(storage, SqliteEventLogStorage):
        yield
        return
    databases = _Databases(storage)
    vars(storage)["_connect"] = databases.connect
    try:
        yield
    finally:
        del vars(storage)["_connect"]
        databases.close()


class _Databases:
    """One connection for each of the log's databases: one for all runs, one for each run."""

    def __init__(self, storage: SqliteEventLogStorage) -> None:
        self._storage = storage
        self._engines: dict[str, Engine] = {}
        self._lock = Lock()

    @contextmanager
    def connect(self, shard: str) -> Iterator[Connection]:
        """A transaction in one database; others that ask for any wait, as they do for Dagster's own."""
        with self._lock:
            if shard not in self._engines:
                self._engines[shard] = self._opened(shard)
            with self._engines[shard].begin() as connection:
                yield connection

    def _opened(self, shard: str) -> Engine:
        with type(self._storage)._connect(self._storage, shard):  # it makes the database where there is none
            pass
        return create_engine(
            self._storage.conn_string_for_shard(shard),
            poolclass=StaticPool,
            connect_args={"timeout": SQLITE_BUSY_TIMEOUT_SECONDS, "check_same_thread": False},
        )

    def close(self) -> None:
        with self._lock:
            for engine in self._engines.values():
                engine.dispose()
            self._engines.clear()
