"""What a field's reader says of records by columns, beside what it says of each alone."""

from typing import Any

import polars as pl

from dedup_platform.sources.contents import Contents
from dedup_platform.sources.field_values import FieldReader, RecordColumns
from dedup_platform.sources.records import AMBIGUOUS
from dedup_platform.sources.texts import text_of

IN_DOUBT = "in doubt"


def told(reader: FieldReader, contents: Contents, path: str = "") -> list[str | None]:
    """The texts of all records; IN_DOUBT where columns do not tell."""
    records = RecordColumns(contents, reader.named, lambda: pl.Series([path] * len(contents), dtype=pl.String))
    texts = reader.texts(records)
    known: list[str | None] = texts.values.to_list()
    doubts = [False] * len(known) if texts.in_doubt is None else texts.in_doubt.to_list()
    return [IN_DOUBT if doubt else text for text, doubt in zip(known, doubts, strict=True)]


def is_true(column_text: str | None, value: Any) -> bool:
    """Whether what a column tells is what a record says; one in doubt is true of what is no text only."""
    if column_text == IN_DOUBT:
        return value is AMBIGUOUS or not isinstance(value, str | None)
    return value is not AMBIGUOUS and column_text == text_of(value)
