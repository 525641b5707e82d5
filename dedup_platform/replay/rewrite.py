"""Records of `raw_events` judged anew, by tasks of Spark that read and write data files themselves.

A task streams through whole data files. Where a row changes, its file is replaced: what changed goes to the cell where
it belongs now (or to the rejected records), what did not is copied. A file in which nothing changes is left alone.
Nothing is committed: what a task returns are files that no snapshot names yet.
"""

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Any, Protocol

import polars as pl
from pyiceberg.manifest import DataFile
from pyspark.sql import SparkSession

from dedup_platform.errors import DeadlyRecordError
from dedup_platform.lake.durable import sync_written
from dedup_platform.lake.table_files import HeldRows, TableFiles, by_cell, frame_of
from dedup_platform.recompute.chunks import TASK_BYTES, split_evenly
from dedup_platform.sources.batch_decoding import BatchDecoder
from dedup_platform.sources.contents import ListedContents
from dedup_platform.sources.records import ENDED_PROCESS
from dedup_platform.sources.registry import log_in
from dedup_platform.sources.repeated import Runs
from dedup_platform.spark.task_limits import TaskLimits, limited, note_progress
from dedup_platform.spark.workers import InProcess, has_ended_worker, on_workers
from dedup_platform.stream import Stream
from dedup_platform.tables import ARRIVAL_ORDER, RAW_EVENTS, column_names

HELD_BYTES = 64 * 2**20
"""A task holds about so many bytes of rows before it writes them."""
DROPPED = "dropped:"
"""In front of the reason of a record that somebody dropped."""


@dataclass(frozen=True)
class Choice:
    """Which rejected records are meant: those for which all that is said holds. None says nothing.

    `reason` and `source` are globs; `since` <= `arrival_time` < `until`; `upto` is the last one in arrival order.
    """

    reason: str | None = None
    source: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    upto: tuple[Any, ...] | None = None

    def ending_with(self, last: tuple[Any, ...]) -> "Choice":
        """Those of them that are this record (what stands in arrival order) or come before it."""
        return replace(self, upto=last)

    def of(self, rows: pl.DataFrame) -> pl.Series:
        """Whether each row is meant; the rows have a reason and what stands in arrival order."""
        meant = pl.lit(True)
        for name, glob in (("rejection_reason", self.reason), ("source", self.source)):
            if glob is not None:
                meant &= pl.col(name).is_in([each for each in rows[name].unique() if fnmatchcase(each, glob)])
        if self.since is not None:
            meant &= pl.col("arrival_time") >= self.since
        if self.until is not None:
            meant &= pl.col("arrival_time") < self.until
        if self.upto is not None:
            meant &= _not_after(self.upto)
        return rows.select(meant.alias("meant") & pl.col("source").is_not_null())["meant"]


