"""Changes cut into batches, each of which a sink writes in one transaction. Pure."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import polars as pl

from dedup_platform.rules.changes import PREIMAGE

ORDINAL, VERSION = "_change_ordinal", "_commit_version"


class Cut(NamedTuple):
    """Changes that follow one another."""

    changes: pl.DataFrame
    is_whole: bool
    """Whether the last of them is the last of its version."""


def batches(pieces: Iterable[pl.DataFrame], rows: int) -> Iterator[Cut]:
    """The changes of a feed, in their order, at most so many at once (two at least, for the images of an update).

    Whole versions wherever that is not too much; the last piece ends with a whole one.
    """
    held: pl.DataFrame | None = None
    for piece in pieces:
        held = piece if held is None else pl.concat([held, piece])
        # Only what follows a change tells whether its version ends with it.
        while len(held) > rows:
            place = _place(held, rows)
            yield Cut(held[:place], held[VERSION][place] != held[VERSION][place - 1])
            held = held[place:]
    if held is not None and len(held):
        yield Cut(held, is_whole=True)


def _place(held: pl.DataFrame, rows: int) -> int:
    begins = held[VERSION][: rows + 1].diff().fill_null(0) != 0
    ends = begins.arg_true()
    if len(ends):
        return int(ends[-1])
    return rows - 1 if held["_change_type"][rows - 1] == PREIMAGE else rows


def halves(changes: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    """About half of some changes each, images of an update together; None if they cannot be divided."""
    middle = len(changes) // 2
    if middle and changes["_change_type"][middle - 1] == PREIMAGE:
        middle += 1
    return (changes[:middle], changes[middle:]) if 0 < middle < len(changes) else None
