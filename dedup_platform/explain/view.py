"""A stream's tables as of one moment, and the few rows of them that somebody asks for. No Spark; nothing is written.

Ids are in no metadata, so whoever knows nothing but an id reads the column of that id, and no other, of all files that
may hold it: Parquet's own statistics leave out those whose ids all lie elsewhere. The rest of a row is read only of
files that have it.
"""

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import polars as pl
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from dedup_platform import tables
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.snapshots import cell_of, head, live_entries, paired_duplicates, pairs
from dedup_platform.lake.table_files import TableFiles, frame_of
from dedup_platform.stream import Stream

FILE = "_file"
"""The column of found rows that tells in which data file each is."""
_AT_ONCE = 8
"""Files that are read beside each other."""


class View:
    """One table as of one snapshot."""

    def __init__(self, name: str, table: Table, snapshot_id: int, files: TableFiles) -> None:
        self.name = name
        self.table = table
        self.snapshot_id = snapshot_id
        self.opened: dict[str, DataFile] = {}
        """Every data file that was looked into, by its path."""
        self.published_with: dict[int, int] = {}
        """Of duplicates: each snapshot -> the first one of the events that names it."""
        self._files = files

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns that the table has; a stream file may name more."""
        return frozenset(field.name for field in self.table.schema().fields)

    def files(self, where: BooleanExpression) -> list[DataFile]:
        """The data files that can hold such a row, as partitions and bounds in the manifests tell; newest first."""
        tasks = self.table.scan(where, snapshot_id=self.snapshot_id).plan_files()
        return sorted((task.file for task in tasks), key=_newest_first)

    def rows(
        self,
        where: BooleanExpression,
        columns: Sequence[str],
        by: str,
        *,
        files: Sequence[DataFile] | None = None,
        is_one: bool = False,
    ) -> pl.DataFrame:
        """The rows of a condition with those of these columns that there are, and `_file`.

        First `by`, a column of the condition, is read alone. With `is_one` it stops at the first file that has a row.
        """
        names = [name for name in columns if name in self.columns]
        chosen = self.files(where) if files is None else files
        parts = [self._read([], names, where)]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for hits in self._files_with(chosen, where, by, threads):
                parts += threads.map(lambda file: self._read([file], names, where), hits)
                if is_one and hits:
                    break
        return pl.concat(parts)

    def commits(self, paths: Collection[str]) -> dict[str, int]:
        """The snapshot that added each of some files that were opened."""
        wanted = set(paths)
        cells = {cell_of(self.opened[path]) for path in wanted}
        known = {cell for cell in cells if cell}
        entries = live_entries(self.table, self.snapshot_id, known if len(known) == len(cells) else None)
        found = ((entry.data_file.file_path, entry.snapshot_id) for entry in entries)
        return {path: snapshot_id for path, snapshot_id in found if path in wanted and snapshot_id is not None}

    def _files_with(
        self, files: Sequence[DataFile], where: BooleanExpression, by: str, threads: ThreadPoolExecutor
    ) -> Iterator[list[DataFile]]:
        for first in range(0, len(files), _AT_ONCE):
            group = files[first : first + _AT_ONCE]
            narrow = threads.map(lambda file: self._read([file], [by], where).height, group)
            yield [file for file, height in zip(group, narrow, strict=True) if height]

    def _read(self, files: Sequence[DataFile], names: Sequence[str], where: BooleanExpression) -> pl.DataFrame:
        self.opened |= {file.file_path: file for file in files}
        path = pl.lit(files[0].file_path if files else None, pl.String)
        return frame_of(self._files.read(files, names, where)).with_columns(path.alias(FILE))


class Views:
    """The tables of a stream, those that there are, each as of the moment when it is first asked for."""

    def __init__(self, lake: Lakehouse, stream: Stream) -> None:
        self.stream = stream
        self._lake = lake
        self._views: dict[str, View | None] = {}

    def of(self, name: str) -> View | None:
        """A table, or a feed; None if there is none. Duplicates are those that belong to the events."""
        if name not in self._views:
            self._views[name] = self._opened(name)
        return self._views[name]

    @property
    def opened(self) -> list[tuple[str, DataFile]]:
        """Every data file that was looked into, with its table."""
        return [(name, file) for name, view in self._views.items() if view for file in view.opened.values()]

    def _opened(self, name: str) -> View | None:
        # Tables of sessions may be there although the stream has none any more: nobody updates them.
        updated = (*tables.all_of(self.stream), *tables.feeds_of(self.stream).values())
        table = self._lake.catalog.load(self.stream.name, name) if name in updated else None
        snapshot_id = self._snapshot(name, table) if table else None
        if table is None or snapshot_id is None:
            return None
        files = TableFiles.of(table, self._lake.catalog.file_properties(table))
        view = View(name, table, snapshot_id, files)
        events = self.of(tables.DEDUPLICATED_EVENTS) if name == tables.DUPLICATE_EVENTS else None
        if events:
            view.published_with = {pair: snapshot for snapshot, pair in pairs(events.table)}
        return view

    def _snapshot(self, name: str, table: Table) -> int | None:
        if name != tables.DUPLICATE_EVENTS:
            return head(table).snapshot_id
        events = self.of(tables.DEDUPLICATED_EVENTS)
        return paired_duplicates(events.table, events.snapshot_id) if events else None


def _newest_first(file: DataFile) -> tuple[int, str]:
    place = file.partition[0] if len(file.partition) else None
    cell = cell_of(file)
    ordinal = cell.partition if cell else place if isinstance(place, int) else -1
    return -ordinal, file.file_path
