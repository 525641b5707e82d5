"""Records that are decoded together become what each becomes alone."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings, strategies as st

from dedup_platform.planning.moments import microseconds
from dedup_platform.sources.batch_decoding import BatchDecoder
from dedup_platform.sources.contents import ListedContents, joined_contents
from dedup_platform.sources.decoding import Delivery
from dedup_platform.sources.records import AMBIGUOUS, DAMAGED_FILE, Content
from dedup_platform.sources.repeated import Repeated, Runs
from dedup_platform.sources.text.json_lines import JsonContents
from dedup_platform.sources.text.json_records import Number
from dedup_platform.sources.text.json_shapes import JsonShapes
from dedup_platform.stream import Stream
from dedup_platform_tests.sources.click_streams import click_stream

ARRIVED = microseconds(datetime(2024, 3, 1, 12, tzinfo=UTC))
DELIVERY = Delivery(ARRIVED, is_arrival_known=True, is_tabular=False)
ATTRIBUTES = {
    "page": "page",
    "count": {"field": "n", "type": "long"},
    "ratio": {"field": "r", "type": "double"},
    "paid": {"field": "p", "type": "boolean"},
    "seen": {"field": "s", "type": "timestamp"},
    "day": {"field": "d", "type": "date"},
    "price": {"field": "c", "type": "decimal(8,2)"},
}
FIELDS = ("user", "id", "at", "got", "page", "n", "r", "p", "s", "d", "c")
STREAMS = {
    "times are ISO 8601": click_stream("json", fields={"attributes": ATTRIBUTES}),
    "times without an offset are those of a place": click_stream(
        "json", fields={"event_time": {"field": "at", "timezone": "Europe/Berlin"}, "attributes": ATTRIBUTES}
    ),
    "times are seconds": click_stream("json", fields={"event_time": {"field": "at", "format": "epoch_s"}}),
    "times are microseconds": click_stream("json", fields={"event_time": {"field": "at", "format": "epoch_us"}}),
    "times are written in a way of their own": click_stream(
        "json", fields={"event_time": {"field": "at", "format": "%Y-%m-%d %H:%M:%S"}}
    ),
    "times are nanoseconds": click_stream("json", fields={"event_time": {"field": "at", "format": "epoch_ns"}}),
    "times are written in several ways": click_stream(
        "json", fields={"event_time": {"field": "at", "format": ["iso8601", "epoch_s", "%Y-%m-%d %H:%M:%S"]}}
    ),
    "times are of the zone beside them": click_stream(
        "json", fields={"event_time": {"field": "at", "timezone": {"field": "page"}}}
    ),
    "fields are defined": click_stream(
        "json",
        fields={
            "entity_id": {"first_of": ["s", "user"]},
            "event_id": {"join": ["id", "page"], "with": "/"},
            "event_time": {"pattern": "^(.*)$", "field": {"first_of": ["p", "at"]}},
            "attributes": {
                "count": {"pattern": "([0-9]+)", "field": "n", "type": "long"},
                "page": "d.a",
                "ratio": {"constant": 1.5, "type": "double"},
                "place": {"path": "(.*)"},
            },
        },
    ),
    "arrivals are told": click_stream("json", fields={"arrival_time": "got"}, late={"horizon": "30d"}),
    "an id has two parts": click_stream("json", fields={"event_id": ["user", "id"]}),
    "an id is a hash": click_stream("json", fields={"event_id": {"hash": "*"}}),
    "events need no entity": click_stream("json", missing_entity="keep", late={"max_future": "36500d"}),
}

NUMBERS = ["0", "-0", "-0.0", "7", "-12", "007", "1.5", "0.1", "1e3", "nan", "Infinity", "true", "\u0660"]
LONG_NUMBERS = ["1709290800", "1709290800000", "1709290800000000", "9" * 18, str(2**63 - 1), "9" * 19, "-" + "9" * 19]
TIMES = [
    *("2024-03-01", "2024-03-01T11:00Z", "2024-03-01T11:00:00", "2024-03-01 11:00:00", "2024-03-01T11:00:00Z"),
    *("2024-03-01T11:00:00.5+00:00", "2024-03-01T11:00:00.1234567Z", "2024-03-01T13:00:00+02:00"),
    *("2024-03-01T12:10:00.000001Z", "2024-01-30T12:00:00Z", "2023-12-31T23:59:59.999999Z", "1969-12-31T23:59:59Z"),
    *("0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2024-03-01T11:00:00Z\n"),
    *("2024-03-01T24:00:00Z", "2024-03-01T11:00:60Z", "2024-02-30T12:00:00Z", "\u0662024-03-01T11:00:00Z"),
]
TEXTS = ["", " ", "u", "false", "True", *NUMBERS, *LONG_NUMBERS, *TIMES]
VALUES = [*TEXTS, *map(Number, TEXTS), None, True, False, {"a": None}, [Number("1")], AMBIGUOUS]
changes = st.dictionaries(st.sampled_from(FIELDS), st.sampled_from(VALUES), max_size=3)
deliveries = st.builds(
    Delivery,
    st.sampled_from([ARRIVED, ARRIVED - 1]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([False, False, True]),
    st.sampled_from(["a/b.json", ""]),
)


def good(stream: Stream) -> dict[str, Any]:
    """A record of which nothing is in doubt."""
    ways: dict[Any, str] = {
        "epoch_ns": "1709290800000000000",
        "epoch_s": "1709290800",
        "epoch_us": "1709290800000000",
        "%Y-%m-%d %H:%M:%S": "2024-03-01 11:00:00",
    }
    at = ways.get(stream.fields.event_time.format or "", "2024-03-01T11:00:00Z")
    return {"user": "u", "id": "e", "at": at, "got": "2024-03-01T12:00:00Z", "n": Number("3"), "r": "0.5", "page": "/"}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_every_value_of_every_field(stream: Stream) -> None:
    contents: list[Content] = [good(stream) | {field: value} for field in FIELDS for value in VALUES]
    assert_same(stream, [(content, DELIVERY) for content in contents])


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_any_records_of_any_deliveries(stream: Stream, data: st.DataObject) -> None:
    contents = st.builds(good(stream).__or__, changes) | st.sampled_from([DAMAGED_FILE, {}])
    assert_same(stream, data.draw(st.lists(st.tuples(contents, deliveries), max_size=30)))


def assert_same(stream: Stream, records: list[tuple[Content, Delivery]]) -> None:
    """Together each becomes what it becomes alone."""
    decoder = BatchDecoder(stream)
    told = Runs([[delivery for _, delivery in records]])
    frame = decoder.decode(ListedContents([content for content, _ in records]), told)
    assert [row(each) for each in frame.iter_rows()] == [row(decoder.single.decode(*each)) for each in records]


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_records_beyond_doubt_are_not_decoded_one_by_one(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = BatchDecoder(stream)
    delivery = Delivery(ARRIVED, is_arrival_known=True, is_tabular=False)
    expected = decoder.single.decode(good(stream), delivery)
    monkeypatch.setattr(decoder, "single", None)
    rows = decoder.decode(ListedContents([good(stream)] * 3), Runs([[delivery] * 3])).rows()
    assert [row(each) for each in rows] == [row(expected)] * 3
    assert rows[0][2] == datetime(2024, 3, 1, 11, tzinfo=UTC)
    assert rows[0][-1] is None


def row(values: tuple[Any, ...]) -> list[str]:
    """A row of a frame as `EventDecoder` gives it; as texts, in which minus zero is another than zero."""
    return [repr(_counted(value)) for value in values]


def _counted(value: Any) -> Any:
    if isinstance(value, datetime):
        return microseconds(value)
    if isinstance(value, Decimal):
        return +value  # has no minus zero in a column
    return (value - date(1970, 1, 1)) // timedelta(days=1) if isinstance(value, date) else value


BAD_LINES = [b"1", b"{", b"", b'{"user": "u"}', b'{"user": "u", "id": "e", "at": "never"}']
GOOD_LINE = b'{"user": "u", "id": "e", "at": "2024-03-01T11:00:00Z"}'


def test_of_records_that_are_the_same_one_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = STREAMS["times are ISO 8601"]
    lines = [line for number in range(500) for line in (BAD_LINES[number % 5], GOOD_LINE, BAD_LINES[number % 3])]
    contents = joined_contents([JsonContents(pl.Series(lines, dtype=pl.Binary), JsonShapes())])
    decoder = BatchDecoder(stream)
    expected = [decoder.single.decode(contents[place], DELIVERY) for place in range(len(lines))]
    judged: list[Content] = []
    decode = decoder.single.decode

    def counted(content: Content, delivery: Delivery) -> Any:
        judged.append(content)
        return decode(content, delivery)

    monkeypatch.setattr(decoder.single, "decode", counted)
    rows = decoder.decode(contents, Runs([Repeated(DELIVERY, len(lines))]))
    assert len(judged) == len(BAD_LINES)
    times = pl.col(pl.Datetime).dt.epoch("us")
    assert rows.with_columns(times).rows() == expected


def test_the_same_records_of_two_deliveries_are_two() -> None:
    contents = JsonContents(pl.Series([b"1"] * 4, dtype=pl.Binary), JsonShapes())
    later = replace(DELIVERY, arrival=ARRIVED + 1)
    rows = BatchDecoder(STREAMS["times are ISO 8601"]).decode(contents, Runs([[DELIVERY, DELIVERY, later, later]]))
    assert rows["arrival_time"].dt.epoch("us").to_list() == [ARRIVED] * 2 + [ARRIVED + 1] * 2
