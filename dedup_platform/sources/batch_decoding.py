"""From the contents of many records to their events, a column at a time.

What a record means is said by `EventDecoder`, which decodes one. Columns are read only of records whose event is beyond
doubt: values are texts, times and numbers are written plainly, nothing is missing or out of bounds. Every other record
is given to `EventDecoder`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from dedup_platform.planning.moments import in_microseconds, microseconds
from dedup_platform.sources.attributes import attribute_reader
from dedup_platform.sources.contents import Contents
from dedup_platform.sources.decoding import Delivery, EventDecoder, Row
from dedup_platform.sources.event_ids import event_id_reader, id_readers, ids_of
from dedup_platform.sources.field_values import FieldReader, RecordColumns, field_reader, time_field_reader
from dedup_platform.sources.plain import plain_booleans, plain_decimals, plain_doubles, plain_longs, plain_times
from dedup_platform.sources.records import UNFORESEEN, Content, RejectedError, pass_on_intended, unprocessable
from dedup_platform.sources.repeated import Runs, repeated_each
from dedup_platform.sources.texts import Texts, any_of, no_texts, not_empty
from dedup_platform.sources.times import FROM_1970, FROM_YEAR_1, time_reader
from dedup_platform.stream import ISO_8601, Attribute, FieldId, Stream, TimeField, ZoneField, decimal_of, formats_of
from dedup_platform.tables import RAW_EVENTS, columns

__all__ = ["BatchDecoder", "content_at", "typed"]

_ARROW_TYPES = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "binary": pa.binary(),
}
_MOMENT = pl.Datetime("us", "UTC")
_PLAIN = {"boolean": plain_booleans, "double": plain_doubles, "long": plain_longs}
_TEXT, _IS_SURE = "_text_of_", "_is_sure"


@dataclass(frozen=True)
class _Column:
    """How the texts of a field become the values of a column."""

    field: FieldReader
    type: str = "string"
    read: Callable[[str], Any] | None = None
    """The value of one text, or None if it has none; without it the texts are the values."""
    plain: Callable[[pl.Series], pl.Series] | None = None
    """The values of all texts that are written plainly, and null for others."""
    of_moments: Callable[[pl.Series], pl.Series] | None = None
    """The same values from the moments of texts, if those are known."""

    def values(self, told: Texts) -> pl.Series:
        """The values of texts: the plain ones together, and what is made of one text after the other."""
        texts = told.values
        if self.read is None:
            return texts
        if self.plain is None:
            return typed([None if text is None else self.read(text) for text in texts], self.type)
        if told.moments is not None and self.of_moments is not None:
            plain = self.of_moments(told.moments)
        else:
            plain = self.plain(texts)
        if plain.null_count() == texts.null_count():
            return plain
        rest = (plain.is_null() & texts.is_not_null()).arg_true()
        return plain.scatter(rest, pl.Series([self.read(text) for text in texts[rest]], dtype=plain.dtype))


class BatchDecoder:
    """Decodes the records of one stream. Pure, as is `single`, the decoder of one record."""

    def __init__(self, stream: Stream) -> None:
        fields, file_format = stream.fields, stream.source.format
        field, time_field = (partial(read, file_format=file_format) for read in (field_reader, time_field_reader))
        self.single = EventDecoder(stream)
        self._names = ("entity_id", "event_id", "event_time", "arrival_time", *stream.attributes, "rejection_reason")
        self._types = {column.name: str(column.type) for column in columns(stream, RAW_EVENTS)}
        self._id, self._format = fields.event_id, file_format
        self._event_id = event_id_reader(fields.event_id, file_format)
        self._columns = {
            "entity_id": _Column(field(fields.entity_id)),
            "event_time": _time(time_field(fields.event_time), fields.event_time, FROM_1970),
        }
        if isinstance(fields.event_id, FieldId):
            self._columns["event_id"] = _Column(field(fields.event_id.field))
        if isinstance(stream.arrival_time, TimeField):
            self._columns["arrival_time"] = _time(time_field(stream.arrival_time), stream.arrival_time, FROM_1970)
        self._columns |= {name: _attribute(time_field(each), each) for name, each in stream.attributes.items()}
        self._named = [named for column in self._columns.values() for named in column.field.named]
        self._doubts = [*_doubts(stream), *(_has_no_value(name, self._columns[name]) for name in stream.attributes)]

    def decode(self, contents: Contents, deliveries: Runs[Delivery]) -> pl.DataFrame:
        """The rows of some records, each what `EventDecoder.decode` says of it, with the types of `raw_events`."""
        try:
            events, is_sure = self._events(contents, deliveries)
        except UNFORESEEN as error:
            pass_on_intended(error)
            # One of them, or all together: each shows when it is alone.
            return self._one_by_one(contents, deliveries, range(len(contents)))
        if is_sure.all():
            return events
        unsure = (~is_sure).arg_true().to_list()
        others = self._one_by_one(contents, deliveries, unsure)
        chosen = np.arange(len(events))
        chosen[unsure] = np.arange(len(events), len(events) + len(others))
        return pl.concat([events, others], rechunk=True)[chosen]

    def _events(self, contents: Contents, deliveries: Runs[Delivery]) -> tuple[pl.DataFrame, pl.Series]:
        """The rows as columns tell them, and whether each is beyond doubt."""
        ids = self._id_readers(contents)
        named = [*self._named, *(named for _, field in ids for named in field.named)]
        records = RecordColumns(contents, named, lambda: _each(deliveries, lambda told: told.path, pl.String))
        told = {name: each.field.texts(records) for name, each in self._columns.items()}
        texts = pl.DataFrame([each.values.alias(name) for name, each in told.items()])
        values = {name: each.values(told[name]) for name, each in self._columns.items()}
        if not isinstance(self._id, FieldId):
            known = ids_of(self._id, [(name, field.texts(records).values) for name, field in ids]) if ids else None
            values["event_id"] = self._ids(known, contents, deliveries)
        values["entity_id"] = pl.select(not_empty(values["entity_id"])).to_series()
        values["arrival_time"] = _arrivals(deliveries, values.get("arrival_time"))
        rows = pl.DataFrame(values).hstack(texts.select(pl.all().name.prefix(_TEXT)))
        is_sure = ~pl.any_horizontal(pl.coalesce(doubt, True) for doubt in self._doubts)
        events = rows.select(
            *(pl.col(name).cast(_MOMENT) if self._types[name] == "timestamp" else name for name in self._names[:-1]),
            pl.lit(None, pl.String).alias(self._names[-1]),
            is_sure.alias(_IS_SURE),
        )
        sure = events[_IS_SURE].scatter(list(contents.rejected), False)
        # Of a table, what has no value may be a column that is missing.
        has_no_column = texts["entity_id"].is_null() if any(each.is_tabular for each in deliveries.values) else None
        in_doubt = any_of((records.in_doubt, has_no_column))
        return events.select(self._names), sure if in_doubt is None else sure & ~in_doubt

    def _id_readers(self, contents: Contents) -> Sequence[tuple[str, FieldReader]]:
        return () if isinstance(self._id, FieldId) else id_readers(self._id, contents.names, self._format)

    def _ids(self, known: pl.Series | None, contents: Contents, deliveries: Runs[Delivery]) -> pl.Series:
        """The ids that columns tell, and those of single records where they do not."""
        if known is None:
            known = no_texts(len(contents))
        others = known.is_null().arg_true()
        if not len(others):
            return known
        ids = [self._event_id_of(contents[place], deliveries[place].path) for place in others]
        return known.scatter(others, pl.Series(ids, dtype=pl.String))

    def _event_id_of(self, content: Content, path: str) -> str | None:
        try:
            return None if isinstance(content, str) else self._event_id(content, path)
        except RejectedError:
            return None

    def _one_by_one(self, contents: Contents, deliveries: Runs[Delivery], places: Sequence[int]) -> pl.DataFrame:
        """The rows of the records at these places. Those that are the same are decoded once.

        What was packed to a hundredth of its size repeats itself, and so does who sends rubbish.
        """
        alike = contents.first_alike(places) if len(deliveries.values) == 1 else places
        numbers = {place: number for number, place in enumerate(dict.fromkeys(alike))}
        rows = self._decoded([self.single.decode(content_at(contents, each), deliveries[each]) for each in numbers])
        return rows if len(numbers) == len(places) else rows[[numbers[place] for place in alike]]

    def _decoded(self, rows: Sequence[Row]) -> pl.DataFrame:
        try:
            return self._typed(rows)
        except UNFORESEEN:
            return pl.concat(map(self._typed_alone, rows))

    def _typed_alone(self, row: Row) -> pl.DataFrame:
        try:
            return self._typed([row])
        except UNFORESEEN as error:
            return self._typed([self.single.rejected(row[self._names.index("arrival_time")], unprocessable(error))])

    def _typed(self, rows: Sequence[Row]) -> pl.DataFrame:
        values = zip(self._names, zip(*rows, strict=True), strict=True)
        return pl.DataFrame([typed(each, self._types[name]).alias(name) for name, each in values])


def content_at(contents: Contents, place: int) -> Content:
    """What the record at this place holds; the reason, if an error comes that nobody foresaw."""
    try:
        return contents[place]
    except UNFORESEEN as error:
        return unprocessable(error)


def typed(values: Sequence[Any], column_type: str) -> pl.Series:
    """Values of a `Row`, for a column of this type."""
    size = decimal_of(column_type)
    series = pl.from_arrow(pa.array(values, pa.decimal128(*size) if size else _ARROW_TYPES[column_type]))
    assert isinstance(series, pl.Series)
    return series


def _doubts(stream: Stream) -> Iterator[pl.Expr]:
    """What makes the event of a row doubtful; so does null."""
    event_time, arrival_time = pl.col("event_time"), pl.col("arrival_time")
    yield pl.col("entity_id").is_null() if stream.missing_entity == "reject" else pl.lit(False)
    yield pl.col("event_id") == ""
    yield event_time < microseconds(stream.partitions.start)
    yield event_time > arrival_time + in_microseconds(stream.late.max_future)
    if stream.late.horizon is not None:
        yield event_time < arrival_time - in_microseconds(stream.late.horizon)


def _has_no_value(name: str, column: _Column) -> pl.Expr:
    """Whether a text of an attribute has no value. None and an empty one need none."""
    if column.read is None:
        return pl.lit(False)
    return pl.col(name).is_null() & (pl.col(_TEXT + name).fill_null("") != "")


def _arrivals(deliveries: Runs[Delivery], read: pl.Series | None) -> pl.Series:
    """When records arrived: as their deliveries tell, or as was read of a field of theirs."""
    told = _each(
        deliveries,
        lambda each: each.arrival if each.is_arrival_fixed or (each.is_arrival_known and read is None) else None,
        pl.Int64,
    )
    return told if read is None else told.zip_with(told.is_not_null(), read)


def _each(deliveries: Runs[Delivery], said: Callable[[Delivery], Any], dtype: type[pl.DataType]) -> pl.Series:
    """What each record's delivery says."""
    return repeated_each(pl.Series(map(said, deliveries.values), dtype=dtype), deliveries.counts)


