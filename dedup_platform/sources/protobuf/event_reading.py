"""Many encoded events gone through by their schema: what they hold at some paths, and which of them are in doubt."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from dedup_platform.sources.binary_columns import EncodedBytes, Places
from dedup_platform.sources.protobuf.encoded_fields import (
    BYTES,
    EVERY,
    FIXED_32,
    FIXED_64,
    FIXED_SIZES,
    VARINT,
    FieldRun,
    Rows,
    Walk,
)
from dedup_platform.sources.text.blocks import as_texts

__all__ = ["ALONE", "ENTERED", "TOLD", "EventReading", "MessageKinds", "Path", "as_numbers"]

Path = tuple[str, ...]
"""The names that lead from an event to a field."""

ENTERED, TOLD, ALONE = "entered", "told", "alone"
"""What is wanted of a field: what is in it, its values, or that events that have it are read alone."""

_MOST_LEVELS = 30
_MOST_STEPS = 2000
"""Events that are not gone through by then are left in doubt. The usual take a step for each field of their schema."""
_MORE = 0x80

_Type = FieldDescriptor
_ENCODED_AS = {
    **dict.fromkeys((_Type.TYPE_FIXED32, _Type.TYPE_SFIXED32, _Type.TYPE_FLOAT), FIXED_32),
    **dict.fromkeys((_Type.TYPE_FIXED64, _Type.TYPE_SFIXED64, _Type.TYPE_DOUBLE), FIXED_64),
    **dict.fromkeys((_Type.TYPE_STRING, _Type.TYPE_BYTES, _Type.TYPE_MESSAGE), BYTES),
}
"""All other types are VARINT."""


@dataclass(frozen=True)
class _Kind:
    """What is in the encoding of messages of one type."""

    fields: Mapping[int, FieldDescriptor]
    """By their tags; without groups."""
    is_extended: bool
    """Whether there may be fields that are known elsewhere."""


class MessageKinds:
    """Those of one message type and of what is in it."""

    def __init__(self) -> None:
        self._known: dict[str, _Kind] = {}

    def of(self, message: Descriptor) -> _Kind:
        kind = self._known.get(message.full_name)
        if kind is None:
            tags = {tag: field for field in message.fields for tag in _tags(field)}
            kind = self._known[message.full_name] = _Kind(tags, message.is_extendable)
        return kind


def _tags(field: FieldDescriptor) -> Iterable[int]:
    if field.type == FieldDescriptor.TYPE_GROUP:
        return
    encoded_as = _encoded_as(field)
    yield field.number << 3 | encoded_as
    if field.is_repeated and encoded_as != BYTES:
        yield field.number << 3 | BYTES


def _encoded_as(field: FieldDescriptor) -> int:
    return _ENCODED_AS.get(field.type, VARINT)


@dataclass(frozen=True)
class _Messages:
    """Messages of one type, each in one of some events: its owner."""

    owners: Rows
    begins: Places
    ends: Places

    @classmethod
    def joined(cls, parts: Sequence["_Messages"]) -> "_Messages":
        if len(parts) == 1:
            return parts[0]
        owners = [as_numbers(part.owners, len(part.begins)) for part in parts]
        begins, ends = [part.begins for part in parts], [part.ends for part in parts]
        return cls(*map(np.concatenate, (owners, begins, ends)))

    def owners_of(self, rows: Rows) -> Rows:
        """The events that these of the messages are in."""
        return rows if isinstance(self.owners, slice) else self.owners[rows]


_Level = dict[tuple[str, Path | None], tuple[Descriptor, list[_Messages]]]
"""Messages by their type and path; without a path those of which nothing is wanted."""


class EventReading:
    """Goes through some events, given as binary values, at least one; `wanted` says what is kept of which fields."""

    def __init__(self, events: pl.Series, wanted: Mapping[Path, str]) -> None:
        self.data, self._begins, self._ends = EncodedBytes.of(events)
        self.in_doubt = np.zeros(len(self._begins), np.bool_)
        self.found: defaultdict[Path, list[FieldRun]] = defaultdict(list)
        """What is wanted, in the order in which it stands in each event. Rows are numbers of events."""
        self._wanted = wanted
        self._steps = iter(range(_MOST_STEPS))

    @property
    def count(self) -> int:
        """How many events there are."""
        return len(self._begins)

    def read(self, kinds: MessageKinds, kind: Descriptor) -> None:
        """Go through all events.

        Messages of one type and depth of which nothing is wanted are gone through together, wherever they stand.
        """
        level: _Level = {(kind.full_name, ()): (kind, [_Messages(EVERY, self._begins, self._ends)])}
        for _ in range(_MOST_LEVELS):
            inner: _Level = {}
            for (_, path), (message, parts) in level.items():
                self._read(kinds.of(message), path, _Messages.joined(parts), inner)
            level = inner
        for _, parts in level.values():
            for part in parts:
                self.in_doubt[part.owners] = True

    def _read(self, kind: _Kind, path: Path | None, messages: _Messages, inner: _Level) -> None:
        """Go through messages of one kind, and add those inside them to the next level."""
        walk = Walk(self.data, messages.begins, messages.ends)
        seen: dict[str, npt.NDArray[np.bool_]] = {}
        for run in walk.runs(kind.fields, kind.is_extended, self._steps):
            field, owners = kind.fields[run.tag], messages.owners_of(run.rows)
            below = None if path is None else (*path, field.name)
            wanted = self._wanted.get(below) if below else None
            if wanted == ALONE:
                self.in_doubt[owners] = True
                continue
            if below and (once := _once(field)):
                self._check_once(seen, once, owners)
            if below and wanted:
                self.found[below].append(FieldRun(run.tag, owners, run.places, run.numbers))
            if field.message_type is not None:
                where = field.message_type.full_name, below if wanted else None
                part = _Messages(owners, run.places, run.places + run.sizes)
                inner.setdefault(where, (field.message_type, []))[1].append(part)
            elif run.tag & 7 == BYTES and not wanted:
                self.leave(owners, self._is_good(field, run))
        self.leave(messages.owners, ~walk.in_doubt)

    def _check_once(self, seen: dict[str, npt.NDArray[np.bool_]], name: str, owners: Rows) -> None:
        """Leave events in which something stands twice that may stand once."""
        before = seen.setdefault(name, np.zeros(self.count, np.bool_))
        self.in_doubt[owners] |= before[owners]
        before[owners] = True

    def leave(self, owners: Rows, is_good: npt.NDArray[np.bool_]) -> None:
        """Leave the events of what is not good."""
        if not is_good.all():
            self.in_doubt[as_numbers(owners, len(is_good))[~is_good]] = True

    def _is_good(self, field: FieldDescriptor, run: FieldRun) -> npt.NDArray[np.bool_]:
        """Whether each value could be what its field promises, as far as Protobuf looks."""
        if field.type == FieldDescriptor.TYPE_STRING:
            return as_texts(self.data.slices(run.places, run.sizes)).is_not_null().to_numpy()
        if field.type == FieldDescriptor.TYPE_BYTES:
            return np.ones(len(run.places), np.bool_)
        if size := FIXED_SIZES.get(_encoded_as(field)):
            return run.sizes % size == 0
        ends = run.places + run.sizes
        is_whole = (run.sizes == 0) | (self.data.bytes_at(ends - 1) < _MORE)
        return is_whole & (np.searchsorted(self._too_long, run.places) == np.searchsorted(self._too_long, ends))

    @cached_property
    def _too_long(self) -> Places:
        """Where a byte is the last of so many that no number has more: each says that one more follows."""
        follows = self.data.bytes_at(slice(self.data.end)) >= _MORE
        pairs = follows[1:] & follows[:-1]
        fours = pairs[2:] & pairs[:-2]
        eights = fours[4:] & fours[:-4]
        return np.flatnonzero(eights[:-2] & pairs[8:]) + 9


def as_numbers(rows: Rows, count: int) -> Places:
    """The numbers of so many rows."""
    return np.arange(count) if isinstance(rows, slice) else rows


def _once(field: FieldDescriptor) -> str | None:
    """The name of what stands at most once in a message that columns understand; None if a field may stand again."""
    oneof = field.containing_oneof
    if oneof is not None and len(oneof.fields) > 1:
        return f"oneof {oneof.name}"
    return field.name if field.message_type is not None and not field.is_repeated else None
