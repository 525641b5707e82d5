"""From a record's bytes to an event, or to the reason why it cannot be one.

The reasons are looked for in this order, and the first found is the record's: malformed or damaged, arrival time,
missing columns, event id, entity, event time, its bounds, attributes. The same functions serve a replay: payload and
payload_context alone, with the record's `source` and the arrival time that raw_events holds, decode it again.
"""

import json
import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from dedup_platform.planning.moments import in_microseconds, microseconds
from dedup_platform.sources.attributes import attribute_reader
from dedup_platform.sources.event_ids import event_id_reader, id_fields
from dedup_platform.sources.field_values import FieldReader, field_reader, time_field_reader
from dedup_platform.sources.messages import MessageReader
from dedup_platform.sources.records import (
    BEFORE_START,
    BEYOND_HORIZON,
    EVENT_TIME_IN_FUTURE,
    IMPOSSIBLE_EVENT_TIME,
    MISSING_ENTITY,
    MISSING_FIELD,
    TOMBSTONE,
    UNFORESEEN,
    UNREADABLE_ARRIVAL_TIME,
    UNREADABLE_ATTRIBUTE,
    UNREADABLE_EVENT_TIME,
    Content,
    Fields,
    RejectedError,
    unprocessable,
)
from dedup_platform.sources.texts import text_of
from dedup_platform.sources.times import FROM_1970, time_reader
from dedup_platform.stream import FileName, KafkaAppendTime, Stream, TimeField

__all__ = ["CREATE_TIME", "Delivery", "EventDecoder", "Row"]

CREATE_TIME = "create_time"
"""Name in the payload_context of a Kafka message that does not tell when the broker appended it."""

_TABULAR = ("csv", "parquet", "avro")

Row = tuple[Any, ...]
"""entity_id, event_id, event_time, arrival_time, the attributes in the stream's order, rejection_reason.

Times are microseconds since 1970 (UTC), dates days. Of a rejected record only arrival_time and the reason are set.
"""


@dataclass(frozen=True)
class Delivery:
    """What the records of one file share. `arrival` holds for records that do not tell their own; in microseconds."""

    arrival: int
    is_arrival_known: bool
    is_tabular: bool  # a column that the file lacks is an error of the file; in JSON a name may be left out
    is_arrival_fixed: bool = False  # `arrival` was told by the record itself, when it was taken in
    path: str = ""  # of the file, below the source's root