class Judge(Protocol):
    """Says of some rows of `raw_events` which change, by their places, and what these become."""

    def __call__(self, rows: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
        """The places (from 0) of the rows that change, and these rows as they are to be."""


@dataclass(frozen=True)
class Replay:
    """Decodes rejected records again, with today's stream file. Those that have no payload stay as they are.

    So do those that ended a process, unless it is said by reason which are meant: they may end the task again.
    """

    stream: Stream
    choice: Choice

    def __call__(self, rows: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
        """Those that became events, or whose reason is another one now. Only then is their arrival told anew."""
        chosen = self.choice.of(rows) & is_replayed(self.choice, rows)
        places = chosen.arg_true()
        before = rows[places]
        after = _decoded(before, self._decoder, is_arrival_fixed=False)
        is_event = after["rejection_reason"].is_null()
        # What stands in for an arrival that could not be read stays until it can be.
        arrival = after.select(pl.when(is_event).then("arrival_time").otherwise(before["arrival_time"]))
        after = after.with_columns(arrival.to_series().alias("arrival_time"))
        differs = after["rejection_reason"].ne_missing(before["rejection_reason"])
        return places.filter(differs), after.filter(differs)

    @cached_property
    def _decoder(self) -> BatchDecoder:
        return BatchDecoder(self.stream)


@dataclass(frozen=True)
class Redecoding:
    """Decodes events again, with today's stream file, but for their arrival: it was fixed when they were taken in."""

    stream: Stream

    def __call__(self, rows: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
        """Those of which any column differs, rejected ones among them."""
        places = rows["payload"].is_not_null().arg_true()
        before = rows[places]
        after = _decoded(before, self._decoder, is_arrival_fixed=True)
        differs = pl.repeat(False, before.height, eager=True)
        for name in _decoded_names(self.stream):
            differs |= after[name].ne_missing(before[name])
        return places.filter(differs), after.filter(differs)

    @cached_property
    def _decoder(self) -> BatchDecoder:
        return BatchDecoder(self.stream)


@dataclass(frozen=True)
class Dropping:
    """Takes the payload from rejected records, and marks the reason."""

    choice: Choice

    def __call__(self, rows: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
        """Those that are not dropped yet."""
        places = (self.choice.of(rows) & ~is_dropped(rows)).arg_true()
        return places, rows[places].with_columns(
            payload=pl.lit(None, pl.Binary), rejection_reason=pl.lit(DROPPED) + pl.col("rejection_reason")
        )


@dataclass(frozen=True)
class Rewritten:
    """What tasks did: paths of files to take away, files to add, and how many rows changed in which way."""

    removed: frozenset[str] = frozenset()
    added: tuple[DataFile, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
    """`accepted`: became events; `rejected`: were events; `altered`: are what they were, with other values."""


def rewrite(
    spark: SparkSession,
    stream: Stream,
    table: TableFiles,
    buckets: int,
    files: Sequence[DataFile],
    judge: Judge,
    login: str | None,
    limits: TaskLimits | None = None,
) -> Rewritten:
    """Have Spark's workers judge the rows of these files of `raw_events`; small files share a task.

    `login` is that of the stream's schema registry. Raises DeadlyRecordError if a record ends its worker.
    """
    if isinstance(spark, InProcess):
        limits = None
    tasks = [pickle.dumps(part) for part in split_evenly(files, lambda file: file.file_size_in_bytes, TASK_BYTES)]
    run = partial(_run_limited, limits, partial(_run, stream, table, buckets, judge, login))
    try:
        done: list[Rewritten] = [pickle.loads(each) for each in on_workers(spark, tasks, run)]
    except Exception as error:
        if not has_ended_worker(error):
            raise
        raise DeadlyRecordError(
            f"{stream.name}: a record ended the process that decoded it again, and nothing was changed. Choose others "
            "by --reason, --source, --since or --until, or put the stream file right first."
        ) from error
    return Rewritten(
        frozenset(path for each in done for path in each.removed),
        tuple(table.partitioned(file) for each in done for file in each.added),
        sum((each.counts for each in done), Counter()),
    )


def is_replayed(choice: Choice, rows: pl.DataFrame) -> pl.Series:
    """Whether each of the rejected records that are meant can be decoded again, and should."""
    has_payload = rows["payload"].is_not_null()
    if choice.reason is not None:
        return has_payload
    return has_payload & ~rows["rejection_reason"].str.starts_with(ENDED_PROCESS).fill_null(value=False)


def is_dropped(rows: pl.DataFrame) -> pl.Series:
    """Whether each rejected record was dropped."""
    return rows["rejection_reason"].str.starts_with(DROPPED)


def _run_limited(limits: TaskLimits | None, run: Callable[[bytes], bytes], task: bytes) -> bytes:
    with limited(limits):
        return run(task)


def _run(stream: Stream, table: TableFiles, buckets: int, judge: Judge, login: str | None, task: bytes) -> bytes:
    log_in(stream.source, login)
    names = column_names(stream, RAW_EVENTS)
    held, added = HeldRows(), list[DataFile]()
    removed, counts = [], Counter[str]()

    def hold(rows: pl.DataFrame) -> None:
        for part in by_cell(rows, stream.partitions.length, buckets):
            held.hold(*part)
        if held.size >= HELD_BYTES:
            write()

    def write() -> None:
        note_progress()
        added.extend(table.write(cell, rows.to_arrow()) for cell, rows in held.take_all())

    for file in pickle.loads(task):
        changed = []
        for rows in _frames(table, file, names):
            note_progress()
            places, after = judge(rows)
            counts.update(_outcomes(rows[places], after))
            hold(after)
            changed.append(places)
        if any(places.len() for places in changed):
            removed.append(file.file_path)
            for places, rows in zip(changed, _frames(table, file, names), strict=True):
                hold(rows.with_row_index("_place").filter(~pl.col("_place").is_in(places.implode())).drop("_place"))
    write()
    sync_written()
    return pickle.dumps(Rewritten(frozenset(removed), tuple(added), counts))


def _frames(table: TableFiles, file: DataFile, names: Sequence[str]) -> Iterator[pl.DataFrame]:
    return map(frame_of, table.batches(file, names))


def _decoded(rows: pl.DataFrame, decoder: BatchDecoder, is_arrival_fixed: bool) -> pl.DataFrame:
    """The rows with what decoding their payloads gives now."""
    known = rows.select("payload", "payload_context", "source", "arrival_time").iter_rows()
    kept = [
        decoder.single.kept(payload, context, source, arrival, is_arrival_fixed)
        for payload, context, source, arrival in known
    ]
    decoded = decoder.decode(
        ListedContents([content for content, _ in kept]), Runs([[delivery for _, delivery in kept]])
    )
    return rows.with_columns(decoded.cast({name: rows.schema[name] for name in decoded.columns}))


def _decoded_names(stream: Stream) -> tuple[str, ...]:
    return ("entity_id", "event_id", "event_time", *stream.attributes, "rejection_reason")


def _outcomes(before: pl.DataFrame, after: pl.DataFrame) -> Iterable[str]:
    """What became of each row that changed."""
    was, is_ = before["rejection_reason"].is_null(), after["rejection_reason"].is_null()
    return ("altered" if old == new else "accepted" if new else "rejected" for old, new in zip(was, is_, strict=True))


def _not_after(last: tuple[Any, ...]) -> pl.Expr:
    """The condition that a row is this one, or comes before it in arrival order."""
    condition = pl.lit(True)
    for name, value in reversed(list(zip(ARRIVAL_ORDER, last, strict=True))):
        condition = (pl.col(name) < value) | ((pl.col(name) == value) & condition)
    return condition
