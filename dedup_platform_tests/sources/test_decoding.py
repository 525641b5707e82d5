"""Records become events or are rejected with the first reason that holds. Literal fields in, literal rows out."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from dedup_platform.planning.moments import microseconds
from dedup_platform.sources.batch_decoding import BatchDecoder
from dedup_platform.sources.contents import ListedContents
from dedup_platform.sources.decoding import Delivery, EventDecoder, Row
from dedup_platform.sources.records import AMBIGUOUS, Content
from dedup_platform.sources.repeated import Runs
from dedup_platform.sources.text.json_records import Number, json_content
from dedup_platform.stream import Stream
from dedup_platform_tests.sources.click_streams import click_stream, decode_kept

ARRIVED = datetime(2024, 3, 1, 12, tzinfo=UTC)
GOOD = {"user": "u", "id": "e", "at": "2024-03-01T11:00:00Z"}
AT = microseconds(datetime(2024, 3, 1, 11, tzinfo=UTC))
JSON = '{"format":"json"}'


def decode(stream: Stream, content: Content, source: str = "a.json", file_format: str = "json") -> tuple[Any, ...]:
    """The row, its arrival time left out where it is that of the file; alone and among others it is the same."""
    decoder = EventDecoder(stream)
    delivery = decoder.delivery(source, ARRIVED, file_format)
    row = decoder.decode(content, delivery)
    assert decode_many(stream, [content, GOOD, content], [delivery] * 3)[::2] == [row] * 2
    entity_id, event_id, event_time, arrival, *rest = row
    return (entity_id, event_id, event_time, *rest) if arrival == microseconds(ARRIVED) else row


def decode_many(stream: Stream, contents: list[Content], deliveries: list[Delivery]) -> list[Row]:
    """The rows of records that are decoded together."""
    frame = BatchDecoder(stream).decode(ListedContents(contents), Runs([deliveries]))
    return [tuple(_plain(value) for value in row) for row in frame.iter_rows()]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return microseconds(value)
    return value.toordinal() - date(1970, 1, 1).toordinal() if isinstance(value, date) else value


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (GOOD, ("u", "e", AT, None)),
        (GOOD | {"user": "x" * 10_000, "id": "y" * 10_000}, ("x" * 10_000, "y" * 10_000, AT, None)),
        (GOOD | {"user": Number("17"), "id": Number("1.0")}, ("17", "1.0", AT, None)),
        (GOOD | {"user": ""}, (None, "e", AT, None)),
        (GOOD | {"user": None}, (None, "e", AT, None)),
        ({"id": "e", "at": GOOD["at"]}, (None, "e", AT, None)),
        (GOOD | {"user": " "}, (" ", "e", AT, None)),
        (GOOD | {"at": "2024-03-01 12:10:00"}, ("u", "e", AT + 70 * 60_000_000, None)),
        (GOOD | {"at": "2024-01-01"}, ("u", "e", microseconds(datetime(2024, 1, 1, tzinfo=UTC)), None)),
        ("malformed_record", (None, None, None, "malformed_record")),
        ("damaged_file", (None, None, None, "damaged_file")),
        ({}, (None, None, None, "missing_event_id")),
        (GOOD | {"id": ""}, (None, None, None, "missing_event_id")),
        (GOOD | {"id": None}, (None, None, None, "missing_event_id")),
        ({"user": "u", "id": "e"}, (None, None, None, "unreadable_event_time")),
        (GOOD | {"at": ""}, (None, None, None, "unreadable_event_time")),
        (GOOD | {"at": None}, (None, None, None, "unreadable_event_time")),
        (GOOD | {"at": "1709290800"}, (None, None, None, "unreadable_event_time")),
        (GOOD | {"at": Number("1709290800")}, (None, None, None, "unreadable_event_time")),
        (GOOD | {"at": {"t": GOOD["at"]}}, (None, None, None, "unreadable_event_time")),
        (GOOD | {"at": "0001-01-01"}, (None, None, None, "impossible_event_time")),
        (GOOD | {"at": "1969-12-31T23:59:59.999999Z"}, (None, None, None, "impossible_event_time")),
        (GOOD | {"at": "1970-01-01"}, (None, None, None, "before_start")),
        (GOOD | {"at": "9999-12-31T23:59:59.999999Z"}, (None, None, None, "event_time_in_future")),
        (GOOD | {"at": "9999-12-31T23:59:59-01:00"}, (None, None, None, "impossible_event_time")),
        (GOOD | {"at": "2024-03-01T12:10:00.000001Z"}, (None, None, None, "event_time_in_future")),
        (GOOD | {"at": "2023-12-31T23:59:59.999999Z"}, (None, None, None, "before_start")),
        (GOOD | {"user": AMBIGUOUS}, (None, None, None, "malformed_record")),
        (GOOD | {"at": AMBIGUOUS}, (None, None, None, "malformed_record")),
        (GOOD | {"other": AMBIGUOUS}, ("u", "e", AT, None)),
    ],
)
def test_rows(fields: Content, expected: tuple[Any, ...]) -> None:
    assert decode(click_stream("json"), fields) == expected


@pytest.mark.parametrize("user", ["", None])
def test_a_missing_entity_can_be_refused(user: str | None) -> None:
    refusing = click_stream("json", missing_entity="reject")
    assert decode(refusing, GOOD | {"user": user}) == (None, None, None, "missing_entity")
    assert decode(refusing, GOOD) == ("u", "e", AT, None)


@pytest.mark.parametrize(
    ("at", "reason"),
    [("2024-02-28T12:00:00Z", None), ("2024-02-28T11:59:59.999999Z", "beyond_horizon"), ("2023-12-31", "before_start")],
)
def test_the_horizon_is_counted_at_arrival(at: str, reason: str | None) -> None:
    stream = click_stream("json", late={"horizon": "2d"})
    assert decode(stream, GOOD | {"at": at})[-1] == reason


@pytest.mark.parametrize("file_format", ["csv", "parquet"])
@pytest.mark.parametrize("name", ["user", "id", "at"])
def test_a_column_that_the_file_lacks_is_named(name: str, file_format: str) -> None:
    fields = {key: value for key, value in GOOD.items() if key != name}
    stream = click_stream(file_format)
    assert decode(stream, fields, file_format=file_format) == (None, None, None, f"missing_field:{name}")


def test_a_hashed_column_that_the_file_lacks_is_named() -> None:
    stream = click_stream("csv", fields={"event_id": {"hash": ["user", "page"]}})
    assert decode(stream, GOOD, file_format="csv")[-1] == "missing_field:page"


TYPES = {
    "page": "page",
    "count": {"field": "n", "type": "long"},
    "ratio": {"field": "r", "type": "double"},
    "paid": {"field": "p", "type": "boolean"},
    "seen": {"field": "s", "type": "timestamp"},
    "day": {"field": "d", "type": "date"},
    "price": {"field": "c", "type": "decimal(8,2)"},
}
VALUES = {
    "page": "/",
    "n": Number("3"),
    "r": Number("0.5"),
    "p": True,
    "s": "1970-01-01T00:00:01Z",
    "d": "1970-01-02",
    "c": "1.5",
}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (VALUES, ("/", 3, 0.5, True, 1_000_000, 1, Decimal("1.50"), None)),
        ({}, (None,) * 8),
        (dict.fromkeys(VALUES), (None,) * 8),
        (dict.fromkeys(VALUES, ""), ("", *(None,) * 7)),
        ({"page": {"b": True, "a": [Number("1.0")]}}, ('{"a":[1.0],"b":true}', *(None,) * 7)),
        ({"page": False}, ("false", *(None,) * 7)),
    ],
)
def test_attributes(fields: dict[str, Any], expected: tuple[Any, ...]) -> None:
    stream = click_stream("json", fields={"attributes": TYPES})
    assert decode(stream, GOOD | fields) == ("u", "e", AT, *expected)


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("n", "x", "count"),
        ("n", Number("1.5"), "count"),
        ("n", {"a": 1}, "count"),
        ("r", "1,5", "ratio"),
        ("p", "yes", "paid"),
        ("s", Number("1709290800"), "seen"),
        ("d", "1970-01-02T00:00", "day"),
        ("c", "1.005", "price"),
        ("page", AMBIGUOUS, None),
    ],
)
def test_unreadable_attributes_are_named(field: str, value: Any, name: str | None) -> None:
    stream = click_stream("json", fields={"attributes": TYPES})
    reason = f"unreadable_attribute:{name}" if name else "malformed_record"
    assert decode(stream, GOOD | VALUES | {field: value}) == (*(None,) * 10, reason)


@pytest.mark.parametrize("file_format", ["csv", "json", "parquet"])
def test_an_attribute_that_a_file_lacks_is_null(file_format: str) -> None:
    stream = click_stream(file_format, fields={"attributes": {"page": "page"}})
    assert decode(stream, GOOD, file_format=file_format) == ("u", "e", AT, None, None)


@pytest.mark.parametrize(
    ("got", "arrival", "reason"),
    [
        ("2024-03-01T11:30:00Z", "2024-03-01T11:30:00", None),
        ("2024-03-01T10:30:00Z", "2024-03-01T10:30:00", "event_time_in_future"),
        ("soon", "2024-03-01T12:00:00", "unreadable_arrival_time"),
        ("1969-12-31", "2024-03-01T12:00:00", "unreadable_arrival_time"),
        (None, "2024-03-01T12:00:00", "unreadable_arrival_time"),
    ],
)
def test_arrival_time_in_a_field(got: Any, arrival: str, reason: str | None) -> None:
    decoder = EventDecoder(click_stream("json", fields={"arrival_time": "got"}))
    row = decoder.decode(GOOD | {"got": got}, decoder.delivery("a.json", ARRIVED, "json"))
    assert (row[3], row[-1]) == (microseconds(datetime.fromisoformat(arrival).replace(tzinfo=UTC)), reason)


def test_the_arrival_time_of_a_rejected_record_is_its_own_where_it_can_be_read() -> None:
    decoder = EventDecoder(click_stream("json", fields={"arrival_time": "got"}))
    row = decoder.decode({"got": "2024-03-01T11:30:00Z"}, decoder.delivery("a.json", ARRIVED, "json"))
    assert row[3:] == (microseconds(ARRIVED - timedelta(minutes=30)), "missing_event_id")


def test_an_arrival_column_that_a_csv_file_lacks_is_named() -> None:
    stream = click_stream("csv", fields={"arrival_time": "got"})
    assert decode(stream, GOOD, file_format="csv")[-1] == "missing_field:got"


@pytest.mark.parametrize(
    ("source", "arrival", "reason"),
    [
        ("x/20240301T1130Z_01.json", "2024-03-01T11:30:00", None),
        ("x/20241301T1130Z_01.json", "2024-03-01T12:00:00", "unreadable_arrival_time"),
        ("x/events.json", "2024-03-01T12:00:00", "unreadable_arrival_time"),
    ],
)
def test_arrival_time_in_the_file_name(source: str, arrival: str, reason: str | None) -> None:
    rule = {"file_name": r"(\d{8}T\d{4}Z)_", "format": "%Y%m%dT%H%MZ"}
    decoder = EventDecoder(click_stream("json", fields={"arrival_time": rule}))
    row = decoder.decode(GOOD, decoder.delivery(source, ARRIVED, "json"))
    assert (row[3], row[-1]) == (microseconds(datetime.fromisoformat(arrival).replace(tzinfo=UTC)), reason)


@pytest.mark.parametrize(
    ("payload", "context", "expected"),
    [
        (b'{"user":"u","id":"e","at":"2024-03-01T11:00:00Z"}', JSON, ("u", "e", AT, microseconds(ARRIVED), None)),
        (
            b'u,"e",2024-03-01',
            '{"format":"csv","header":["user","id","at"]}',
            ("u", "e", AT - 11 * 3_600_000_000, microseconds(ARRIVED), None),
        ),
        (b"u,e", '{"format":"csv","header":["user","id","at"]}', "malformed_record"),
        (b"u,e,2024-03-01", '{"format":"csv","header":null}', "malformed_record"),
        (b"u,e", '{"format":"csv","header":["user","id"]}', "missing_field:at"),
        (b'{"user":"u","id":"e"}', '{"format":"parquet"}', "missing_field:at"),
        (b'{"user":"u","id":"e"}', JSON, "unreadable_event_time"),
        (b"{}", '{"format":"json","damage":{"reason":"x","offset":1}}', "damaged_file"),
        (b"{}", '{"format":"json","oversized":true}', "malformed_record"),
    ],
)
def test_payload_and_context_decode_again(payload: bytes, context: str, expected: Any) -> None:
    row = decode_kept(EventDecoder(click_stream("json")), payload, context, "a", ARRIVED)
    assert row == (expected if isinstance(expected, tuple) else (None, None, None, microseconds(ARRIVED), expected))


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.integers() | st.just(GOOD["at"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def any_stream() -> Stream:
    return click_stream("json", fields={"attributes": TYPES})


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_any_content_is_a_row(any_stream: Stream, data: st.DataObject) -> None:
    names = st.sampled_from(["user", "id", "at", "page", "n", "r", "p", "s", "d", "c"])
    payload = json.dumps(data.draw(st.dictionaries(names, json_values))).encode()
    decoder = EventDecoder(any_stream)
    row = decoder.decode(json_content(payload), decoder.delivery("a", ARRIVED, "json"))
    assert row == decode_kept(decoder, payload, JSON, "a", ARRIVED)
    assert len(row) == 12
    assert row[3] == microseconds(ARRIVED)
    if row[-1] is None:
        assert row[1]
        assert 0 <= row[2] < 253_402_300_800_000_000
    else:
        assert row[:3] == (None, None, None)
        assert set(row[4:-1]) == {None}