class EventDecoder:
    """Decodes the records of one stream. Pure: it reads no clock and no file."""

    def __init__(self, stream: Stream) -> None:
        fields, file_format = stream.fields, stream.source.format
        entity = field_reader(fields.entity_id, file_format)
        self._entity = entity.value
        self._keeps_missing_entity = stream.missing_entity == "keep"
        self._event_id = event_id_reader(fields.event_id, file_format)
        time = time_field_reader(fields.event_time, file_format)
        self._time = time.value
        self._read_time = time_reader(fields.event_time.format, fields.event_time.timezone)
        self.messages = MessageReader(stream)
        ids = (field_reader(field, file_format) for field in id_fields(fields.event_id))
        self._columns = (entity, *ids, time)
        self._arrival = stream.arrival_time
        if isinstance(self._arrival, TimeField | FileName):
            self._read_arrival = time_reader(self._arrival.format, self._arrival.timezone)
        if isinstance(self._arrival, TimeField):
            self._arrival_field = time_field_reader(self._arrival, file_format)
        self._attributes = [
            (time_field_reader(attribute, file_format).value, attribute_reader(attribute), UNREADABLE_ATTRIBUTE + name)
            for name, attribute in stream.attributes.items()
        ]
        self._start = microseconds(stream.partitions.start)
        self._max_future = in_microseconds(stream.late.max_future)
        self._horizon = in_microseconds(stream.late.horizon or timedelta.max)

    def delivery(self, source: str, modified: datetime, file_format: str) -> Delivery:
        """What the records of the file `source`, a path below the stream's root, share."""
        arrival: int | None = microseconds(modified)
        if isinstance(self._arrival, FileName):
            found = re.search(self._arrival.file_name, source)
            arrival = self._possible_arrival(found[1] if found else None)
        is_known = arrival is not None
        known = arrival if arrival is not None else microseconds(modified)
        return Delivery(known, is_known, file_format in _TABULAR, path=source)

    def message_delivery(self, timestamp: int, message_format: str, has_append_time: bool) -> Delivery:
        """What the records of one Kafka message share; `timestamp` is the message's own, in microseconds."""
        is_known = has_append_time or not isinstance(self._arrival, KafkaAppendTime)
        return Delivery(timestamp, is_known, message_format in _TABULAR)

    def kept(
        self,
        payload: bytes | None,
        payload_context: str,
        source: str,
        modified: datetime,
        is_arrival_fixed: bool = False,
    ) -> tuple[Content, Delivery]:
        """What `decode` takes, of one record as raw_events holds it.

        `modified` is the file's modification time or, for a replay, the row's `arrival_time`: where it decides, the
        two are the same. `is_arrival_fixed` says that it decides: the record was an event already.
        """
        context = _context(payload_context)
        delivery = self.delivery(source, modified, context["format"])
        if CREATE_TIME in context:
            delivery = self.message_delivery(delivery.arrival, context["format"], has_append_time=False)
        if is_arrival_fixed:
            delivery = replace(delivery, arrival=microseconds(modified), is_arrival_known=True, is_arrival_fixed=True)
        content = TOMBSTONE if payload is None else self.messages.content(payload, context)
        return content, delivery

    def decode(self, content: Content, delivery: Delivery) -> Row:
        """The row of a record. Raises for nothing that a record may hold."""
        arrival = delivery.arrival
        try:
            if isinstance(content, str):
                raise RejectedError(content)
            arrival = self._arrival_time(content, delivery)
            if delivery.is_tabular:
                self._check_columns(content)
            path = delivery.path
            event_id = self._event_id(content, path)
            entity_id = self._entity_id(content, path)
            event_time = self._event_time(content, path, arrival)
            return (entity_id, event_id, event_time, arrival, *self._attribute_values(content, path), None)
        except RejectedError as rejected:
            return self.rejected(arrival, rejected.reason)
        except UNFORESEEN as error:
            return self.rejected(arrival, unprocessable(error))

    def rejected(self, arrival: int, reason: str) -> Row:
        """The row of a record that cannot be an event."""
        return (None, None, None, arrival, *(None for _ in self._attributes), reason)

    def _arrival_time(self, fields: Fields, delivery: Delivery) -> int:
        if delivery.is_arrival_fixed:
            return delivery.arrival
        if isinstance(self._arrival, TimeField):
            if delivery.is_tabular:
                _check_column(self._arrival_field, fields)
            arrival = self._possible_arrival(text_of(self._arrival_field.value(fields, delivery.path)))
            if arrival is None:
                raise RejectedError(UNREADABLE_ARRIVAL_TIME)
            return arrival
        if not delivery.is_arrival_known:
            raise RejectedError(UNREADABLE_ARRIVAL_TIME)
        return delivery.arrival

    def _possible_arrival(self, text: str | None) -> int | None:
        arrival = self._read_arrival(text) if text is not None else None
        return arrival if arrival is not None and arrival in FROM_1970 else None

    def _check_columns(self, fields: Fields) -> None:
        for column in self._columns:
            _check_column(column, fields)

    def _entity_id(self, fields: Fields, path: str) -> str | None:
        entity_id = text_of(self._entity(fields, path)) or None
        if entity_id is None and not self._keeps_missing_entity:
            raise RejectedError(MISSING_ENTITY)
        return entity_id

    def _event_time(self, fields: Fields, path: str, arrival: int) -> int:
        text = text_of(self._time(fields, path))
        event_time = self._read_time(text) if text is not None else None
        if event_time is None:
            raise RejectedError(UNREADABLE_EVENT_TIME)
        if event_time not in FROM_1970:
            raise RejectedError(IMPOSSIBLE_EVENT_TIME)
        if event_time > arrival + self._max_future:
            raise RejectedError(EVENT_TIME_IN_FUTURE)
        if event_time < self._start:
            raise RejectedError(BEFORE_START)
        if event_time < arrival - self._horizon:
            raise RejectedError(BEYOND_HORIZON)
        return event_time

    def _attribute_values(self, fields: Fields, path: str) -> list[Any]:
        values = []
        for find, read, reason in self._attributes:
            value = text_of(find(fields, path))
            if read is not None and value is not None:
                parsed = read(value)
                if value and parsed is None:
                    raise RejectedError(reason)
                value = parsed
            values.append(value)
        return values


def _check_column(column: FieldReader, fields: Fields) -> None:
    if lacking := column.missing(fields):
        raise RejectedError(MISSING_FIELD + lacking)


@lru_cache(1024)
def _context(payload_context: str) -> dict[str, Any]:
    context: dict[str, Any] = json.loads(payload_context)
    return context
