"""Where each of many data is being read, and what of them was found."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from dedup_platform.sources.binary_columns import EncodedBytes, Places, zigzags
from dedup_platform.sources.texts import Texts, no_texts
from dedup_platform.stream.paths import Step

__all__ = ["Asked", "Cursor", "Longs"]

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Cursor:
    """Places in the bytes of some data, one in each.

    Where a datum does not hold what it should, it is in doubt from then on: what else is read of it means nothing, and
    its place stays within it.
    """

    def __init__(self, data: EncodedBytes, at: Places, ends: Places, rows: Places, doubts: Bools) -> None:
        self.data = data
        self.at = at
        self._ends = ends
        self.rows = rows
        """Which of all data these are."""
        self._doubts = doubts

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def in_doubt(self) -> Bools:
        """Which of these are in doubt."""
        return self._doubts[self.rows]

    def doubt(self, which: Bools | slice = slice(None)) -> None:
        """Put some in doubt, or all."""
        self._doubts[self.rows[which]] = True

    def some(self, which: Places) -> "Cursor":
        """A cursor of some of these. Where they are then, `go_on` tells this one."""
        return Cursor(self.data, self.at[which], self._ends[which], self.rows[which], self._doubts)

    def go_on(self, which: Places, some: "Cursor") -> None:
        """Let some be where another cursor brought them."""
        self.at[which] = some.at

    def move(self, after: Places) -> None:
        """Go on at places behind what was read, which must lie within each datum or at its end."""
        is_beyond = after > self._ends
        if is_beyond.any():
            self.doubt(is_beyond)
            after = np.minimum(after, self._ends)
        self.at = after

    def longs(self) -> Longs:
        """The signed numbers that come next."""
        numbers, after = self.data.varints(self.at)
        self.move(after)
        return zigzags(numbers)

    def indexes(self, count: int) -> Longs:
        """The numbers that come next, each below a count; 0 in what is in doubt."""
        numbers = self.longs()
        is_wrong = (numbers < 0) | (numbers >= count)
        if is_wrong.any():
            self.doubt(is_wrong)
            numbers[is_wrong] = 0
        return numbers

    def skip(self, sizes: Longs) -> tuple[Places, Longs]:
        """Pass so many bytes: where they begin, and how many they are; none in what is in doubt."""
        is_wrong = (sizes < 0) | (sizes > self._ends - self.at)
        if is_wrong.any():
            self.doubt(is_wrong)
            sizes = np.where(is_wrong, 0, sizes)
        begins, self.at = self.at, self.at + sizes
        return begins, sizes

    def doubt_all_but_at_end(self) -> None:
        """Put in doubt all that are not read to their end."""
        self.doubt(self.at != self._ends)


@dataclass
class Asked:
    """A value that is asked for, or into which the way to such a value leads."""

    is_asked: bool = False
    is_written: bool = False
    """Whether its JSON is asked for, too."""
    steps: dict[Step, "Asked"] = field(default_factory=dict)
    _found: list[tuple[Places, Texts, pl.Series | None]] = field(default_factory=list)

    def into(self, steps: Sequence[Step]) -> "Asked":
        """What is at the end of some steps, which is asked for from now on."""
        if not steps:
            self.is_asked = True
            return self
        return self.steps.setdefault(steps[0], Asked()).into(steps[1:])

    def found(self, rows: Places, texts: Texts, json: pl.Series | None = None) -> None:
        """Keep the texts of the value in some data, and its JSON."""
        self._found.append((rows, texts, json))

    def texts(self, count: int, in_doubt: pl.Series | None) -> Texts:
        """The texts of the value in all of so many data; null where there is none."""
        if len(self._found) == 1 and len(self._found[0][0]) == count:
            [(_, texts, _)] = self._found
            return Texts(texts.values, in_doubt, texts.moments)
        values = no_texts(count)
        knows_moments = any(texts.moments is not None for _, texts, _ in self._found)
        moments = pl.Series([None], dtype=pl.Int64).new_from_index(0, count) if knows_moments else None
        for rows, texts, _ in self._found:
            values = values.scatter(rows, texts.values)
            if texts.moments is not None and moments is not None:
                moments = moments.scatter(rows, texts.moments)
        return Texts(values, in_doubt, moments)

    def json(self, count: int) -> pl.Series:
        """The JSON of the value in all of so many data."""
        written = pl.Series(["null"]).new_from_index(0, count)
        for rows, _, json in self._found:
            if json is not None:
                written = json if len(rows) == count else written.scatter(rows, json)
        return written
