"""The first records of a file, field by field: what is there, and what it becomes or why it becomes nothing."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from dedup_platform.errors import SourceError
from dedup_platform.planning.moments import utc_datetime
from dedup_platform.sources.attributes import attribute_reader
from dedup_platform.sources.decoding import Delivery, EventDecoder
from dedup_platform.sources.event_ids import event_id_reader, id_fields
from dedup_platform.sources.field_values import field_reader, step_into, time_field_reader
from dedup_platform.sources.files import placed_records
from dedup_platform.sources.messages import MessageReader
from dedup_platform.sources.pieces import MAX_PIECE_BYTES
from dedup_platform.sources.records import AMBIGUOUS, Fields, Record, RejectedError
from dedup_platform.sources.texts import ABSENT, text_of
from dedup_platform.sources.times import FROM_YEAR_1, ZONE_MARK, time_reader
from dedup_platform.stream import Attribute, FilesSource, Stream, TimeField
from dedup_platform.stream.definitions import Definition, paths_in, told
from dedup_platform.stream.paths import FieldPath, text_of_steps

__all__ = ["Sample", "SampledField", "SampledRecord", "sampled"]

LOOKED_AT = 1000
"""So many records are decoded."""
_SHOWN = 3
"""So many are told field by field, and one of every other reason to reject."""
_NAMES = 12


@dataclass(frozen=True)
class SampledField:
    """One column of a record's row: the field in words, its text in the record, and the value or why there is none."""

    column: str
    named: str
    text: str | None
    value: Any
    trouble: str | None = None


@dataclass(frozen=True)
class SampledRecord:
    """One record at its place in the file. Of one that cannot be read at all there are no fields."""

    offset: int
    index: int
    rejection_reason: str | None
    payload: bytes
    fields: tuple[SampledField, ...]


@dataclass
class Sample:
    """What was found: reasons with their numbers (None: events), and some records one by one."""

    reasons: Counter[str | None] = field(default_factory=Counter)
    records: list[SampledRecord] = field(default_factory=list)


def sampled(stream: Stream, file: Path) -> Sample:
    """The first records of a local file as a stream would read them; of a topic's the file is the value of one message.

    SourceError if the file cannot be read.
    """
    found = Sample()
    decoder, teller = EventDecoder(stream), _Teller(stream)
    for (payload, content, _), offset, index, delivery in islice(_records(stream, decoder, file), LOOKED_AT):
        reason = decoder.decode(content, delivery)[-1]
        if found.reasons.total() < _SHOWN or (reason and reason not in found.reasons):
            fields = () if isinstance(content, str) else tuple(teller.fields(content, delivery))
            found.records.append(SampledRecord(offset, index, reason, payload, fields))
        found.reasons[reason] += 1
    return found


def _records(stream: Stream, decoder: EventDecoder, file: Path) -> Iterator[tuple[Record, int, int, Delivery]]:
    file_format = stream.source.format
    try:
        with file.open("rb") as content:
            modified = datetime.fromtimestamp(file.stat().st_mtime, UTC)
            if isinstance(stream.source, FilesSource):
                path = stream.source.below_root(str(file.absolute()))
                delivery = decoder.delivery(path, modified, file_format)
                for record, offset, index in placed_records(stream, content, path):
                    yield record, offset, index, delivery
                return
            delivery = decoder.message_delivery(int(modified.timestamp() * 1_000_000), file_format, True)
            for index, record in enumerate(MessageReader(stream).records(content.read(MAX_PIECE_BYTES))):
                yield record, 0, index, delivery
    except OSError as error:
        raise SourceError(file, f"cannot be read: {error.strerror}") from None


