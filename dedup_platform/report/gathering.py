"""What the report of a stream tells, from metadata and narrow columns of one snapshot of each table. No Spark."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import polars as pl
from pyiceberg.manifest import DataFile

from dedup_platform import tables
from dedup_platform.lake.snapshots import cell_of, live_entries
from dedup_platform.lake.table_files import TableFiles, frame_of, in_larger
from dedup_platform.planning.cells import closes
from dedup_platform.planning.figures import percentile
from dedup_platform.platform import Platform
from dedup_platform.platform.figures import PartitionFigures
from dedup_platform.rules.figures import rounded
from dedup_platform.stream import Stream

SHOWN = 10
"""So many of the worst sources, and of the reasons of rejects, are told apart."""
THREADS = 4
"""So many files are read at a time: that waits for a store of objects more than it works."""
_DONE = TypeVar("_DONE")


@dataclass(frozen=True)
class SourceFigures:
    """What came from one file or topic."""

    source: str
    records: int = 0
    copies: int = 0
    conflicts: int = 0
    late: int = 0
    rejected: int = 0

    @property
    def trouble(self) -> int:
        """How much of it is repeated, late or rejected, by which sources are ordered."""
        return self.copies + self.conflicts + self.late + self.rejected


@dataclass(frozen=True)
class SessionFigures:
    """How long sessions are. Numbers are rounded down to three digits, as percentiles of lateness are."""

    seconds: Mapping[int, int]
    """Whole seconds from the first event to the last -> sessions."""
    events: Mapping[int, int]
    """Events -> sessions."""

    @property
    def median_seconds(self) -> int | None:
        """None without sessions."""
        return percentile(self.seconds, 50)

    @property
    def median_events(self) -> int | None:
        """None without sessions."""
        return percentile(self.events, 50)


@dataclass(frozen=True)
class Report:
    """A stream in figures."""

    stream: Stream
    snapshots: Mapping[str, int] = field(default_factory=dict)
    """Table -> the snapshot that was read; empty before anything was taken in."""
    partitions: Mapping[int, PartitionFigures] = field(default_factory=dict)
    """By ordinal, in order."""
    sessions: SessionFigures | None = None
    """None where the stream file has none."""
    sources: tuple[SourceFigures, ...] = ()
    """The worst ones, worst first."""
    source_count: int = 0
    """How many there are in all."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why records were rejected -> how many, the most frequent first."""


def gather(platform: Platform, name: str) -> Report:
    """The report of a stream as its tables are now."""
    stream = platform.stream(name)
    while True:
        heads = {table: head.snapshot_id for table, head in platform.ledger.sync(name).items()}
        partitions = platform.figures.of_all(name)
        # The figures are of the newest snapshots, and so must be what is read; that takes longer, and so comes last.
        if heads == {table: head.snapshot_id for table, head in platform.ledger.sync(name).items()}:
            break
    if not heads:
        return Report(stream)
    heads[tables.DUPLICATE_EVENTS] = platform.lake.current(stream, tables.DUPLICATE_EVENTS)
    with ThreadPoolExecutor(THREADS) as threads:
        reading = _Reading(platform, stream, heads, threads)
        sources, reasons = reading.sources()
        sessions = reading.sessions() if stream.sessions else None
    worst = sorted(sources, key=lambda each: (-each.trouble, each.source))
    return Report(
        stream,
        heads,
        partitions,
        sessions,
        tuple(each for each in worst[:SHOWN] if each.trouble),
        len(sources),
        dict(sorted(reasons.items(), key=lambda each: (-each[1], each[0]))),
    )