def _attribute(field: FieldReader, attribute: Attribute) -> _Column:
    if attribute.type == "timestamp":
        return _time(field, attribute, FROM_YEAR_1)
    size = decimal_of(attribute.type)
    plain = partial(plain_decimals, precision=size[0], scale=size[1]) if size else _PLAIN.get(attribute.type)
    return _Column(field, attribute.type, attribute_reader(attribute), plain)


def _time(field: FieldReader, time: TimeField | Attribute, possible: range) -> _Column:
    read_time = time_reader(time.format, time.timezone)

    def read(text: str) -> int | None:
        moment = read_time(text)
        return moment if moment is not None and moment in possible else None

    time_format = formats_of(time.format)[0]

    def plain(texts: pl.Series) -> pl.Series:
        return possible_only(plain_times(texts, time_format, str(time.timezone)))

    def possible_only(moments: pl.Series) -> pl.Series:
        is_possible = moments.is_between(possible.start, possible.stop - 1)
        return moments if is_possible.all() else pl.select(pl.when(is_possible).then(moments)).to_series()

    # What stands in the record decides for each text alone.
    if isinstance(time.timezone, ZoneField):
        return _Column(field, "timestamp", read)
    return _Column(field, "timestamp", read, plain, possible_only if time_format in (None, ISO_8601) else None)
