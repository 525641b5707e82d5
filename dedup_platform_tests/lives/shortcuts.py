"""What is worked out again and again, worked out once: a third of the time of a life, whose tables are tiny.

Each takes the place of a function, mostly of PyIceberg, that gives the same for the same; files are immutable.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from functools import cache
from typing import Any

import pyarrow as pa
from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import InputFile
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

_METADATA_FILES = 500
"""So many are remembered: those of a few lives."""

_readers: dict[tuple[int, int], tuple[Reader, Any, Any]] = {}
"""By the identities of two schemas, which are kept so that no others get these."""
_schemas: dict[tuple[bytes, str, str], Schema] = {}
_metadata_files: dict[str, TableMetadata] = {}


class InThisThread(Executor):
    """In place of threads: to hand work of a millisecond over takes as long as the work."""

    def __init__(self, *_: Any) -> None:
        """However many threads there were to be."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Done before it is asked for."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future

    def map(self, fn: Callable[..., Any], *each: Iterable[Any], **_: Any) -> Iterator[Any]:
        """Done when it is asked for."""
        return map(fn, *each)


def _schema_of_manifest(header: AvroFileHeader) -> Schema:
    return _avro_schema(header.meta["avro.schema"])


@cache
def _avro_schema(text: str) -> Schema:
    return AvroSchemaConversion().avro_to_iceberg(json.loads(text))


def _reader(file_schema: Any, read_schema: Any, *arguments: Any) -> Reader:
    """What reads one schema as another has no state of its own."""
    place = (id(file_schema), id(read_schema))
    if place not in _readers:
        _readers[place] = (resolve_reader(file_schema, read_schema, *arguments), file_schema, read_schema)
    return _readers[place][0]


_header_reader = cache(lambda: construct_reader(META_SCHEMA, {-1: AvroFileHeader}))


def _parquet_schema(schema: pa.Schema, *args: Any, **kwargs: Any) -> Schema:
    place = (schema.serialize().to_pybytes(), repr(args), repr(kwargs))
    if place not in _schemas:
        _schemas[place] = pyarrow_to_schema(schema, *args, **kwargs)
    return _schemas[place]


_read_metadata = FromInputFile.table_metadata


def _metadata(file: InputFile, *_: Any) -> TableMetadata:
    if file.location not in _metadata_files:
        if len(_metadata_files) >= _METADATA_FILES:
            _metadata_files.clear()
        _metadata_files[file.location] = _read_metadata(file)
    return _metadata_files[file.location]


_LOCATION = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"


def _location(catalog: SqlCatalog, stream: str, table: str) -> str | None:
    connection = catalog.engine.raw_connection()
    try:
        row = connection.cursor().execute(_LOCATION, (stream, table)).fetchone()
        return row[0] if row else None
    finally:
        connection.close()


_IN_THIS_THREAD = InThisThread()

SHORTCUTS = {
    "pyiceberg.avro.file.AvroFileHeader.get_schema": _schema_of_manifest,
    "pyiceberg.avro.file.construct_reader": lambda *_: _header_reader(),
    "pyiceberg.avro.file.resolve_reader": _reader,
    # Asked a thousand times in a life; SQLAlchemy takes ten times as long as SQLite.
    "dedup_platform.lake.catalog._metadata_location": _location,
    "pyiceberg.io.pyarrow.pyarrow_to_schema": _parquet_schema,
    "pyiceberg.serializers.FromInputFile.table_metadata": staticmethod(_metadata),
    # Nobody changes metadata; PyIceberg copies all of it several times a commit.
    "pyiceberg.table.metadata.TableMetadataCommonFields.__deepcopy__": lambda metadata, _=None: metadata,
    "pyiceberg.utils.concurrent.ExecutorFactory.get_or_create": staticmethod(lambda: _IN_THIS_THREAD),
    "dedup_platform.lake.durable.ThreadPoolExecutor": InThisThread,
}
"""What is replaced -> by what."""
