"""Reads inputs of one kind as a run does, and counts: what went in comes out as rows."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from shutil import rmtree

import polars as pl
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from dedup_platform.sources.batches import RawBatches
from dedup_platform.sources.files import list_files, read_group, records_of
from dedup_platform.sources.kafka.deliveries import MessageDeliveries
from dedup_platform.sources.messages import MessageReader
from dedup_platform.sources.records import DAMAGED_FILE, UNPROCESSABLE
from dedup_platform.stream import Stream
from dedup_platform_tests.fuzzing.damage import damaged
from dedup_platform_tests.fuzzing.kinds import Kind

ALONE = 8
"""One of so many files is read record by record, too."""
_MADE_OF = 80
"""Inputs of one that is whole."""
_LINE = re.compile(rb"\r\n?|\n")
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xff\x06\x00\x00sNaPpY")
"""Content that is unpacked whatever its name is. Zstandard's skippable frames are, too."""
_STAMPS = [(TIMESTAMP_LOG_APPEND_TIME, 1_800_000_000_000)] * 9 + [
    (TIMESTAMP_CREATE_TIME, 1_800_000_000_000),
    (TIMESTAMP_CREATE_TIME, -1),
    (TIMESTAMP_CREATE_TIME, 253_402_300_800_000),
]


class UnforeseenError(AssertionError):
    """A reader raised what none should raise."""


class NotConservedError(AssertionError):
    """What went in did not come out, or more did."""


def inputs(kind: Kind, name: str, seed: int, count: int, folder: Path) -> list[bytes]:
    """The inputs of a seed: some that are whole, and the others made of them."""
    random = Random(f"{name} {seed}")
    whole = [kind.whole(random, folder) for _ in range(-(-count // _MADE_OF))]
    return whole + [damaged(random, random.choice(whole), random.choice(whole)) for _ in range(count - len(whole))]


def read(kind: Kind, contents: Sequence[bytes], folder: Path) -> int:
    """Read all of them together; how many rows they became. NotConservedError, and whatever a reader raises."""
    stream = kind.stream(folder)
    if kind.is_message:
        return _read_messages(kind, stream, contents)
    return _read_files(kind, stream, contents, folder / "in")


def _read_files(kind: Kind, stream: Stream, contents: Sequence[bytes], folder: Path) -> int:
    rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number, content in enumerate(contents):
        (folder / f"{number:05}{kind.ending}").write_bytes(content)
    files = sorted(list_files(stream, datetime.max.replace(tzinfo=UTC)).ready, key=lambda file: file.path)
    rows = Counter[str]()
    for frame in read_group(stream, [[(file, 0) for file in files]], 0):
        _check_errors(frame)
        rows.update(frame["source"].to_list())
    for number, (file, content) in enumerate(zip(files, contents, strict=True)):
        found = rows[file.path]
        if not found or number % ALONE == 0:
            _compare("read one by one", sum(1 for _ in records_of(stream, file)), found)
        if kind.has_plain_lines and not content.startswith(_PACKED):
            lines = _LINE.split(content.removeprefix(b"\xef\xbb\xbf"))
            _compare("as lines", sum(1 for line in lines if line and not line.isspace()), found)
    return rows.total()


def _check_errors(frame: pl.DataFrame) -> None:
    """That each is rejected for a reason that somebody foresaw; the log tells of others."""
    unforeseen = frame.filter(
        pl.col("rejection_reason").str.starts_with(UNPROCESSABLE)
        | (pl.col("rejection_reason").eq(DAMAGED_FILE) & pl.col("payload_context").str.contains(UNPROCESSABLE))
    )
    if len(unforeseen):
        raise UnforeseenError(str(unforeseen["rejection_reason"].unique().to_list()))


def _compare(how: str, expected: int, rows: int) -> None:
    if rows != expected:
        raise NotConservedError(f"{expected} records {how}, but {rows} rows")


def _read_messages(kind: Kind, stream: Stream, values: Sequence[bytes]) -> int:
    random = Random(len(values))
    messages = [
        Message(
            value=value if random.random() > 0.01 else None,
            key=random.choice([None, b"u1", b"\xff", value[:40]]),
            timestamp=random.choice(_STAMPS),
            offset=offset,
        )
        for offset, value in enumerate(values)
    ]
    batches = RawBatches(stream)
    deliveries = MessageDeliveries(stream, batches.decoder)
    rows = Counter[int]()
    for frame in batches.of(deliveries.of(messages, "clicks", 0)):
        _check_errors(frame)
        rows.update(frame["source_offset"].to_list())
    reader = MessageReader(stream)
    for offset, message in enumerate(messages):
        value, found = message.value(), rows[offset]
        if value is None or not kind.holds_many:
            _compare("in a message", 1, found)
        elif not found or offset % ALONE == 0:
            _compare("read one by one", sum(1 for _ in reader.records(value)), found)
    return rows.total()
