"""Feeds as functions of the tables' snapshots: each commit that changed rows becomes one version, published once.

Nothing is written to a feed when its table is: whoever died between the two, or never came, is caught up with by the
next one. What a commit changed is in the data files that it took away and added, and no others are read.
"""

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import cast

import polars as pl
from pyiceberg.manifest import DataFile

from dedup_platform import tables
from dedup_platform.changes.difference import ORDINAL, Differences, Piece, is_large
from dedup_platform.lake.durable import sync_written
from dedup_platform.lake.feeds import FeedPosition, FeedTable, Step, steps
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.snapshots import committed_at
from dedup_platform.lake.table_files import TableFiles
from dedup_platform.lake.whole_files import Whole, WholeFiles
from dedup_platform.planning.moments import EPOCH
from dedup_platform.rules.changes import INSERT
from dedup_platform.stream import Stream

FILE_ROWS = 500_000
"""A file of changes has about so many rows, unless a commit brings more of them at once."""
COMMIT_ROWS = 5_000_000
"""After so many rows a feed commits, whatever else waits: what a killed process wrote is written anew."""
WRITERS = 2
"""So many files are written at a time."""
COMMIT_STEPS = 100
"""So many commits of a table are followed in one commit of its feed."""

_COMMIT = {
    "_commit_version": pl.Int64(),
    "_commit_timestamp": pl.Datetime("us", "UTC"),
    "_commit_snapshot_id": pl.Int64(),
}


@dataclass(frozen=True)
class FeedCommit:
    """What following a table came to."""

    table: str
    feed: str
    first_version: int = 0
    """The first of the versions that were published; 0 if there was nothing new."""
    last_version: int = 0
    changes: Counter[str] = field(default_factory=Counter)
    """`_change_type` -> rows. Of aliases: `retired` and `returned` -> ids."""
    bytes_written: int = 0
    left: str = ""
    """What was left to another process, which is at it, in words."""

    def then(self, later: "FeedCommit") -> "FeedCommit":
        """What this and a later one came to together."""
        return replace(
            later,
            first_version=self.first_version or later.first_version,
            last_version=later.last_version or self.last_version,
            changes=self.changes + later.changes,
            bytes_written=self.bytes_written + later.bytes_written,
        )


class Feeds:
    """Follows the tables of any stream."""

    def __init__(self, lake: Lakehouse) -> None:
        self.lake = lake

    def follow(self, stream: Stream, table: str) -> FeedCommit:
        """Publish every version of a table's feed that is not published yet.

        Raises ConflictError if another process published changes meanwhile: all that came before is published.
        """
        told = FeedCommit(table, tables.FEED_OF[table])
        if self.lake.catalog.load(stream.name, table) is None:
            return told
        feed = FeedTable(self.lake.catalog, stream, table)
        position = feed.prepare()
        # After the position: a table as it was before would not know the snapshot that another process has come to.
        loaded = self.lake.catalog.load_table(stream.name, table)
        source, files = self.lake.table_files(stream, table), feed.files()
        copies = WholeFiles(source, files, ORDINAL)
        differences = Differences(stream, table, source, feed)
        with ThreadPoolExecutor(WRITERS) as writers:
            pending = _Pending(files, copies, writers, position)
            for step in steps(loaded, position.up_to):
                pending.add(step, differences.of(step))
                if pending.is_full:
                    told = self._publish(feed, pending, told)
            return self._publish(feed, pending, told)

    def _publish(self, feed: FeedTable, pending: "_Pending", told: FeedCommit) -> FeedCommit:
        if pending.up_to is None:
            return told
        before, files, changes = pending.position, pending.close(), pending.changes
        sync_written()
        base = feed.append(before, files, pending.up_to, pending.version)
        first = told.first_version or (before.version + 1 if pending.version > before.version else 0)
        done = FeedCommit(
            told.table,
            told.feed,
            first,
            pending.version if first else 0,
            told.changes + changes,
            told.bytes_written + sum(file.file_size_in_bytes for file in files),
        )
        pending.begin(FeedPosition(base, pending.up_to, pending.version))
        return done


