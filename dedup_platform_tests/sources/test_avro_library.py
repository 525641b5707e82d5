"""Why Avro's data are read by `sources/avro/datum.py` and not by fastavro; a test fails once the library does better.

Then the reader here can go. Apache's own Python library has the same faults, and mends for them are proposed:
https://github.com/apache/avro/pull/3876 (negative indices), https://github.com/apache/avro/pull/3929 (depth).
"""

import io
import signal
import subprocess
import sys
from typing import Any

import fastavro
import pytest

from dedup_platform.sources.avro.datum import MalformedDatumError, datum_reader

MINUS_ONE = b"\x01"
ENUM = {"type": "enum", "name": "E", "symbols": ["first", "last"]}
READ_DEEPLY = """
import io, fastavro
record = {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}
fastavro.schemaless_reader(io.BytesIO(bytes([2]) * 1_000_000 + bytes([0])), fastavro.parse_schema(record))
"""


def schema_of(kind: object) -> Any:
    return fastavro.parse_schema({"type": "record", "name": "R", "fields": [{"name": "value", "type": kind}]})


@pytest.mark.parametrize(
    ("kind", "datum", "read"), [(ENUM, MINUS_ONE, "last"), (["null", "long"], MINUS_ONE + b"\x02", 1)], ids=str
)
def test_fastavro_takes_an_index_of_minus_one_for_the_last(kind: object, datum: bytes, read: object) -> None:
    schema = schema_of(kind)
    assert fastavro.schemaless_reader(io.BytesIO(datum), schema, None) == {"value": read}
    with pytest.raises(MalformedDatumError):
        datum_reader(schema)(datum, 0)


def test_fastavro_ends_the_process_where_records_are_nested_too_deeply() -> None:
    ended = subprocess.run([sys.executable, "-c", READ_DEEPLY], capture_output=True, check=False)
    assert ended.returncode == -signal.SIGSEGV
    with pytest.raises(MalformedDatumError):
        datum_reader(schema_of(["null", "R"]))(b"\x02" * 1_000_000 + b"\x00", 0)


def test_fastavro_gives_a_32_bit_float_digits_that_nobody_wrote() -> None:
    schema, datum = schema_of("float"), b"\xcd\xcc\xcc\x3d"
    assert fastavro.schemaless_reader(io.BytesIO(datum), schema, None) == {"value": 0.10000000149011612}
    assert datum_reader(schema)(datum, 0)[0] == {"value": "0.1"}
