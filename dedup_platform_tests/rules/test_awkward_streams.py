"""Streams and records that a stage could stumble over, against the oracle."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from dedup_platform.stream import Stream
from dedup_platform.testing import (
    HeldClock,
    Record,
    Rules,
    SessionIds,
    differences,
    histories,
    lay_out,
    make_stream,
    record,
    temporary_platform,
    utc,
    write_batch,
)

TEN = utc("2024-03-01T10:00")
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def assert_as_the_oracle_says(
    folder: Path, spark: SparkSession, stream: Stream, batches: Sequence[Sequence[Record]]
) -> None:
    """After the repair that follows each batch."""
    now = max(each.arrival_time for batch in batches for each in batch) + DAY
    platform = temporary_platform(folder / "home", stream, spark, HeldClock(now), in_process=True)
    ids = SessionIds()
    for number, batch in enumerate(batches):
        write_batch(stream, batch)
        platform.ingest(stream.name)
        platform.repair(stream.name)
        delivered = [each for earlier in batches[: number + 1] for each in earlier]
        assert differences(platform, stream, delivered, ids) == []
    assert platform.verify(stream.name) == []


def test_a_value_that_moves_to_a_column_that_was_null(tmp_path: Path, spark: SparkSession) -> None:
    """Records that arrived earlier but are read later exchange a session's first page and last page, and no more."""
    seen = [
        record("a", "1", TEN, TEN + 2 * HOUR, page="/"),
        record("a", "2", TEN + 10 * MINUTE, TEN + 2 * HOUR),
        record("a", "3", TEN + 5 * MINUTE, TEN + HOUR, page="/cart"),
    ]
    earlier = [
        record("a", "1", TEN, TEN + HOUR + MINUTE),
        record("a", "2", TEN + 10 * MINUTE, TEN + HOUR + MINUTE, page="/"),
    ]
    batches = [lay_out(seen, "b.json"), lay_out(earlier, "a.json")]
    assert_as_the_oracle_says(tmp_path, spark, make_stream(tmp_path), batches)


def test_a_session_that_falls_apart_though_nothing_is_new_where_it_starts(tmp_path: Path, spark: SparkSession) -> None:
    """Its second event is beaten by a copy two days later that arrived before it and is read after it."""
    night = utc("2024-03-02")
    session = [record("a", "1", night - 5 * MINUTE), record("a", "x", night + 5 * MINUTE, night + 4 * DAY)]
    copy = record("a", "x", night + 2 * DAY)
    batches = [lay_out(session, "a.json"), lay_out([copy], "b.json")]
    assert_as_the_oracle_says(tmp_path, spark, make_stream(tmp_path, window="3d"), batches)


def test_columns_may_have_any_name_that_a_stream_file_may_give(tmp_path: Path, spark: SparkSession) -> None:
    """Also those that the stages might use for columns of their own."""
    texts = ("partition", "splits", "winner", "typed", "first", "last", "occurrences", "bucket", "side", "surplus")
    longs = ("before", "number", "earlier", "later", "content", "rows", "won", "order", "group", "select", "value")
    stream = make_stream(
        tmp_path,
        attributes=dict.fromkeys(texts, "string") | dict.fromkeys(longs, "long"),
        key=("entity_id", "event_id", "winner", "first", "bucket", "occurrences", "before", "typed"),
        aggregates={name: ("first", name) for name in texts} | {name: ("sum", name) for name in longs},
    )
    history = histories(3, 60, Rules.of(stream), stream.partitions.start, batches=2)
    batches = [[renamed(each, texts, longs) for each in batch] for batch in history.batches]
    assert_as_the_oracle_says(tmp_path, spark, stream, batches)


def renamed(event: Record, texts: Sequence[str], longs: Sequence[str]) -> Record:
    """The same event with its page in every text and its quantity in every number."""
    page, quantity = event.attributes["page"], event.attributes["quantity"]
    return replace(event, attributes=dict.fromkeys(texts, page) | dict.fromkeys(longs, quantity))


def test_a_key_of_attributes_alone_is_null_safe(tmp_path: Path, spark: SparkSession) -> None:
    """Of entity, page and quantity, some are null; ids do not matter."""
    stream = make_stream(tmp_path, key=("entity_id", "page", "quantity"), window="12h")
    history = histories(4, 60, Rules.of(stream), stream.partitions.start, batches=3)
    assert_as_the_oracle_says(tmp_path, spark, stream, history.batches)


def test_long_and_strange_entities_are_entities(tmp_path: Path, spark: SparkSession) -> None:
    """All arrive at once, so that the files' names decide: by code points, as UTF-8 sorts and UTF-16 does not."""
    strange = [
        "x" * 10_000,
        "ä",
        "a\u0308",
        "🙂",
        "\uffff",
        "🙂" * 500,
        " ",
        "null",
        "-",
        "1:a",
        "'",
        '"',
        "\\",
        "a\nb",
        "\t",
    ]
    events = [
        record(entity, event_id, TEN + n * 20 * MINUTE, TEN + DAY, page=event_id)
        for n in range(3)
        for entity in strange
        for event_id in (f"{n}", entity[:50])
    ]
    files = [f"{'🙂' * number}\uffff{number}.json" for number in range(3)]
    batches = [lay_out(events[number::3], file) for number, file in enumerate(files)]
    assert_as_the_oracle_says(tmp_path, spark, make_stream(tmp_path, buckets=4), batches)
