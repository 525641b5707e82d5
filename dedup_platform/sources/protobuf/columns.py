"""Events of one message type read by columns, so that no object is made of one whose encoding columns understand.

They are the events that `ProtobufMessages.content` gives, one by one. All of an event's encoding is looked at, also
what nobody asks for: an event is in doubt if any part of it may be malformed. So is one in which a message that is not
repeated stands twice, which Protobuf merges, or two fields of a oneof.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from dedup_platform.sources.contents import EncodedContents, NamedField
from dedup_platform.sources.protobuf.column_texts import texts_of_values
from dedup_platform.sources.protobuf.encoded_fields import EVERY, FieldRun
from dedup_platform.sources.protobuf.event_reading import (
    ALONE,
    ENTERED,
    TOLD,
    EventReading,
    MessageKinds,
    Path,
)
from dedup_platform.sources.protobuf.values import TIMESTAMP, Converters, is_map
from dedup_platform.sources.records import Content
from dedup_platform.sources.text.typed_texts import timestamp_texts
from dedup_platform.sources.texts import Texts, no_texts, text_of
from dedup_platform.stream.paths import Step
from dedup_platform.stream.schemas import WRAPPERS

__all__ = ["EventColumns", "ProtobufContents"]

_SECOND = 1_000_000_000
_LAST_SECOND = 2**63 // _SECOND - 1
"""Since 1970, and before it: of which 64 bits hold every nanosecond."""


class ProtobufContents(EncodedContents):
    """Those of events of one message type; `read` reads one."""

    def __init__(self, payloads: pl.Series, columns: "EventColumns", read: Callable[[bytes], Content]) -> None:
        super().__init__(payloads)
        self._columns = columns
        self._read = read

    def _content(self, payload: bytes) -> Content:
        return self._read(payload)

    def texts(self, fields: Sequence[NamedField]) -> Sequence[Texts]:
        return self._columns.texts(self._payloads, fields)

    @property
    def kind(self) -> object:
        return self._columns


class EventColumns:
    """Reads fields of many events of one message type."""

    def __init__(self, kind: Descriptor) -> None:
        self._kind = kind
        self._kinds = MessageKinds()
        self._converters = Converters()

    def texts(self, events: pl.Series, fields: Sequence[NamedField]) -> list[Texts]:
        """The texts of each field in each of some events, given as binary values, at least one."""
        targets = [self._target(field) for field in fields]
        wanted: dict[Path, str] = {}
        for target in targets:
            if target:
                target.add_to(wanted)
        reading = EventReading(events, wanted)
        reading.read(self._kinds, self._kind)
        told = [target.texts(reading) if target else Texts(no_texts(len(events))) for target in targets]
        # Only now, as texts may leave events in doubt, too.
        in_doubt = pl.Series(reading.in_doubt) if reading.in_doubt.any() else None
        return [Texts(each.values, in_doubt, each.moments) for each in told]

    def _target(self, field: NamedField) -> "_Target | None":
        """Where the values of a field stand; None if nowhere."""
        name = field.path.name
        is_name = name is not None and name in self._kind.fields_by_name
        return self._led_to(self._kind, (), (name,) if name and is_name else field.path.steps)

    def _led_to(self, kind: Descriptor, above: Path, steps: Sequence[Step]) -> "_Target | None":
        field = kind.fields_by_name.get(steps[0]) if steps and isinstance(steps[0], str) else None
        if field is None:
            return None
        path, rest = (*above, field.name), steps[1:]
        if field.is_repeated:
            return _Alone(path, None if rest else "{}" if is_map(field) else "[]")
        if field.message_type is None:
            return None if rest else self._scalar(path, field)
        if field.message_type.full_name in WRAPPERS:
            value = field.message_type.fields_by_name["value"]
            return None if rest else self._scalar((*path, value.name), value)
        if field.message_type.full_name == TIMESTAMP:
            return _Alone(path) if rest else _Time(path)
        return self._led_to(field.message_type, path, rest) if rest else _Alone(path)

    def _scalar(self, path: Path, field: FieldDescriptor) -> "_Target":
        return _Scalar(path, text_of(self._converters.default(field)), field)


class _Target:
    """What stands at a path below an event. `default` is the text where it is not set in a message that is."""

    def __init__(self, path: Path, default: str | None = None) -> None:
        self._path = path
        self._default = default

    def add_to(self, wanted: dict[Path, str]) -> None:
        """Add what an event must be looked through for."""
        for length in range(1, len(self._path)):
            wanted.setdefault(self._path[:length], ENTERED)

    @abstractmethod
    def texts(self, reading: EventReading) -> Texts:
        """Its texts in each event that is not in doubt."""

    def _placed(self, reading: EventReading, texts: pl.Series, runs: Sequence[FieldRun]) -> pl.Series:
        """The texts of values, those of all runs one behind the other, as one for each event: that of its last."""
        if len(runs) == 1 and isinstance(runs[0].rows, slice):
            return texts
        default, absent = len(texts), len(texts) + 1
        places = np.full(reading.count, absent if self._path[:-1] else default)
        for run in reading.found[self._path[:-1]] if self._path[:-1] else ():
            places[run.rows] = default
        first = 0
        for run in runs:
            end = first + len(run.places)
            places[run.rows] = np.arange(first, end)
            first = end
        return pl.concat([texts, pl.Series([self._default, None], dtype=pl.String)]).gather(places)


class _Alone(_Target):
    """Something of which columns only tell that it is not there."""

    def add_to(self, wanted: dict[Path, str]) -> None:
        super().add_to(wanted)
        wanted[self._path] = ALONE

    def texts(self, reading: EventReading) -> Texts:
        return Texts(self._placed(reading, no_texts(0), ()))


class _Scalar(_Target):
    def __init__(self, path: Path, default: str | None, field: FieldDescriptor) -> None:
        super().__init__(path, default)
        self._field = field

    def add_to(self, wanted: dict[Path, str]) -> None:
        super().add_to(wanted)
        wanted[self._path] = TOLD

    def texts(self, reading: EventReading) -> Texts:
        runs = reading.found[self._path]
        told = [texts_of_values(reading.data, self._field, run) for run in runs]
        for run, texts in zip(runs, told, strict=True):
            reading.leave(run.rows, texts.is_not_null().to_numpy())
        return Texts(self._placed(reading, pl.concat(told) if told else no_texts(0), runs))


class _Time(_Target):
    """A google.protobuf.Timestamp."""

    def add_to(self, wanted: dict[Path, str]) -> None:
        super().add_to(wanted)
        wanted.setdefault(self._path, ENTERED)
        for part in ("seconds", "nanos"):
            wanted[(*self._path, part)] = TOLD

    def texts(self, reading: EventReading) -> Texts:
        is_set = np.zeros(reading.count, np.bool_)
        for run in reading.found[self._path]:
            is_set[run.rows] = True
        seconds, nanos = (self._numbers(reading, part) for part in ("seconds", "nanos"))
        is_plain = (nanos >= 0) & (nanos < _SECOND) & (seconds >= -_LAST_SECOND) & (seconds <= _LAST_SECOND)
        reading.leave(EVERY, is_plain)
        ticks = np.where(is_plain, seconds * _SECOND + nanos, 0)
        texts, moments = timestamp_texts(ticks, _SECOND, "Z"), pl.Series(ticks // 1_000)
        if is_set.all():
            return Texts(texts, moments=moments)
        return Texts(_where(is_set, texts), moments=_where(is_set, moments))

    def _numbers(self, reading: EventReading, part: str) -> npt.NDArray[np.int64]:
        numbers = np.zeros(reading.count, np.int64)
        for run in reading.found[(*self._path, part)]:
            numbers[run.rows] = run.numbers.view(np.int64)
        return numbers


def _where(is_set: npt.NDArray[np.bool_], values: pl.Series) -> pl.Series:
    return pl.select(pl.when(pl.Series(is_set)).then(values)).to_series()
