"""The changes of one commit of a table, from the data files that it took away and added, bucket by bucket."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl
from pyiceberg.manifest import DataFile

from dedup_platform.lake.feeds import FeedTable, Step
from dedup_platform.lake.snapshots import cell_of
from dedup_platform.lake.table_files import TableFiles, frame_of
from dedup_platform.lake.whole_files import Whole
from dedup_platform.recompute.chunks import CHUNK_BYTES, Share, file_bytes
from dedup_platform.recompute.tasks import Store
from dedup_platform.rules.changes import INSERT, POSTIMAGE, difference, insertion, told_of_insertion
from dedup_platform.stream import Stream
from dedup_platform.tables import COMMIT_COLUMNS, ROW_KEY, column_names

ORDINAL = "_change_ordinal"
LARGE_ROWS = 100_000
"""A commit that took away and added so many rows has files of the feed of its own."""
WHOLE_ROWS = 2_000
"""A new file of a large commit that has so many rows is copied without being read; row groups are no smaller then."""

Piece = pl.DataFrame | Whole
"""Some changes with all of their columns but the commit's, or a data file all of whose rows are inserts."""


def is_large(step: Step) -> bool:
    """Whether a commit is too large to lie in a file with others."""
    return sum(file.record_count for file in (*step.removed, *step.added)) >= LARGE_ROWS


@dataclass
class _Group:
    """Files whose rows are compared with each other only: those of one bucket, since no row leaves its own."""

    removed: list[DataFile] = field(default_factory=list)
    added: list[DataFile] = field(default_factory=list)


@dataclass(frozen=True)
class Differences:
    """Works out the changes of commits of one table."""

    stream: Stream
    table: str
    files: TableFiles
    feed: FeedTable

    def of(self, step: Step) -> Iterator[Piece]:
        """The changes of a commit, piece by piece: `_change_type`, `_change_ordinal`, the row and what is told of it.

        Ordinals rise from deletes over updates to inserts, over all pieces: an event that is decoded again may leave
        one bucket and come to another.
        """
        removed, added = (sum(file.record_count for file in files) for files in (step.removed, step.added))
        if step.is_lost:
            before = self._as_followed()
            found = difference(before, self._read(step.added), self.stream, self.table)
            yield from _Ordinals(len(before), added).of(found)
            return
        numbers = _Ordinals(removed, added)
        for group in _groups(step):
            if not group.removed:
                for file in group.added:
                    yield self._insertion(file, numbers, is_large(step))
                continue
            shares = max(1, -(-file_bytes([*group.removed, *group.added]) // CHUNK_BYTES))
            for number in range(shares):
                before, after = (self._share(files, Share(number, shares)) for files in (group.removed, group.added))
                yield from numbers.of(difference(before, after, self.stream, self.table))

    def _insertion(self, file: DataFile, numbers: "_Ordinals", is_of_many: bool) -> Piece:
        if is_of_many and file.record_count >= WHOLE_ROWS:
            return Whole(file, self._of_insertion, numbers.take("inserts", file.record_count))
        return numbers.of_inserts(insertion(self._read([file]), self.stream, self.table))

    @cached_property
    def _of_insertion(self) -> Mapping[str, Any]:
        return told_of_insertion(self.stream, self.table)

    def _read(self, files: Sequence[DataFile]) -> pl.DataFrame:
        return frame_of(self.files.read(files, column_names(self.stream, self.table)))

    def _share(self, files: Sequence[DataFile], share: Share) -> pl.DataFrame:
        names = column_names(self.stream, self.table)
        return Store({self.table: self.files}).read_share(self.table, files, names, share, ["entity_id"])

    def _as_followed(self) -> pl.DataFrame:
        """The rows of the table as the feed has told them."""
        names, key = column_names(self.stream, self.table), ROW_KEY[self.table]
        commit = [column.name for column in COMMIT_COLUMNS]
        told = frame_of(self.feed.files().read(self.feed.live(), ["_change_type", *commit, *names]))
        newest = told.sort("_commit_version", ORDINAL).unique(key, keep="last")
        return newest.filter(pl.col("_change_type").is_in([INSERT, POSTIMAGE])).select(names)


class _Ordinals:
    """Numbers the changes of a version, which come in pieces: those of a kind in a range of its own."""

    def __init__(self, removed: int, added: int) -> None:
        self._next = {"deletes": 0, "updates": removed, "inserts": removed + 2 * min(removed, added)}

    def of(self, found: tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """The changes of a piece, of the three kinds."""
        for kind, rows in zip(self._next, found, strict=True):
            yield self._numbered(kind, rows)

    def of_inserts(self, rows: pl.DataFrame) -> pl.DataFrame:
        """A piece that has inserts only."""
        return self._numbered("inserts", rows)

    def take(self, kind: str, rows: int) -> int:
        """The first of so many numbers, which are taken from now on."""
        self._next[kind] += rows
        return self._next[kind] - rows

    def _numbered(self, kind: str, rows: pl.DataFrame) -> pl.DataFrame:
        first = self.take(kind, len(rows))
        return rows.with_columns(pl.int_range(first, first + len(rows), dtype=pl.Int64).alias(ORDINAL))


def _groups(step: Step) -> list[_Group]:
    """By bucket, if all files are of one numbering of buckets; else all together."""
    is_one = len({file.spec_id for file in (*step.removed, *step.added)}) == 1
    groups: dict[int | None, _Group] = {}
    for files, name in ((step.removed, "removed"), (step.added, "added")):
        for file in files:
            cell = cell_of(file)
            place = cell.bucket if cell and is_one else None
            getattr(groups.setdefault(place, _Group()), name).append(file)
    return list(groups.values())
