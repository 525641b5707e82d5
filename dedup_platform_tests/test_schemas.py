"""What each table is to Spark and to Iceberg follows from its columns."""

from pathlib import Path

import pytest

from dedup_platform import schemas, tables
from dedup_platform.stream import Stream
from dedup_platform.testing import make_stream

EVERY = (*tables.ALL, *tables.FOLLOWER_OF.values(), tables.AUDIT)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return make_stream(tmp_path, "clicks")


@pytest.mark.parametrize("table", EVERY)
def test_both_engines_have_the_same_columns_in_the_same_order(table: str, stream: Stream) -> None:
    columns = tables.columns(stream, table)
    names = tables.column_names(stream, table)
    assert schemas.spark_schema(columns).names == names
    assert [field.name for field in schemas.iceberg_schema(columns).fields] == names
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("table", EVERY)
def test_no_field_of_iceberg_has_the_id_of_another_or_must_be_there(table: str, stream: Stream) -> None:
    schema = schemas.iceberg_schema(tables.columns(stream, table))
    assert len(schema._lazy_id_to_field) == len({field.field_id for field in schema._lazy_id_to_field.values()})
    assert not any(field.required for field in schema.fields), "columns can be added"


@pytest.mark.parametrize("table", EVERY)
def test_what_is_measured_is_there_and_has_bounds_that_compare(table: str, stream: Stream) -> None:
    types = {column.name: column.type for column in tables.columns(stream, table)}
    assert {types[name] for name in schemas.MEASURED[table]} <= {"timestamp", "long", "string"}
    assert {types[name] for name in schemas.WEIGHED.get(table, ())} <= {"binary"}


def test_raw_is_what_sources_return(stream: Stream) -> None:
    assert schemas.raw_schema(stream).names == tables.column_names(stream, tables.RAW_EVENTS)
