"""Where a stream's records come from."""

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, PrivateAttr, Tag, model_validator
from pydantic_core import PydanticCustomError

from dedup_platform.stream.format import Format
from dedup_platform.stream.s3_path import SCHEME, S3Path
from dedup_platform.stream.values import (
    Count,
    Duration,
    FieldName,
    Part,
    PathText,
    PositiveDuration,
    Size,
    Text,
    origin_of,
)

__all__ = ["MAX_PARTITIONS", "MAX_UNPACKED_RATIO", "Brokers", "FilesSource", "KafkaSource", "Lane", "Source", "Topic"]

MAX_UNPACKED_RATIO = 200
MAX_PARTITIONS = 200
MaxPartitions = Annotated[Count, Field(ge=1)]
_RELIST = timedelta(hours=1)


def _glob(path: str) -> str:
    if path.startswith(SCHEME):
        S3Path.parse(path)
        return path
    if "://" in path:
        raise ValueError("must be a local path, absolute or relative to the stream file's folder, or s3://bucket/key")
    if not path or path.endswith("/"):
        raise ValueError("names no files; write a pattern like events/*.csv.gz")
    if "{date:" in path:
        raise ValueError("has a date, which is for paths on S3; a folder is searched whole: write * in its place")
    return path


def _known_kind(value: Any) -> Any:
    if value not in ("files", "kafka"):
        raise PydanticCustomError("literal_error", "must be 'files' or 'kafka'")
    return value


class FilesSource(Format):
    """Files in a folder or on S3. `path` is a glob: on S3, absolute, or relative to the stream file's folder.

    A file is read once it has not been modified for `settle`; a batch reads at most `max_batch_files` files and
    about `max_batch_bytes` bytes (a larger file is a batch of its own). On S3 all keys are listed every `relist`, and
    in between only those that may be new. Links that lead out of the folder are read only with `follow_links`: who
    puts files there could otherwise have us read any file that we may read. A compressed file is read up to
    `max_unpacked_ratio` times its size (and 4 MiB in any case), and the records of any file up to twice as much; what
    follows counts as damaged. Records of a file may lie in `max_partitions` partitions, or in one for every 10 of
    them; those in further ones are rejected.
    """

    kind: Annotated[Literal["files"], BeforeValidator(_known_kind)]
    """Says that the records are in files."""
    path: Annotated[PathText, AfterValidator(_glob)]
    """Which files: a glob, absolute, relative to the stream file's folder, or `s3://bucket/prefix/*`, where it may
    hold a date, `{date:%Y/%m/%d}`."""
    settle: Duration = timedelta(seconds=2)
    """A file is read once it was not modified for so long."""
    relist: Duration = _RELIST
    """On S3: all keys are listed so often, in between only those that may be new."""
    max_batch_files: Annotated[Count, Field(ge=1)] = 1000
    """A batch reads at most so many files."""
    max_batch_bytes: Size = 2**30
    """A batch reads about so many bytes; a larger file is a batch of its own."""
    follow_links: bool = Field(False, exclude_if=lambda value: not value)
    """Whether links that lead out of the folder are read."""
    max_unpacked_ratio: Annotated[Count, Field(ge=1)] = Field(
        MAX_UNPACKED_RATIO, exclude_if=lambda value: value == MAX_UNPACKED_RATIO
    )
    """A compressed file is read up to so many times its size; what follows counts as damaged."""
    max_partitions: MaxPartitions = Field(MAX_PARTITIONS, exclude_if=lambda value: value == MAX_PARTITIONS)
    """The records of a file may lie in so many partitions, or in one for every 10 of them."""
    _folder: Path = PrivateAttr(default_factory=Path.cwd)

    def model_post_init(self, context: Any) -> None:
        self._folder = origin_of(context).parent.resolve()

    @model_validator(mode="after")
    def _fits_files(self) -> "FilesSource":
        self.check_files()
        if self.relist != _RELIST and not self.s3:
            raise ValueError("relist is for paths on S3; a folder is searched whole at every look")
        if self.follow_links and self.s3:
            raise ValueError("follow_links is for folders; S3 has no links")
        return self

    @property
    def s3(self) -> S3Path | None:
        """Where on S3 the files are; None if they are in a folder."""
        return S3Path.parse(self.path) if self.path.startswith(SCHEME) else None

    @property
    def root(self) -> Path:
        """The fixed folder in front of the first glob character; records' `source` is relative to it. Not on S3."""
        fixed = Path(self.path).parts[: self._fixed_parts]
        # The folder holds no symbolic link, so that `..` can be taken out by its letters.
        return Path(os.path.normpath(self._folder.joinpath(*fixed)))

    @property
    def pattern(self) -> str:
        """The glob below the root."""
        return self.s3.pattern if self.s3 else "/".join(Path(self.path).parts[self._fixed_parts :])

    @property
    def place(self) -> str:
        """The whole glob, with the folder that it is relative to."""
        return self.path if self.s3 else str(self.root / self.pattern)

    def below_root(self, path: str) -> str:
        """A path as records' `source` has it, of one that is absolute; any other as it is."""
        if self.s3:
            return path.removeprefix(f"{SCHEME}{self.s3.bucket}/{self.s3.root}")
        return Path(path).relative_to(self.root).as_posix() if Path(path).is_relative_to(self.root) else path

    @property
    def _fixed_parts(self) -> int:
        parts = Path(self.path).parts
        globs = [i for i, part in enumerate(parts) if re.search(r"[*?\[]", part)]
        return min([*globs, len(parts) - 1])


