"""Cells cut into chunks, the portions of work that tasks of Spark get."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import polars as pl
from pyiceberg.manifest import DataFile

from dedup_platform.planning.cells import NO_ENTITY, Cell, grown

CHUNK_BYTES = 128 * 2**20
"""At most so many bytes of files are worked on together, unless one cell has more: in memory they are three times that.
Larger chunks read less around them, since there are fewer."""


TASK_BYTES = 32 * 2**20
"""Chunks below this share a task."""


CellFiles = Mapping[Cell, Sequence[DataFile]]


Weigh = Callable[[Sequence[DataFile]], int]


Item = TypeVar("Item")


@dataclass(frozen=True)
class Share:
    """One of the parts into which rows are cut by the hash of their key: copies of each other are in the same one."""

    number: int = 0
    of: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether this is all there is."""
        return self.of == 1

    def __call__(self, rows: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
        """Those of some rows that are in this share."""
        return rows if self.is_whole else rows.filter(rows.select(key).hash_rows() % self.of == self.number)


WHOLE = Share()


@dataclass(frozen=True)
class Chunk:
    """Cells of one bucket that are worked on together, and the cells around them that are only read."""

    cells: CellFiles
    old: Mapping[str, CellFiles]
    """What the tables that are rebuilt hold in these cells, by table."""
    around: CellFiles = field(default_factory=dict)
    bytes: int = 0
    """About what there is to read in these cells."""
    share: Share = WHOLE
    """Of these cells' rows only this share is worked on."""


def chunks_along_time(
    files: CellFiles, cells: Iterable[Cell], old: Mapping[str, CellFiles], reach: int, weigh: Weigh
) -> Iterator[Chunk]:
    """The cells cut into chunks of one bucket each, with the files of the cells within `reach` partitions of them.

    Rows without an entity are all in one bucket, however many there are: what is too much of them is cut by their keys.
    Each share is then read from the whole of the cells' files, so this is for memory's sake.
    """
    by_bucket: dict[int, list[Cell]] = {}
    for cell in sorted(cells):
        by_bucket.setdefault(cell.bucket, []).append(cell)
    for in_bucket in by_bucket.values():
        weights = {cell: weigh(files.get(cell, ())) for cell in in_bucket}
        for part in split_evenly(in_bucket, weights.__getitem__, CHUNK_BYTES):
            inside = {cell: files.get(cell, ()) for cell in part}
            weight = sum(weights[cell] for cell in part)
            chunk = Chunk(inside, _old_of(part, old), _of(grown(part, reach) - set(part), files), weight)
            shares = 1
            if part[0].bucket == NO_ENTITY:
                rows = sum(file.record_count for found in inside.values() for file in found)
                shares = max(1, min(-(-weight // CHUNK_BYTES), rows))
            yield from (replace(chunk, share=Share(number, shares)) for number in range(shares))


def chunks_of_chains(files: CellFiles, cells: Iterable[Cell], old: Mapping[str, CellFiles]) -> Iterator[Chunk]:
    """The cells of each bucket as one chunk, with all other files of the bucket: a chain may go anywhere."""
    for bucket in sorted({cell.bucket for cell in cells}):
        inside = {cell: files.get(cell, ()) for cell in sorted(cells) if cell.bucket == bucket}
        around = {cell: files[cell] for cell in sorted(files) if cell.bucket == bucket and cell not in inside}
        weight = sum(file_bytes(found) for found in (*inside.values(), *around.values()))
        yield Chunk(inside, _old_of(inside, old), around, weight)


def chunks_of_cells(files: CellFiles, cells: Iterable[Cell], old: Mapping[str, CellFiles]) -> Iterator[Chunk]:
    """Each cell as a chunk: it stands for itself."""
    for cell in sorted(cells):
        found = files.get(cell, ())
        yield Chunk({cell: found}, _old_of([cell], old), bytes=file_bytes(found))


def _of(cells: Iterable[Cell], files: CellFiles) -> CellFiles:
    return {cell: files[cell] for cell in cells if cell in files}


def _old_of(cells: Iterable[Cell], old: Mapping[str, CellFiles]) -> Mapping[str, CellFiles]:
    return {table: _of(cells, files) for table, files in old.items()}


def split_evenly(items: Sequence[Item], weigh: Callable[[Item], int], limit: int) -> Iterator[list[Item]]:
    """Consecutive items in as few parts as the limit allows, of about the same weight."""
    weights = [weigh(item) for item in items]
    total = sum(weights)
    parts = -(-total // limit) or 1
    before = 0
    part: list[Item] = []
    number = 0
    for item, weight in zip(items, weights, strict=True):
        # An item belongs to the part in which its middle lies.
        place = (2 * before + weight) * parts // (2 * total) if total else 0
        if part and place != number:
            yield part
            part = []
        number = place
        part.append(item)
        before += weight
    if part:
        yield part


def file_bytes(files: Sequence[DataFile]) -> int:
    """The size of some files together."""
    return sum(file.file_size_in_bytes for file in files)
