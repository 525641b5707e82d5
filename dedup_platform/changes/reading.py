"""What a sink reads: the changes after its position, or to begin with the whole table as it was at one snapshot."""

import json
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import polars as pl
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from dedup_platform import tables
from dedup_platform.changes.batches import ORDINAL, VERSION
from dedup_platform.changes.choice import Choice
from dedup_platform.errors import ConflictError
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.feed_files import Change, feed_files, in_turns
from dedup_platform.lake.feeds import feed_position, steps
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.pins import is_kept, pin
from dedup_platform.lake.snapshots import committed_at, head, live_files
from dedup_platform.lake.table_files import TableFiles, frame_of, in_larger
from dedup_platform.rules.changes import DELETE, insertion
from dedup_platform.sinks import Position
from dedup_platform.stream import Stream

_ALL = 2**63 - 1
BEFORE_ALL = Position("", 0)
"""Before the first version of any feed."""
FRESH = -1
"""The ordinal of a beginning of which nothing is written yet."""


def newest_position(catalog: Catalog, stream: Stream, table: str) -> Position | None:
    """Where a sink is that has got all that is published of a table; None before anything is."""
    feed = catalog.load(stream.name, tables.FEED_OF[table])
    return Position(str(feed.metadata.table_uuid), feed_position(feed).version) if feed else None