class Lane(Part):
    """Which of a topic's partitions a deployment owns: those whose number, divided by `of`, leaves `index`."""

    index: Annotated[Count, Field(ge=0)]
    """Which of the lanes, from 0."""
    of: Annotated[Count, Field(ge=1)]
    """How many lanes share the topic."""

    @model_validator(mode="after")
    def _index_is_below(self) -> "Lane":
        if self.index >= self.of:
            raise ValueError(f"index must be below of: {self.of} lanes are numbered from 0 to {self.of - 1}")
        return self

    def owns(self, partition: int) -> bool:
        """Whether a partition of the topic is this lane's."""
        return partition % self.of == self.index


def _brokers(value: str) -> str:
    if not all(re.fullmatch(r"\s*(\[[0-9a-fA-F:]+\]|[^\s:/@,]+):[0-9]{1,5}\s*", broker) for broker in value.split(",")):
        raise ValueError("must be a broker like kafka.example.com:9092, or several with commas between them")
    return ",".join(broker.strip() for broker in value.split(","))


def _topic(value: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", value) or value in (".", ".."):
        raise ValueError("is no topic; Kafka allows letters, digits, '.', '_' and '-'")
    return value


Brokers = Annotated[Text, AfterValidator(_brokers)]
Topic = Annotated[Text, AfterValidator(_topic)]


class KafkaSource(Format):
    """A topic, read in batches of explicit ranges of offsets. Other connection options are a setting (`kafka`).

    A batch reads at most `max_batch_records` messages, about `max_batch_bytes` bytes of them, and no more than lately
    took `transaction_timeout` to take in. Afterwards the positions are told to the consumer group `group`, for those
    who watch its lag; nothing is read from there. The records that a task reads of a topic's partition may lie in
    `max_partitions` partitions of the stream, or in one for every 10 of them; those in further ones are rejected.
    """

    kind: Literal["kafka"]
    """Says that the records are messages of a topic."""
    brokers: Brokers
    """`host:port` of a broker, or several with commas between."""
    topic: Topic
    """The topic's name."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where reading of a topic begins that the stream never read."""
    group: FieldName | None = None
    """The consumer group that is told the positions; nothing is read from there. Without it, one named after the
    stream."""
    lane: Lane = Lane(index=0, of=1)
    """Which of the topic's partitions are read here, where several deployments share it."""
    max_batch_records: Annotated[Count, Field(ge=1)] = 1_000_000
    """A batch reads at most so many messages."""
    max_batch_bytes: Size = 2**30
    """A batch reads about so many bytes."""
    transaction_timeout: PositiveDuration = timedelta(seconds=30)
    """A batch reads no more than lately took so long to take in."""
    max_partitions: MaxPartitions = Field(MAX_PARTITIONS, exclude_if=lambda value: value == MAX_PARTITIONS)
    """What a task reads of a partition of the topic may lie in so many partitions of the stream, or in one for
    every 10 records."""

    @model_validator(mode="after")
    def _messages_have_this_format(self) -> "KafkaSource":
        self.check_messages()
        return self


def _tag(value: Any) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return "KafkaSource" if kind == "kafka" else "FilesSource"


Source = Annotated[
    Annotated[FilesSource, Tag("FilesSource")] | Annotated[KafkaSource, Tag("KafkaSource")], Discriminator(_tag)
]
