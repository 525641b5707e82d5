"""Answers questions in SQL from the snapshots that the tables have now.

DuckDB sees the data files of these snapshots as datasets of Arrow, and nothing else of this machine or any other: no
file, no network, no extension.
"""

from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from dedup_platform import tables
from dedup_platform.errors import QueryError
from dedup_platform.lake.datasets import dataset_of
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.query.views import views_of
from dedup_platform.settings import CATALOG
from dedup_platform.stream import Stream

__all__ = ["Answer", "Queries"]

_TABLES = (*tables.ALL, *tables.FOLLOWER_OF.values(), tables.AUDIT)
_ALLOWED = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
_CLOSED = (
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
"""Statements after which a connection reaches what it was given, and stays so."""
_BATCH_ROWS = 2_048


@dataclass(frozen=True)
class Answer:
    """The columns of an answer, whose names may repeat, and its rows as they are found. QueryError may come amid."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


class Queries:
    """Answers SQL over the streams' tables, `stream.table` or `lake.stream.table`, and views of them; times are UTC."""

    def __init__(self, lake: Lakehouse, streams: Mapping[str, Stream]) -> None:
        self._lake = lake
        self._streams = streams

    @contextmanager
    def answer(self, sql: str, aside: Path) -> Iterator[Answer]:
        """What one SELECT, DESCRIBE, SHOW or EXPLAIN gives, to be read within. QueryError if it cannot be answered.

        What does not fit into memory, of a large sort for instance, goes to the folder `aside`.
        """
        _check(sql)
        with closing(_opened(aside)) as connection:
            absent = [name for stream, names in self._asked(sql) for name in self._show(connection, stream, names)]
            for statement in _CLOSED:
                connection.execute(statement)
            with _told(duckdb.Error, [name for name in absent if name in sql.lower()]):
                reader = connection.sql(sql).to_arrow_reader(_BATCH_ROWS)
            with reader:
                yield Answer(reader.schema, _batches(reader))

    def _asked(self, sql: str) -> list[tuple[Stream, AbstractSet[str]]]:
        """The streams and tables whose names are in the text; all of them if none is.

        Who names none asks which there are, or is mistaken and will be told.
        """
        text, asked = sql.lower(), list[tuple[Stream, AbstractSet[str]]]()
        for stream in self._streams.values():
            views = views_of(stream)
            named = {name for name in (*_TABLES, *views) if name in text} if stream.name in text else set()
            if named:
                asked.append((stream, named.union(*(views[name].read for name in named & views.keys()))))
        return asked or [(stream, {*_TABLES, *views_of(stream)}) for stream in self._streams.values()]

    def _show(self, connection: duckdb.DuckDBPyConnection, stream: Stream, names: AbstractSet[str]) -> list[str]:
        """Have tables and views be there under their names; returns those that are not, as `stream.table`."""
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS {CATALOG}."{stream.name}"')
        connection.execute(f'USE {CATALOG}."{stream.name}"')
        shown = set[str]()
        for name in names & {*_TABLES}:
            if self._lake.catalog.load(stream.name, name):
                snapshot_id = self._lake.current(stream, name)
                # Loaded after it was asked for: somebody may commit in between.
                table = self._lake.catalog.load_table(stream.name, name)
                rows = dataset_of(table, snapshot_id, self._lake.catalog.file_properties(table))
                connection.from_arrow(rows).create_view(name)
                shown.add(name)
        for name, view in views_of(stream).items():
            if name in names and view.read <= shown:
                connection.execute(f"CREATE VIEW {name} AS {view.sql}")
                shown.add(name)
        connection.execute(f"USE {CATALOG}.main")
        return [f"{stream.name}.{name}" for name in sorted(names - shown)]


def _opened(aside: Path) -> duckdb.DuckDBPyConnection:
    """An empty catalog of the lake's name."""
    connection = duckdb.connect(":memory:")
    connection.execute(f"ATTACH ':memory:' AS {CATALOG}")
    connection.execute("SET TimeZone = 'UTC'")
    # Arrow does not tell how many rows it has: joins by time would be done as for a handful, each row with all others.
    connection.execute("SET asof_loop_join_threshold = 0")
    connection.execute("SET temp_directory = $aside", {"aside": str(aside)})
    return connection


def _check(sql: str) -> None:
    with _told(duckdb.Error):
        statements = duckdb.extract_statements(sql)
    if len(statements) != 1:
        raise QueryError(f"one statement is answered at a time; here are {len(statements)}")
    if statements[0].type not in _ALLOWED:
        kind = statements[0].type.name
        raise QueryError(f"tables are only read here, by SELECT, DESCRIBE, SHOW or EXPLAIN; this is {kind}")


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    # What fails amid the rows comes through Arrow, which makes an OSError of it.
    with _told(OSError):
        yield from reader


@contextmanager
def _told(kind: type[Exception], absent: Sequence[str] = ()) -> Iterator[None]:
    """Errors of this kind as QueryError, in one sentence without the text of the question behind it."""
    try:
        yield
    except kind as error:
        said = str(error).partition("\n\nLINE ")[0].splitlines()
        if absent and isinstance(error, duckdb.CatalogException):
            said.append(f"Nothing was taken in yet for {', '.join(absent)}, or the stream file does not ask for it.")
        raise QueryError(" ".join(line.strip() for line in said if line.strip())) from error