@dataclass(frozen=True)
class FeedReader:
    """Reads one table and its feed on behalf of one sink."""

    lake: Lakehouse
    stream: Stream
    table: str
    sink: str

    def changes(self, after: Position) -> Iterator[pl.DataFrame]:
        """All changes after a position, in their order, some files at a time."""
        feed = self.lake.catalog.load_table(self.stream.name, tables.FEED_OF[self.table])
        files = TableFiles.of(feed, self.lake.catalog.file_properties(feed))
        names = tables.column_names(self.stream, tables.FEED_OF[self.table])
        done: Change = (after.version, _ALL if after.ordinal is None else after.ordinal)
        version, ordinal = pl.col(VERSION), pl.col(ORDINAL)
        is_new = (version > done[0]) | ((version == done[0]) & (ordinal > done[1]))
        for group in in_turns(feed_files(feed), done):
            yield frame_of(files.read(group, names)).filter(is_new).sort(VERSION, ORDINAL)

    def is_beginning(self, position: Position | None) -> bool:
        """Whether a sink has yet to get the table: all of it, or the rest."""
        newest = newest_position(self.lake.catalog, self.stream, self.table)
        if position is None or newest is None or position.feed != newest.feed or position.version > newest.version:
            return True
        return position.snapshot_id is not None

    def start(self, position: Position | None) -> Position | None:
        """Where to begin, or to go on beginning, with the table as of a snapshot that is kept from now on.

        None if nothing is published yet. Raises ConflictError if somebody commits all the time.
        """
        catalog, stream = self.lake.catalog, self.stream
        newest = newest_position(catalog, stream, self.table)
        if newest is None:
            return None
        begun = position.snapshot_id if position and position.feed == newest.feed else None
        if position and begun and is_kept(catalog, stream, self.table, begun):
            return position
        feed = feed_position(catalog.load_table(stream.name, tables.FEED_OF[self.table]))
        if feed.up_to is None:
            return None
        snapshot_id = feed.up_to
        if not is_kept(catalog, stream, self.table, snapshot_id):
            loaded = catalog.load_table(stream.name, self.table)
            if next(steps(loaded, snapshot_id), None):
                raise ConflictError(f"{stream.name}.{self.table}: another process committed meanwhile. Run again.")
            snapshot_id = head(loaded).snapshot_id
        pin(catalog, stream, self.table, snapshot_id, self.sink)
        return Position(newest.feed, feed.version, FRESH, snapshot_id)

    def now(self, keys: Collection[str], key: Sequence[str], at: Position) -> pl.DataFrame:
        """What became of some keys by a position, as changes of its version: inserts, and deletes of what is gone.

        The sink has got all that is published.
        """
        loaded, snapshot = self._published()
        files = TableFiles.of(loaded, self.lake.catalog.file_properties(loaded))
        names = tables.column_names(self.stream, self.table)
        wanted = pl.DataFrame([json.loads(each) for each in keys], schema=list(key), orient="row")
        there = [self.nothing()]
        for file in live_files(loaded, snapshot):
            for batch in map(frame_of, files.batches(file, names)):
                wanted = wanted.cast({name: batch.schema[name] for name in key})
                there.append(insertion(batch.join(wanted, on=list(key), how="semi"), self.stream, self.table))
        found = pl.concat(there, how="diagonal_relaxed")
        gone = wanted.join(found, on=list(key), how="anti").with_columns(_change_type=pl.lit(DELETE))
        commit = _commit(at.version, snapshot)
        return pl.concat([found, gone], how="diagonal").with_columns(pl.lit(0, pl.Int64).alias(ORDINAL), **commit)

    def again(self, choice: Choice, key: Sequence[str], at: Position) -> Iterator[pl.DataFrame]:
        """Chosen rows as changes of a position's version: inserts, then deletes of those that are gone.

        The sink has got all that is published. Reads the files that may hold such rows, and the whole feed: it knows
        what is gone.
        """
        loaded, snapshot = self._published()
        commit, number, there = _commit(at.version, snapshot), 0, [self.nothing().select(key)]
        for changes in self._chosen(choice, loaded, snapshot):
            there.append(changes.select(key))
            yield _numbered(changes, number).with_columns(**commit)
            number += len(changes)
        gone = self._gone(choice, key).join(pl.concat(there), on=list(key), how="anti")
        if choice.is_of_sessions:
            told = {*gone["session_id"], *(each for frame in there for each in frame["session_id"])}
            unknown = pl.DataFrame({"session_id": sorted(choice.sessions - told)}, schema={"session_id": pl.String})
            gone = pl.concat([gone, unknown.with_columns(_change_type=pl.lit(DELETE))], how="diagonal")
        if len(gone):
            yield _numbered(gone, number).with_columns(**commit)

    def _chosen(self, choice: Choice, loaded: Table, snapshot: Snapshot) -> Iterator[pl.DataFrame]:
        """The rows of a snapshot that are chosen, as inserts."""
        files = TableFiles.of(loaded, self.lake.catalog.file_properties(loaded))
        names, fits = tables.column_names(self.stream, self.table), choice.fits(self.stream, self.table)
        scan = loaded.scan(choice.prunes(self.stream, self.table), snapshot_id=snapshot.snapshot_id)
        for task in scan.plan_files():
            for batch in map(frame_of, files.batches(task.file, names)):
                if len(chosen := batch.filter(fits)):
                    yield insertion(chosen, self.stream, self.table)

    def _gone(self, choice: Choice, key: Sequence[str]) -> pl.DataFrame:
        """The last change of each row that was chosen and is there no more."""
        found, fits = self.nothing(), choice.fits(self.stream, self.table)
        for changes in self.changes(BEFORE_ALL):
            newest = changes.unique(list(key), keep="last", maintain_order=True)
            deleted = newest.filter((pl.col("_change_type") == DELETE) & fits)
            found = pl.concat([found.join(newest, on=list(key), how="anti"), deleted], how="diagonal_relaxed")
        return found

    def _published(self) -> tuple[Table, Snapshot]:
        """The table, and the snapshot of it that its feed has come to: the newest one, if that is gone."""
        feed = feed_position(self.lake.catalog.load_table(self.stream.name, tables.FEED_OF[self.table]))
        loaded = self.lake.catalog.load_table(self.stream.name, self.table)
        return loaded, loaded.snapshot_by_id(feed.up_to or 0) or head(loaded)

    def nothing(self) -> pl.DataFrame:
        """Changes with all columns, and none of them."""
        feed = self.lake.catalog.load_table(self.stream.name, tables.FEED_OF[self.table])
        schema = schema_to_pyarrow(feed.schema(), include_field_ids=False)
        return frame_of(schema.empty_table())

    def rows(self, after: Position) -> Iterator[pl.DataFrame]:
        """The rows of the table as inserts of the version that a sink begins with, after those that it has."""
        loaded = self.lake.catalog.load_table(self.stream.name, self.table)
        snapshot = loaded.snapshot_by_id(after.snapshot_id or 0)
        assert snapshot is not None, "it is kept"
        files = TableFiles.of(loaded, self.lake.catalog.file_properties(loaded))
        names = tables.column_names(self.stream, self.table)
        commit = _commit(after.version, snapshot)
        first, wanted = 0, (after.ordinal if after.ordinal is not None else -1) + 1
        left = deque(sorted(live_files(loaded, snapshot), key=lambda each: each.file_path))
        while left and first + left[0].record_count <= wanted:
            first += left.popleft().record_count
        for batch in in_larger(batch for file in left for batch in files.batches(file, names)):
            numbers = pl.int_range(first, first + batch.num_rows, dtype=pl.Int64, eager=True).alias(ORDINAL)
            changes = insertion(frame_of(batch), self.stream, self.table).with_columns(numbers, **commit)
            yield changes.filter(pl.col(ORDINAL) >= wanted)
            first += batch.num_rows


def _numbered(changes: pl.DataFrame, first: int) -> pl.DataFrame:
    return changes.with_columns(pl.int_range(first, first + len(changes), dtype=pl.Int64).alias(ORDINAL))


def _commit(version: int, snapshot: Snapshot) -> dict[str, pl.Expr]:
    """Of which commit some changes are said to be."""
    return {
        VERSION: pl.lit(version, pl.Int64),
        "_commit_timestamp": pl.lit(committed_at(snapshot), pl.Datetime("us", "UTC")),
        "_commit_snapshot_id": pl.lit(snapshot.snapshot_id, pl.Int64),
    }
