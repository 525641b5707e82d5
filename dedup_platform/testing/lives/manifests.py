"""How manifests are read, found out once for each schema and not for each manifest: a sixth of a life's time."""

import json
from functools import cache
from typing import Any

from pyiceberg.avro.file import AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import resolve_reader as resolved
from pyiceberg.schema import Schema
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

_readers: dict[tuple[int, int], tuple[Reader, Any, Any]] = {}
"""By the identities of two schemas, which are kept so that no others get these."""


def get_schema(header: AvroFileHeader) -> Schema:
    """In place of `AvroFileHeader.get_schema`."""
    return _schema_of(header.meta["avro.schema"])


def resolve_reader(file_schema: Any, read_schema: Any, *arguments: Any) -> Reader:
    """In place of `resolve_reader`: what reads one schema as another has no state of its own."""
    place = (id(file_schema), id(read_schema))
    if place not in _readers:
        _readers[place] = (resolved(file_schema, read_schema, *arguments), file_schema, read_schema)
    return _readers[place][0]


@cache
def _schema_of(text: str) -> Schema:
    return AvroSchemaConversion().avro_to_iceberg(json.loads(text))