@dataclass(frozen=True)
class _Reading:
    """Reads narrow columns of one snapshot of each table, some files at a time."""

    platform: Platform
    stream: Stream
    snapshots: Mapping[str, int]
    threads: ThreadPoolExecutor

    def sources(self) -> tuple[list[SourceFigures], Counter[str]]:
        """What came from each source, and why records were rejected."""
        records, rejected, reasons = Counter[str](), Counter[str](), Counter[str]()
        for of_file in self._of_files(tables.RAW_EVENTS, _count_raw):
            for counts, more in zip((records, rejected, reasons), of_file, strict=True):
                counts.update(more)
        kinds = sum(self._of_files(tables.DUPLICATE_EVENTS, _count_kinds), Counter[tuple[str, str]]())
        late = sum(self._of_files(tables.DEDUPLICATED_EVENTS, partial(_count_late, self.stream)), Counter[str]())
        found = [
            SourceFigures(name, count, kinds[name, "copy"], kinds[name, "conflict"], late[name], rejected[name])
            for name, count in records.items()
        ]
        return found, reasons

    def sessions(self) -> SessionFigures:
        """How long all sessions are."""
        seconds, events = Counter[int](), Counter[int]()
        for of_file in self._of_files(tables.SESSIONS, _count_lengths):
            seconds.update(of_file[0])
            events.update(of_file[1])
        return SessionFigures(dict(sorted(seconds.items())), dict(sorted(events.items())))

    def _of_files(self, table: str, count: Callable[[TableFiles, DataFile], _DONE]) -> Iterator[_DONE]:
        loaded = self.platform.lake.catalog.load_table(self.stream.name, table)
        files = self.platform.lake.table_files(self.stream, table)
        entries = live_entries(loaded, self.snapshots[table])
        return self.threads.map(partial(count, files), [entry.data_file for entry in entries])


def _count_raw(files: TableFiles, file: DataFile) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """The records of a file by source, and the rejected ones of them by source and by reason."""
    records, rejected, reasons = Counter[str](), Counter[str](), Counter[str]()
    is_rejected = cell_of(file) is None
    columns = ("source", "rejection_reason") if is_rejected else ("source",)
    for rows in _batches(files, file, *columns):
        records.update(_counts(rows["source"]))
        if is_rejected:
            rejected.update(_counts(rows["source"]))
            reasons.update(_counts(rows["rejection_reason"]))
    return records, rejected, reasons


def _count_kinds(files: TableFiles, file: DataFile) -> Counter[tuple[str, str]]:
    """The duplicates of a file by source and kind."""
    found = Counter[tuple[str, str]]()
    for rows in _batches(files, file, "source", "kind"):
        found.update(
            {(source, kind): count for source, kind, count in rows.group_by("source", "kind").len().iter_rows()}
        )
    return found


def _count_late(stream: Stream, files: TableFiles, file: DataFile) -> Counter[str]:
    """The late events of a file by source; one that cannot hold any is not read."""
    found, cell, bounds = Counter[str](), cell_of(file), files.bounds(file, "arrival_time")
    assert cell is not None, f"{file.file_path} is in no cell"
    closed = closes(cell.partition, stream.partitions.length, stream.late.grace)
    if bounds is None or bounds[1] > closed:
        for rows in _batches(files, file, "source", "arrival_time"):
            found.update(_counts(rows.filter(pl.col("arrival_time") > closed)["source"]))
    return found


def _count_lengths(files: TableFiles, file: DataFile) -> tuple[Counter[int], Counter[int]]:
    """The sessions of a file by their seconds and by their events."""
    seconds, events = Counter[int](), Counter[int]()
    for rows in _batches(files, file, "started_at", "ended_at", "event_count"):
        lasted = (pl.col("ended_at") - pl.col("started_at")).dt.total_seconds()
        found = rows.select(seconds=rounded(lasted), events=rounded(pl.col("event_count")))
        seconds.update(_counts(found["seconds"]))
        events.update(_counts(found["events"]))
    return seconds, events


def _batches(files: TableFiles, file: DataFile, *columns: str) -> Iterator[pl.DataFrame]:
    return map(frame_of, in_larger(files.batches(file, columns)))


def _counts(values: pl.Series) -> dict[Any, int]:
    """How often each value is there."""
    return dict(values.value_counts().iter_rows())