class _Pending:
    """Versions on their way into files that no snapshot of the feed names yet."""

    def __init__(self, files: TableFiles, copies: WholeFiles, writers: Executor, position: FeedPosition) -> None:
        self._files, self._copies, self._writers = files, copies, writers
        self.begin(position)

    def begin(self, position: FeedPosition) -> None:
        """Forget what was published: the feed is at this position now."""
        self.position = position
        self.version = position.version
        self.up_to: int | None = None
        self.changes: Counter[str] = Counter()
        self._steps = 0
        self._written: list[Future[list[DataFile]]] = []
        self._held: dict[tuple[int, str], list[Piece]] = {}

    @property
    def is_full(self) -> bool:
        """Whether it is time to commit."""
        return self._steps >= COMMIT_STEPS or self.changes.total() >= COMMIT_ROWS

    def add(self, step: Step, changes: Iterable[Piece]) -> None:
        """Take the changes of one commit of the table, if there are any, as the next version."""
        at = committed_at(step.snapshot)
        day = (at - EPOCH).days
        if is_large(step):
            self._write_all()
        version = self.version + 1
        commit = {"_commit_version": version, "_commit_timestamp": at, "_commit_snapshot_id": step.snapshot.snapshot_id}
        columns = {name: pl.lit(value, _COMMIT[name]) for name, value in commit.items()}
        for piece in filter(_rows, changes):
            self.version = version
            self.changes.update(_kinds(piece))
            # Those of a kind have ordinals of their own. Apart from the others, and from other versions, they make
            # files that can be read one after the other.
            place = (day, _kind(piece) if is_large(step) else "")
            if isinstance(piece, Whole):
                self._hold(place, [replace(piece, same={**piece.same, **commit})])
            else:
                self._hold(place, piece.with_columns(**columns).iter_slices(FILE_ROWS))
        if is_large(step):
            self._write_all()
        self.up_to = step.snapshot.snapshot_id
        self._steps += 1

    def close(self) -> list[DataFile]:
        """All of it as files."""
        self._write_all()
        return [file for each in self._written for file in each.result()]

    def _hold(self, place: tuple[int, str], pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            held = self._held.setdefault(place, [])
            held.append(piece)
            if sum(map(_rows, held)) >= FILE_ROWS:
                self._write(place)

    def _write_all(self) -> None:
        for place in list(self._held):
            self._write(place)

    def _write(self, place: tuple[int, str]) -> None:
        """Have a thread write what is held, while more of it is worked out; no more is in memory than is written."""
        for _, pieces in groupby(self._held.pop(place), lambda piece: isinstance(piece, Whole)):
            if len(busy := [each for each in self._written if not each.done()]) >= WRITERS:
                wait(busy, return_when=FIRST_COMPLETED)
            self._written.append(self._writers.submit(self._file, (place[0],), list(pieces)))

    def _file(self, place: tuple[int], pieces: list[Piece]) -> list[DataFile]:
        if isinstance(pieces[0], Whole):
            return self._copies.write(place, cast("list[Whole]", pieces))
        return [self._files.write_at(place, pl.concat(cast("list[pl.DataFrame]", pieces)).to_arrow())]


def _rows(piece: Piece) -> int:
    return piece.file.record_count if isinstance(piece, Whole) else len(piece)


def _kind(piece: Piece) -> str:
    """Deletes, updates, whose last image is the later one, or inserts."""
    return INSERT if isinstance(piece, Whole) else str(piece["_change_type"][-1])


def _kinds(piece: Piece) -> dict[str, int]:
    """How many changes of each kind there are."""
    return (
        {INSERT: _rows(piece)} if isinstance(piece, Whole) else dict(piece["_change_type"].value_counts().iter_rows())
    )