class _Teller:
    """Tells what becomes of each field of a stream's records."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._format = stream.source.format
        self._event_id = event_id_reader(stream.fields.event_id, self._format)

    def fields(self, record: Fields, delivery: Delivery) -> Iterator[SampledField]:
        """Those of one record, column by column."""
        said = self._stream.fields
        yield self._told("entity_id", said.entity_id, record, delivery)
        yield self._told_id(record, delivery)
        yield self._told_time("event_time", said.event_time, record, delivery)
        if isinstance(self._stream.arrival_time, TimeField):
            yield self._told_time("arrival_time", self._stream.arrival_time, record, delivery)
        for column, attribute in self._stream.attributes.items():
            if attribute.type == "timestamp":
                yield self._told_time(column, attribute, record, delivery)
            else:
                read = attribute_reader(attribute)
                yield self._told(column, attribute.field, record, delivery, read, attribute.type)

    def _told(
        self,
        column: str,
        said: Definition,
        record: Fields,
        delivery: Delivery,
        read: Callable[[str], Any] | None = None,
        kind: str = "string",
    ) -> SampledField:
        text = _text(lambda: field_reader(said, self._format).value(record, delivery.path))
        value = read(text) if read and text else text or None
        trouble = self._nothing(said, record) if not text else f"is no {kind}" if value is None else None
        return SampledField(column, told(said), text, value, trouble)

    def _told_time(self, column: str, time: TimeField | Attribute, record: Fields, delivery: Delivery) -> SampledField:
        text = _text(lambda: time_field_reader(time, self._format).value(record, delivery.path))
        moment = time_reader(time.format, time.timezone)(text) if text else None
        value = utc_datetime(moment) if moment is not None and moment in FROM_YEAR_1 else None
        shown = text.replace(ZONE_MARK, " in zone ") if text else text
        trouble = None
        if value is None:
            trouble = (
                f"is no time of the format {time.format or 'iso8601'}" if text else self._nothing(time.field, record)
            )
        return SampledField(column, told(time.field), shown, value, trouble)

    def _told_id(self, record: Fields, delivery: Delivery) -> SampledField:
        said = id_fields(self._stream.fields.event_id)
        named = ", ".join(map(told, said)) or "a hash of all fields"
        try:
            value = self._event_id(record, delivery.path)
            return SampledField("event_id", named, value, value)
        except RejectedError:
            troubles = [self._nothing(each, record) for each in said if self._is_nothing(each, record, delivery)]
            return SampledField("event_id", named, None, None, "; ".join(troubles) or "the record has no fields")

    def _is_nothing(self, said: Definition, record: Fields, delivery: Delivery) -> bool:
        return field_reader(said, self._format).value(record, delivery.path) in (None, "")

    def _nothing(self, said: Definition, record: Fields) -> str:
        """Why a definition gives nothing: where each of its paths ends."""
        ends = [_end(path, record, self._format == "parquet") for path in paths_in(said)]
        return "; ".join(dict.fromkeys(end for end in ends if end)) or "nothing is found by the pattern"


def _text(value: Callable[[], Any]) -> str | None:
    try:
        return text_of(value())
    except RejectedError:  # a column whose name stands twice
        return None


def _end(path: FieldPath, record: Fields, maps_are_pairs: bool) -> str | None:
    """Where a path ends at nothing; None if it leads to something."""
    if path.name is not None and path.name in record:
        return _nothing_in(path.text, record[path.name])
    value: Any = record
    for number, step in enumerate(path.steps or (path.text,)):
        inner = step_into(value, step, maps_are_pairs)
        if inner is ABSENT:
            there = text_of_steps(path.steps[:number]) or "the record"
            return f"{there} has no {step!r}{_has(value)}{_no_path(path)}"
        if inner is None or inner is AMBIGUOUS:
            return _nothing_in(text_of_steps(path.steps[: number + 1]), inner)
        value = inner
    return _nothing_in(path.text, value)


def _nothing_in(there: str, value: Any) -> str | None:
    if value is AMBIGUOUS:
        return f"{there} is the name of more than one column"
    return f"{there} is {'null' if value is None else 'empty'}" if value in (None, "") else None


def _no_path(path: FieldPath) -> str:
    if path.not_a_step is None:
        return ""
    return f"; it is no path, as {path.not_a_step!r} in it is no step: .name, [0] or ['a name']"


def _has(value: Any) -> str:
    if isinstance(value, dict):
        names = list(value)
        more = f" and {len(names) - _NAMES} more" if names[_NAMES:] else ""
        return f"; it has: {', '.join(names[:_NAMES])}{more}" if names else "; it is empty"
    return f"; it is a list of {len(value)}, from [0] on" if isinstance(value, list) else "; it has no parts"
