"""The fields of encoded messages, read for many messages at a time and without an object for each value.

The messages are read side by side: whichever has the lowest tag before it goes on, together with all others that have
the same. So the usual case, the same fields in the same order, takes one step a field, however many messages there are.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dedup_platform.sources.binary_columns import EncodedBytes, Numbers, Places

__all__ = [
    "BYTES",
    "EVERY",
    "FIXED_32",
    "FIXED_64",
    "FIXED_SIZES",
    "GROUP",
    "GROUP_END",
    "VARINT",
    "FieldRun",
    "Rows",
    "Walk",
]

VARINT, FIXED_64, BYTES, GROUP, GROUP_END, FIXED_32 = range(6)
"""How a value is encoded: the last three bits of a tag."""

Rows = slice | Places
"""Some of many messages by their numbers, none twice; or EVERY."""
EVERY = slice(None)

FIXED_SIZES = {FIXED_32: 4, FIXED_64: 8}
_ENDED = 2**62
_LARGEST_TAG = 2**32 - 1
_TAG_BYTES = 5
_NO_TAG = 0
_HUGE = np.uint64(2**40)
_MOST_FIELDS = 200
"""A message with more is left in doubt, so that one of very many does not cost as many steps."""


@dataclass(frozen=True)
class FieldRun:
    """One field in each of some messages."""

    tag: int
    rows: Rows
    places: Places
    """Where values begin; those of BYTES behind their size."""
    numbers: Numbers
    """Those of VARINT, and the sizes of BYTES; else none."""

    @property
    def sizes(self) -> Places:
        return self.numbers.view(np.int64)

    def only(self, chosen: npt.NDArray[np.bool_]) -> "FieldRun":
        """The same in those of its messages only."""
        rows = np.flatnonzero(chosen) if isinstance(self.rows, slice) else self.rows[chosen]
        return FieldRun(
            self.tag, rows, self.places[chosen], self.numbers[chosen] if len(self.numbers) else self.numbers
        )


class Walk:
    """Goes through the fields of messages that lie between `begins` and `ends`, at least one.

    A message is in doubt if it is cut, has a group, a tag that no field can have, or very many fields. All others are
    well formed as far as their own tags and sizes go; what is in a value is not looked at.
    """

    def __init__(self, data: EncodedBytes, begins: Places, ends: Places) -> None:
        self._data, self._ends = data, ends
        self._counts = np.zeros(len(ends), np.int64)
        self.in_doubt = np.zeros(len(ends), np.bool_)
        self._go_on(EVERY, begins)

    def runs(self, known: Collection[int], must_be_known: bool, steps: Iterator[int]) -> Iterator[FieldRun]:
        """The values of fields with these tags, those of one message in their order.

        Others are passed over, unless all must be known: then messages that have others are in doubt. What is not done
        after so many steps is left, too.
        """
        for done, _ in enumerate(steps):
            tag = int(self._tags.min())
            if tag == _ENDED:
                return
            chosen = self._tags == tag
            rows = EVERY if chosen.all() else np.flatnonzero(chosen)
            is_known = tag in known
            if not _is_possible(tag) or (must_be_known and not is_known):
                self._leave(rows)
                continue
            run = self._read(tag, rows)
            if done >= _MOST_FIELDS:
                self._leave(np.flatnonzero(self._counts > _MOST_FIELDS))
            if is_known and len(run.places):
                yield run
        self._leave(np.flatnonzero(self._tags != _ENDED))

    def _read(self, tag: int, rows: Rows) -> FieldRun:
        """The values behind a tag; messages in which one is cut are left."""
        run, after = _values(self._data, tag, rows, self._places[rows])
        is_whole = after <= self._ends[rows]
        if not is_whole.all():
            self._leave(run.only(~is_whole).rows)
            run, after = run.only(is_whole), after[is_whole]
        self._counts[run.rows] += 1
        self._go_on(run.rows, after)
        return run

    def _go_on(self, rows: Rows, places: Places) -> None:
        """Read the tags at these places."""
        tags, after = self._data.varints(places)
        found = tags.view(np.int64)
        # Of one byte are all tags of the first 15 fields.
        if (after - places > 1).any():
            found[(after - places > _TAG_BYTES) | (tags > _LARGEST_TAG)] = _NO_TAG
        found[places >= self._ends[rows]] = _ENDED
        if isinstance(rows, slice):
            # Not into the arrays of before, of which runs may be parts.
            self._tags, self._places = found, after
        else:
            self._tags[rows], self._places[rows] = found, after

    def _leave(self, rows: Rows) -> None:
        self.in_doubt[rows] = True
        self._tags[rows] = _ENDED


def _is_possible(tag: int) -> bool:
    """Whether a field that is no group can have it."""
    return tag >> 3 > 0 and tag & 7 in (VARINT, FIXED_64, BYTES, FIXED_32)


def _values(data: EncodedBytes, tag: int, rows: Rows, places: Places) -> tuple[FieldRun, Places]:
    """The values at these places, and the places after them."""
    kind = tag & 7
    if kind in FIXED_SIZES:
        return FieldRun(tag, rows, places, np.empty(0, np.uint64)), places + FIXED_SIZES[kind]
    numbers, after = data.varints(places)
    if kind == VARINT:
        return FieldRun(tag, rows, places, numbers), after
    # A huge size ends behind every end.
    return FieldRun(tag, rows, after, numbers), after + np.minimum(numbers, _HUGE).view(np.int64)
