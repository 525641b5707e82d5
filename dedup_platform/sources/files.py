"""Files as a source: which can be read now, and their records as rows of `raw_events`, read by Spark's Python workers.

Files are put into groups, one Spark task each, so that many small files are few tasks. A file is never split: its
records are numbered from its start, and it streams through in bounded memory.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from heapq import heappop, heappush
from typing import BinaryIO

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dedup_platform import schemas
from dedup_platform.errors import SourceChangedError, SourceError
from dedup_platform.escapes import one_line
from dedup_platform.sources.allowance import within_allowance
from dedup_platform.sources.batches import Delivered, Input, Part, RawBatches, RecordChunk, number_after
from dedup_platform.sources.compression import DamageError, Packed
from dedup_platform.sources.contents import Batch
from dedup_platform.sources.decoding import Delivery, EventDecoder
from dedup_platform.sources.exploding import exploded
from dedup_platform.sources.listing import Listing, SourceFile, changed_while_reading, list_files, stamp
from dedup_platform.sources.messages import MessageReader
from dedup_platform.sources.parquet_records import parquet_batches, parquet_records
from dedup_platform.sources.records import UNFORESEEN, Record, damaged, unprocessable
from dedup_platform.sources.repeated import Repeated
from dedup_platform.sources.s3.access import S3Access
from dedup_platform.sources.text.csv_lines import csv_batches
from dedup_platform.sources.text.csv_records import csv_records
from dedup_platform.sources.text.json_documents import Placed, PlacedBatch, json_event_batches, json_events
from dedup_platform.sources.text.json_lines import json_batches
from dedup_platform.sources.text.json_records import json_records
from dedup_platform.sources.text.json_shapes import JsonShapes
from dedup_platform.sources.text.lines import Lines
from dedup_platform.spark.task_limits import is_for_lack_of_memory
from dedup_platform.spark.workers import prepare_worker
from dedup_platform.stream import FilesSource, Stream

__all__ = [
    "Listing",
    "SourceFile",
    "beginning_of",
    "changed_since_listed",
    "files_of_group",
    "grouped",
    "is_little",
    "list_files",
    "placed_records",
    "read_files",
    "read_group",
    "records_of",
]

Group = list[tuple[SourceFile, int]]

_AS_FOUND = S3Access()
"""What boto3 finds by itself, for files whose owner says nothing else."""
_LITTLE = 6 * 2**20  # to bring together what several tasks read takes about as long as reading this
_SMALL_GROUP = 512 * 1024
_LARGE_GROUP = 128 * 2**20
_ENOUGH_GROUPS = 16  # to keep a machine busy; twice as many and so on only if they would be large
_FILE_COST = 16 * 1024  # opening a file costs about as much as reading this


def read_files(
    spark: SparkSession, stream: Stream, files: Sequence[tuple[SourceFile, int]], s3: S3Access = _AS_FOUND
) -> DataFrame:
    """The records of some files, each with its generation: rows with exactly the columns of `raw_events`.

    A file that cannot be read as it was listed fails the job, with the name of the file and why in Spark's error.
    """
    groups = grouped(files)
    numbers = spark.range(0, len(groups), 1, numPartitions=max(1, len(groups)))
    return numbers.mapInArrow(partial(_read_groups, stream, groups, s3), schemas.raw_schema(stream))


def read_group(
    stream: Stream, groups: Sequence[Group], number: int, s3: S3Access = _AS_FOUND
) -> Iterator[pl.DataFrame]:
    """The records of one group of files, in frames with exactly the columns of `raw_events`.

    Whatever a file holds becomes rows, rejected ones if need be. SourceError for a file that cannot be opened,
    SourceChangedError for one that is not as it was listed.
    """
    batches = RawBatches(stream)
    files = _files(stream, groups[number], s3, batches.decoder)
    yield from batches.of(delivered for file in files for delivered in file.together())


def files_of_group(stream: Stream, groups: Sequence[Group], number: int, s3: S3Access = _AS_FOUND) -> Iterator[Input]:
    """The files of one group, each by itself. Errors as those of `read_group`."""
    return _files(stream, groups[number], s3, EventDecoder(stream))


def _files(stream: Stream, group: Group, s3: S3Access, decoder: EventDecoder) -> Iterator[Input]:
    shapes = JsonShapes()
    for file, generation in group:
        of_file = (stream, file, generation, s3, decoder)
        yield Input(partial(_delivered, *of_file, shapes), partial(_parts, *of_file), is_file=True)


def records_of(stream: Stream, file: SourceFile, s3: S3Access = _AS_FOUND) -> Iterator[Record]:
    """The records of one file in order. SourceError if it cannot be opened, SourceChangedError if it is another now."""
    with _content_of(stream, file, s3) as content:
        yield from (record for record, _, _ in placed_records(stream, content, file.path))


def placed_records(stream: Stream, file: BinaryIO, path: str) -> Iterator[Placed]:
    """The records of one file, each with its number, or that of what it was in, and its place in that."""
    source, steps, content = stream.source, stream.source.list_steps, _packed(stream, file, path)
    if steps is None:
        return ((record, number, 0) for number, record in enumerate(_records(stream, content)))
    if source.format == "json":
        return json_events(content.unpacked(), steps)
    return (
        (event, number, index)
        for number, record in enumerate(_records(stream, content))
        for index, event in enumerate(exploded(record, steps, source.format))
    )


def beginning_of(stream: Stream, file: SourceFile, size: int, s3: S3Access = _AS_FOUND) -> bytes:
    """The first bytes of a file, unpacked, at most so many; of a damaged one those before the damage.

    Errors as those of `records_of`.
    """
    parts: list[bytes] = []
    with _content_of(stream, file, s3) as content, suppress(DamageError):
        for chunk in _packed(stream, content, file.path).unpacked():
            parts.append(chunk)
            if sum(map(len, parts)) >= size:
                break
    return b"".join(parts)[:size]


def changed_since_listed(files: Sequence[SourceFile], s3: S3Access) -> list[SourceFile]:
    """Those that are no longer as they were listed: written again, gone, or closed to us.

    SourceError if S3 does not tell.
    """
    changed = changed_while_reading([file for file in files if not file.is_on_s3])
    on_s3 = [file for file in files if file.is_on_s3]
    if on_s3:
        from dedup_platform.sources.s3.objects import changed_objects

        changed += changed_objects(s3, on_s3)
    return changed


def _packed(stream: Stream, file: BinaryIO, path: str) -> Packed:
    # What a topic's messages are may be tried with a file.
    source = stream.source
    return Packed(file, path, source.max_unpacked_ratio) if isinstance(source, FilesSource) else Packed(file, path)


def _records(stream: Stream, content: Packed) -> Iterator[Record]:
    source = stream.source
    if source.format == "parquet":
        return parquet_records(content)
    # Loaded only by streams of these formats, as their libraries are.
    if source.format == "avro":
        from dedup_platform.sources.avro.files import avro_records

        return avro_records(content)
    if source.format == "protobuf":
        from dedup_platform.sources.protobuf.files import delimited_messages

        reader = MessageReader(stream)
        return delimited_messages(content, reader.records, reader.hold_batches)
    lines = Lines(content.unpacked(), source.encoding)
    return csv_records(lines, source.csv) if source.format == "csv" else json_records(lines)


def grouped(files: Sequence[tuple[SourceFile, int]], at_once: int | None = None) -> list[Group]:
    """About equally large groups: a few for little, more for much, up to a file each.

    Where it is known how many are read at once, as many: what several tasks read of a cell must be brought together.
    """
    enough = at_once or _ENOUGH_GROUPS
    size = _cost(files)
    rounds = -(-size // (_LARGE_GROUP * enough))
    wanted = min(rounds * enough, size // _SMALL_GROUP)
    groups: list[Group] = [[] for _ in range(max(1, min(wanted, len(files))))]
    heap = [(0, number) for number in range(len(groups))]
    for file, generation in sorted(files, key=lambda each: -each[0].size):
        load, number = heappop(heap)
        groups[number].append((file, generation))
        heappush(heap, (load + file.size + _FILE_COST, number))
    return groups


def is_little(files: Sequence[tuple[SourceFile, int]]) -> bool:
    """Whether one task reads files sooner than several, which must bring together what they read of a cell.

    It does not on S3, where it takes long until a file is open.
    """
    return _cost(files) <= _LITTLE and not any(file.is_on_s3 for file, _ in files)


def _cost(files: Sequence[tuple[SourceFile, int]]) -> int:
    return sum(file.size + _FILE_COST for file, _ in files)


def _read_groups(
    stream: Stream, groups: list[Group], s3: S3Access, numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    prepare_worker()
    for number in (value for batch in numbers for value in batch.column(0).to_pylist()):
        for rows in read_group(stream, groups, number, s3):
            yield from rows.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches()


def _delivered(
    stream: Stream, file: SourceFile, generation: int, s3: S3Access, decoder: EventDecoder, shapes: JsonShapes
) -> Iterator[Delivered | RecordChunk]:
    """The records of one file; one stands for the rest if that is too much, or an error comes that nobody foresaw."""
    delivery = decoder.delivery(file.path, file.modified, stream.source.format)
    rest = partial(_rest_of, stream, file, generation, delivery)
    following = 0

    def read(content: BinaryIO) -> Iterator[Delivered | RecordChunk]:
        batches = _batches(stream, _packed(stream, content, file.path), decoder.messages, shapes)
        if batches is None:
            yield from _singles(stream, file, generation, content, delivery)
            return
        for batch, offsets, indexes in batches:
            yield RecordChunk.of_batch(batch, delivery, file.path, generation, offsets, indexes)

    with _content_of(stream, file, s3) as content:
        try:
            for each in within_allowance(read(content), file.size, stream.files.max_unpacked_ratio, rest):
                yield each
                following = number_after(each)
        except UNFORESEEN as error:
            if (isinstance(error, OSError) and error.errno is not None) or is_for_lack_of_memory(error):
                # The machine's, or of some records that are read alone then: not the file's.
                raise
            yield rest(following, unprocessable(error))


def _parts(stream: Stream, file: SourceFile, generation: int, s3: S3Access, decoder: EventDecoder) -> Iterator[Part]:
    """One file, whose records are read one by one."""
    delivery = decoder.delivery(file.path, file.modified, stream.source.format)
    rest = partial(_rest_of, stream, file, generation, delivery)
    with _content_of(stream, file, s3) as content:
        singles = _singles(stream, file, generation, content, delivery)
        records = within_allowance(singles, file.size, stream.files.max_unpacked_ratio, rest)
        yield Part(records, lambda last, reason: rest(number_after(last) if last else 0, reason))


def _singles(
    stream: Stream, file: SourceFile, generation: int, content: BinaryIO, delivery: Delivery
) -> Iterator[Delivered]:
    return (
        (record, delivery, (file.path, generation, number, index))
        for record, number, index in placed_records(stream, content, file.path)
    )


def _rest_of(
    stream: Stream, file: SourceFile, generation: int, delivery: Delivery, number: int, reason: str
) -> Delivered:
    """The record that stands for what follows in a file from this number on."""
    record = damaged(b"", DamageError(reason, None), format=stream.source.format)
    return record, delivery, (file.path, generation, number, 0)


def _batches(
    stream: Stream, content: Packed, messages: MessageReader, shapes: JsonShapes
) -> Iterable[PlacedBatch] | None:
    """The records of one file with their numbers and places, those together that were read together.

    None where they are read one by one.
    """
    source = stream.source
    if source.list_steps is None:
        return _numbered(_undivided_batches(stream, content, messages, shapes))
    return json_event_batches(content.unpacked(), source.list_steps, shapes) if source.format == "json" else None


def _numbered(batches: Iterable[Batch]) -> Iterator[PlacedBatch]:
    begin = 0
    for batch in batches:
        numbers = range(begin, begin + len(batch[1]))
        yield batch, numbers, Repeated(0, len(numbers))
        begin = numbers.stop


def _undivided_batches(stream: Stream, content: Packed, messages: MessageReader, shapes: JsonShapes) -> Iterator[Batch]:
    match stream.source.format:
        case "parquet":
            return parquet_batches(content)
        case "json":
            return json_batches(Lines(content.unpacked()), shapes)
        case "avro":
            from dedup_platform.sources.avro.files import avro_batches

            return avro_batches(content)
        case "csv":
            return csv_batches(Lines(content.unpacked(), stream.source.encoding), stream.source.csv)
        case "protobuf":
            return messages.delimited(content)


@contextmanager
def _content_of(stream: Stream, file: SourceFile, s3: S3Access) -> Iterator[BinaryIO]:
    with ExitStack() as closing:
        content = closing.enter_context(_opened_on_s3(file, s3) if file.is_on_s3 else _opened(file))
        if file.is_on_s3 and stream.files.format == "parquet":
            # It is read here and there, which would be many requests.
            content = closing.enter_context(_copied(content))
        yield content


def _opened_on_s3(file: SourceFile, s3: S3Access) -> AbstractContextManager[BinaryIO]:
    # Loaded only by streams with objects on S3, as its library is.
    from dedup_platform.sources.s3.objects import opened_object

    return opened_object(s3, file)


@contextmanager
def _opened(file: SourceFile) -> Iterator[BinaryIO]:
    try:
        with file.opened() as content:
            begun = os.fstat(content.fileno())
            yield content
            # Only at the end: what changed before or meanwhile shows then too. Who sets the time of modification back
            # sets that of the change of status on.
            ended = os.fstat(content.fileno())
            if stamp(ended) != (file.size, file.etag) or ended.st_ctime_ns != begun.st_ctime_ns:
                raise SourceChangedError(f"{one_line(file.path)} changed since it was listed")
    except OSError as error:
        raise SourceError(file.path, f"cannot be read: {error.strerror}") from None


@contextmanager
def _copied(content: BinaryIO) -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(content, copy)
        copy.seek(0)
        yield copy
