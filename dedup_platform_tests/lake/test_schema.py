"""Columns that a newer version or stream file adds come to existing tables, those inside a struct too."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dedup_platform import schemas, tables
from dedup_platform.errors import IncompatibleChangeError
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream
from dedup_platform.tables import SESSION_FRAGMENTS, Column
from dedup_platform.testing import HeldClock, lay_out, light_platform, make_stream, record, utc, write_batch

NAME = "events"
STRUCT = "first_arrived"
Inner = tuple[Column, ...]


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    stream = make_stream(tmp_path)
    write_batch(stream, lay_out([record("e", "a", utc("2024-01-02"))], "a.json"))
    platform = light_platform(tmp_path / "home", stream, HeldClock(utc("2024-02-01")))
    platform.ingest(NAME)
    platform.repair(NAME)
    return platform


def with_struct(monkeypatch: pytest.MonkeyPatch, change: Callable[[Inner], Inner]) -> None:
    """As a version has it whose struct has other fields."""
    before = tables.columns

    def columns(stream: Stream, table: str) -> Inner:
        return tuple(
            replace(column, type=change(column.type)) if isinstance(column.type, tuple) else column
            for column in before(stream, table)
        )

    monkeypatch.setattr(tables, "columns", columns)


def test_a_new_field_of_a_struct_is_added(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    with_struct(monkeypatch, lambda inner: (*inner, Column("extra", "long")))
    platform.prepare(NAME)
    table = platform.lake.catalog.load_table(NAME, SESSION_FRAGMENTS)
    assert table.schema().find_field(f"{STRUCT}.extra").field_type == schemas.iceberg_schema(
        (Column("x", "long"),)
    ).find_type("x")
    [row] = table.scan().to_arrow().to_pylist()
    assert (row[STRUCT]["source"], row[STRUCT]["extra"]) == ("a.json", None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda inner: inner[1:], f"{SESSION_FRAGMENTS}.{STRUCT} has the columns .*no longer"),
        (
            lambda inner: (replace(inner[0], type="string"), *inner[1:]),
            rf"{SESSION_FRAGMENTS}\.{STRUCT}\.\w+ is timestamptz in the table and string",
        ),
    ],
)
def test_one_that_would_have_to_go_or_to_change_its_type_is_refused(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, change: Callable[[Inner], Inner], said: str
) -> None:
    with_struct(monkeypatch, change)
    with pytest.raises(IncompatibleChangeError, match=said):
        platform.prepare(NAME)
