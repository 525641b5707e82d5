"""Some records, field by field: what is there, and what it becomes or why it becomes nothing."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
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
from dedup_platform.sources.records import (
    AMBIGUOUS,
    ENDED_PROCESS,
    MALFORMED_RECORD,
    Content,
    Fields,
    Record,
    RejectedError,
)
from dedup_platform.sources.texts import ABSENT, text_of
from dedup_platform.sources.times import FROM_YEAR_1, ZONE_MARK, time_reader
from dedup_platform.stream import Attribute, FilesSource, Stream, TimeField
from dedup_platform.stream.definitions import Definition, paths_in, told
from dedup_platform.stream.paths import FieldPath, text_of_steps

__all__ = ["Sample", "SampledColumn", "SampledField", "SampledRecord", "sampled", "sampled_rows"]

LOOKED_AT = 1000
"""So many records are decoded."""
_SHOWN = 3
"""So many are told field by field, and one of every other reason to reject."""
_NAMES = 12
_MOST_NAMES = 500
"""Names of fields that are looked through for what was meant."""
_DEPTH = 3
_LARGEST_PAYLOAD = 64 * 1024
"""Of a row whose payload is larger nothing is read again."""


@dataclass(frozen=True)
class SampledField:
    """One column of a record's row: the field in words, its text in the record, and the value or why there is none."""

    column: str
    named: str
    text: str | None
    value: Any
    trouble: str | None = None
    is_absent: bool = False
    """Whether the record has no such field, not even an empty one."""


@dataclass
class SampledColumn:
    """One column in all records that have fields: how many have a value, and how many have none and why."""

    named: str
    found: int = 0
    empty: int = 0
    """Null, or an empty text."""
    absent: int = 0
    unreadable: int = 0
    values: list[str] = field(default_factory=list)
    """The first different texts."""

    def note(self, each: SampledField) -> None:
        """Count what one record has."""
        if each.is_absent:
            self.absent += 1
        elif not each.text:
            self.empty += 1
        elif each.trouble:
            self.unreadable += 1
        else:
            self.found += 1
        if each.text and len(self.values) < _SHOWN and each.text not in self.values:
            self.values.append(each.text)


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
    columns: dict[str, SampledColumn] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)
    """Those of fields that records have, as a stream file names them, in order."""

    def note(self, record: SampledRecord, content: Content) -> None:
        """Count one record, and keep it if it is one of the first or the first with its reason."""
        reason = record.rejection_reason
        if self.reasons.total() < _SHOWN or (reason and reason not in self.reasons):
            self.records.append(record)
        self.reasons[reason] += 1
        for each in record.fields:
            self.columns.setdefault(each.column, SampledColumn(each.named)).note(each)
        if not isinstance(content, str) and len(self.names) < _MOST_NAMES:
            self.names.update(dict.fromkeys(islice(_names_in(content), _MOST_NAMES)))

    @property
    def rejected(self) -> Counter[str]:
        """How many would be rejected, by reason."""
        return Counter({reason: count for reason, count in self.reasons.items() if reason})

    @property
    def wrong_names(self) -> Iterator[tuple[str, str]]:
        """The columns of what the stream file names and no record has, each with what may have been meant."""
        for name, column in self.columns.items():
            if column.absent and not (column.found or column.empty or column.unreadable):
                meant = get_close_matches(column.named, self.names, 3) or [
                    each for each in self.names if each.rpartition(".")[2] == column.named
                ]
                hint = f"; did you mean {' or '.join(meant)}?" if meant else ""
                there = list(self.names)[:_NAMES]
                more = f" and {len(self.names) - _NAMES} more" if len(self.names) > _NAMES else ""
                told = f"none of {column.absent:,} records has {column.named}{hint}; "
                yield name, f"{told}they have: {', '.join(there)}{more}"


def sampled(stream: Stream, file: Path) -> Sample:
    """The first records of a local file as a stream would read them; of a topic's the file is the value of one message.

    SourceError if the file cannot be read.
    """
    found = Sample()
    decoder, teller = EventDecoder(stream), _Teller(stream)
    for (payload, content, _), offset, index, delivery in islice(_records(stream, decoder, file), LOOKED_AT):
        reason = decoder.decode(content, delivery)[-1]
        fields = () if isinstance(content, str) else tuple(teller.fields(content, delivery))
        found.note(SampledRecord(offset, index, reason, payload, fields), content)
    return found


def sampled_rows(stream: Stream, rows: Iterable[Mapping[str, Any]]) -> Sample:
    """Rows of `raw_events` that were read and decoded already; small payloads are read again for their fields."""
    found = Sample()
    decoder, teller = EventDecoder(stream), _Teller(stream)
    for row in rows:
        payload, reason = row["payload"], row["rejection_reason"]
        content: Content = MALFORMED_RECORD
        fields: tuple[SampledField, ...] = ()
        is_safe = not (reason or "").startswith(ENDED_PROCESS) and len(payload or b"") <= _LARGEST_PAYLOAD
        if is_safe:
            content, delivery = decoder.kept(payload, row["payload_context"], row["source"], row["arrival_time"])
            fields = () if isinstance(content, str) else tuple(teller.fields(content, delivery))
        found.note(SampledRecord(row["source_offset"], row["source_index"], reason, payload or b"", fields), content)
    return found


def _names_in(record: Fields) -> Iterator[str]:
    """The paths of a record's fields, nested ones too, without those inside lists."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), record)]
    while waiting:
        steps, value = waiting.pop(0)
        if isinstance(value, dict) and value and len(steps) < _DEPTH:
            waiting += [((*steps, name), inner) for name, inner in islice(value.items(), _MOST_NAMES)]
        elif steps:
            yield text_of_steps(steps)


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
        return SampledField(column, told(said), text, value, trouble, self._is_absent(said, record))

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
        is_absent = self._is_absent(time.field, record)
        return SampledField(column, told(time.field), shown, value, trouble, is_absent)

    def _told_id(self, record: Fields, delivery: Delivery) -> SampledField:
        said = id_fields(self._stream.fields.event_id)
        named = ", ".join(map(told, said)) or "a hash of all fields"
        try:
            value = self._event_id(record, delivery.path)
            return SampledField("event_id", named, value, value)
        except RejectedError:
            troubles = [self._nothing(each, record) for each in said if self._is_nothing(each, record, delivery)]
            trouble = "; ".join(troubles) or "the record has no fields"
            is_absent = any(self._is_absent(each, record) for each in said)
            return SampledField("event_id", named, None, None, trouble, is_absent)

    def _is_absent(self, said: Definition, record: Fields) -> bool:
        """Whether none of the fields that a definition names is there. One that names none is never absent."""
        named = field_reader(said, self._format).named
        return bool(named) and all(each.find(record, "") is ABSENT for each in named)

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
