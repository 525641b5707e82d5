"""What a stream file may say: one flow of events, where it comes from, and the rules for it.

A stream is checked when it is read and does not change afterwards. Times are aware UTC datetimes, durations timedeltas.
"""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    PrivateAttr,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from dedup_platform.errors import StreamFileError
from dedup_platform.stream_errors import describe_errors
from dedup_platform.stream_values import (
    AttributeType,
    ColumnName,
    Count,
    Duration,
    FieldName,
    Size,
    StreamName,
    TimeFormat,
    TimezoneName,
    decimal_of,
)
from dedup_platform.yaml_positions import parse_yaml

__all__ = [
    "Aggregate",
    "Attribute",
    "Deduplicate",
    "FieldHash",
    "FieldId",
    "FieldList",
    "Fields",
    "FileModified",
    "FileName",
    "FilesSource",
    "Late",
    "Partitions",
    "Sessions",
    "Stream",
    "TimeField",
    "load_stream",
    "load_streams",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LENGTHS = {"day": timedelta(days=1), "hour": timedelta(hours=1)}
_FUNCTIONS = ("count", "sum", "min", "max", "first", "last")
_LATER = "is not supported in this version"


class Part(BaseModel):
    """A part of a stream file: immutable, and it refuses keys that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __eq__(self, other: object) -> bool:
        # Where a stream file lies (private) is not what it says.
        return type(self) is type(other) and self.__dict__ == other.__dict__


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError("names one field twice")
    return names


FieldNames = Annotated[tuple[FieldName, ...], Field(min_length=1), AfterValidator(_distinct)]


def _only(*allowed: str, later: tuple[str, ...] = ()) -> BeforeValidator:
    def check(value: Any) -> Any:
        if value in later:
            raise ValueError(f"{_LATER}; allowed: {', '.join(allowed)}")
        return value

    return BeforeValidator(check)


# --- source ---------------------------------------------------------------------------------------------------------


def _local_glob(path: str) -> str:
    if "://" in path:
        raise ValueError(f"{_LATER}; write a local path, absolute or relative to the stream file's folder")
    if not path or path.endswith("/"):
        raise ValueError("names no files; write a pattern like events/*.csv.gz")
    return path


class FilesSource(Part):
    """Files in a folder. `path` is a glob, absolute or relative to the stream file's folder.

    A file is read once it has not been modified for `settle`; a batch reads at most `max_batch_files` files and
    about `max_batch_bytes` bytes (a larger file is a batch of its own).
    """

    kind: Annotated[Literal["files"], _only("files", later=("kafka",))]
    path: Annotated[FieldName, AfterValidator(_local_glob)]
    format: Annotated[Literal["csv", "json", "parquet"], _only("csv", "json", "parquet", later=("avro", "protobuf"))]
    settle: Duration = timedelta(seconds=2)
    max_batch_files: Annotated[Count, Field(ge=1)] = 1000
    max_batch_bytes: Size = 2**30
    _folder: Path = PrivateAttr(default_factory=Path.cwd)

    def model_post_init(self, context: Any) -> None:
        self._folder = _origin(context).parent

    @property
    def root(self) -> Path:
        """The fixed folder in front of the first glob character; records' `source` is relative to it."""
        return self._folder.joinpath(*Path(self.path).parts[: self._fixed_parts])

    @property
    def pattern(self) -> str:
        """The glob below `root`."""
        return "/".join(Path(self.path).parts[self._fixed_parts :])

    @property
    def _fixed_parts(self) -> int:
        parts = Path(self.path).parts
        globs = [i for i, part in enumerate(parts) if re.search(r"[*?\[]", part)]
        return min([*globs, len(parts) - 1])


def _origin(context: Any) -> Path:
    return Path(context["origin"] if context else "stream.yaml").absolute()


# --- fields ---------------------------------------------------------------------------------------------------------


class FieldId(Part):
    """The event id is one field."""

    field: FieldName


class FieldList(Part):
    """The event id is made of several fields."""

    fields: FieldNames


def _hashed(value: Any) -> Any:
    if value == "*":
        return value
    is_list = isinstance(value, list | tuple) and value and all(isinstance(name, str) and name for name in value)
    if not is_list or len(set(value)) != len(value):
        raise ValueError('must be "*" (all fields) or a list of distinct field names')
    return tuple(value)


class FieldHash(Part):
    """The event id is a hash of fields, `"*"` for all of them, as sorted pairs of name and text."""

    hash: Annotated[str | tuple[str, ...], PlainValidator(_hashed)]


def _event_id_spelling(value: Any) -> Any:
    if isinstance(value, str):
        return {"field": value}
    return {"fields": value} if isinstance(value, list | tuple) else value


def _kind_by_key(kinds: dict[str, str]) -> Any:
    def kind(value: Any) -> str | None:
        if isinstance(value, dict):
            return next((name for key, name in kinds.items() if key in value), None)
        return type(value).__name__

    return kind


EventId = Annotated[
    Annotated[FieldId, Tag("FieldId")]
    | Annotated[FieldList, Tag("FieldList")]
    | Annotated[FieldHash, Tag("FieldHash")],
    Discriminator(
        _kind_by_key({"hash": "FieldHash", "fields": "FieldList", "field": "FieldId"}),
        custom_error_type="event_id",
        custom_error_message='must be a field name, a list of field names, or {{hash: "*"}}',
    ),
    BeforeValidator(_event_id_spelling),
]


def _field_spelling(value: Any) -> Any:
    return {"field": value} if isinstance(value, str) else value


class TimeField(Part):
    """A time in a field. Without `format` it is ISO 8601; a text without an offset is in `timezone`."""

    field: FieldName
    format: TimeFormat | None = None
    timezone: TimezoneName = "UTC"


def _one_group(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    if groups != 1:
        raise ValueError(f"must have exactly one group, the time; it has {groups}")
    return pattern


class FileName(Part):
    """A time in the file's path below the source's root: the one group of the regular expression `file_name`."""

    file_name: Annotated[FieldName, AfterValidator(_one_group)]
    format: TimeFormat | None = None
    timezone: TimezoneName = "UTC"


class FileModified(Part):
    """The file's modification time."""

    file_modified: Literal[True] = True


def _arrival_spelling(value: Any) -> Any:
    if isinstance(value, dict) and "kafka_append_time" in value:
        raise ValueError(f"kafka_append_time {_LATER}; allowed: a field, file_name, file_modified")
    return _field_spelling(value)


ArrivalTime = Annotated[
    Annotated[TimeField, Tag("TimeField")]
    | Annotated[FileName, Tag("FileName")]
    | Annotated[FileModified, Tag("FileModified")],
    Discriminator(
        _kind_by_key({"field": "TimeField", "file_name": "FileName", "file_modified": "FileModified"}),
        custom_error_type="arrival_time",
        custom_error_message="must be a field, {{file_name: a regular expression}} or {{file_modified: true}}",
    ),
    BeforeValidator(_arrival_spelling),
]


class Attribute(Part):
    """A typed column beside the event's own. `format` and `timezone` are for times and dates."""

    field: FieldName
    type: AttributeType = "string"
    format: TimeFormat | None = None
    timezone: TimezoneName = "UTC"

    @model_validator(mode="after")
    def _format_fits_type(self) -> "Attribute":
        if self.format is not None and self.type not in ("timestamp", "date"):
            raise ValueError(f"format is for timestamp and date, not for {self.type}")
        return self


class Fields(Part):
    """Which fields of a record say what the event is."""

    entity_id: FieldName
    event_id: EventId
    event_time: Annotated[TimeField, BeforeValidator(_field_spelling)]
    arrival_time: ArrivalTime = FileModified()
    attributes: dict[ColumnName, Annotated[Attribute, BeforeValidator(_field_spelling)]] = Field(default_factory=dict)


# --- rules ----------------------------------------------------------------------------------------------------------


def _utc(value: Any) -> datetime:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("is no date; write one like 2026-01-31") from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime):
        raise ValueError("is no date; write one like 2026-01-31")
    start = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if start < _EPOCH:
        raise ValueError("is too early; partitions start at 1970-01-01 or later")
    return start


class Partitions(Part):
    """The event-time partitions: UTC days or hours from `start` on, counted from 1970-01-01 (as Iceberg does)."""

    granularity: Literal["day", "hour"]
    start: Annotated[datetime, BeforeValidator(_utc)]

    @model_validator(mode="after")
    def _start_is_a_boundary(self) -> "Partitions":
        if (self.start - _EPOCH) % self.length:
            raise ValueError(f"start must be the beginning of a UTC {self.granularity}, not {self.start.isoformat()}")
        return self

    @property
    def length(self) -> timedelta:
        """How long one partition is."""
        return _LENGTHS[self.granularity]

    def ordinal(self, moment: datetime) -> int:
        """The days (or hours) from 1970-01-01 to the partition that holds `moment`."""
        return (moment - _EPOCH) // self.length

    def start_of(self, ordinal: int) -> datetime:
        """The first moment of a partition."""
        return _EPOCH + ordinal * self.length

    def key(self, ordinal: int) -> str:
        """The partition's key in Dagster: `2026-01-31`, or `2026-01-31-13:00` for hours."""
        start = self.start_of(ordinal).isoformat()
        return start[:10] if self.granularity == "day" else f"{start[:10]}-{start[11:16]}"

    def ordinal_of(self, key: str) -> int:
        """The partition of a Dagster key; ValueError if it is none."""
        text = key if self.granularity == "day" else f"{key[:10]}T{key[11:]}"
        try:
            ordinal = self.ordinal(datetime.fromisoformat(text).replace(tzinfo=UTC))
        except ValueError:
            raise ValueError(f"{key!r} is no key of a {self.granularity} partition") from None
        if self.key(ordinal) != key:
            raise ValueError(f"{key!r} is no key of a {self.granularity} partition")
        return ordinal


class Deduplicate(Part):
    """Records with the same `key`, at most `window` of event time apart, are one event: the first to arrive."""

    key: FieldNames = ("entity_id", "event_id")
    window: Duration = timedelta(days=1)


class Aggregate(Part):
    """One column of the sessions: `function` over `attribute`. In a stream file: `{sum: amount}`."""

    function: Literal["count", "sum", "min", "max", "first", "last"]
    attribute: FieldName

    @model_validator(mode="before")
    @classmethod
    def _spelling(cls, value: Any) -> Any:
        if not isinstance(value, dict) or value.keys() == {"function", "attribute"}:
            return value
        if len(value) != 1 or next(iter(value)) not in _FUNCTIONS:
            raise ValueError(
                f"must be one function and an attribute, like {{sum: amount}}; allowed: {', '.join(_FUNCTIONS)}"
            )
        [(function, attribute)] = value.items()
        return {"function": function, "attribute": attribute}


class Sessions(Part):
    """A gap longer than `timeout` between two events of an entity ends a session."""

    timeout: Annotated[Duration, Field(gt=timedelta(0))]
    aggregates: dict[ColumnName, Aggregate] = Field(default_factory=dict)


class Late(Part):
    """How late events are handled: when they count as late, and when and how much a repair recomputes."""

    grace: Duration = timedelta(hours=1)
    settle: Duration = timedelta(seconds=60)
    max_delay: Duration = timedelta(minutes=15)
    min_rows: Annotated[Count, Field(ge=1)] = 1
    max_future: Duration = timedelta(minutes=10)
    horizon: Annotated[Duration, Field(gt=timedelta(0))] | None = None
    max_partitions_per_run: Annotated[Count, Field(ge=1)] = 31
    max_runs_per_tick: Annotated[Count, Field(ge=1)] = 10

    @model_validator(mode="after")
    def _delay_covers_settle(self) -> "Late":
        if self.max_delay < self.settle:
            raise ValueError("max_delay, the longest wait, must be at least settle, the quiet period")
        return self


# --- the whole ------------------------------------------------------------------------------------------------------


def _power_of_two(value: int) -> int:
    if value & (value - 1):
        raise ValueError("must be a power of two from 1 to 4096, or 0 to choose it from the data's volume")
    return value


class Stream(Part):
    """One flow of events: the content of one stream file."""

    name: StreamName
    source: FilesSource
    fields: Fields
    missing_entity: Literal["keep", "reject"] = "keep"
    partitions: Partitions
    buckets: Annotated[Count, Field(ge=0, le=4096), AfterValidator(_power_of_two)] = 0
    deduplicate: Deduplicate = Deduplicate()
    sessions: Sessions
    late: Late = Late()
    _origin: Path = PrivateAttr(default_factory=Path.cwd)

    def model_post_init(self, context: Any) -> None:
        self._origin = _origin(context)

    @property
    def origin(self) -> Path:
        """The stream file, absolute. It is no part of what the stream says: two copies of a file are equal."""
        return self._origin

    @property
    def attributes(self) -> dict[str, Attribute]:
        """The typed columns, in the file's order."""
        return self.fields.attributes

    @model_validator(mode="after")
    def _parts_fit_together(self) -> "Stream":
        problems = [*self._problems_of_key(), *self._problems_of_aggregates()]
        if problems:
            details = [
                InitErrorDetails(type=PydanticCustomError("stream", "{text}", {"text": text}), loc=loc, input=None)
                for loc, text in problems
            ]
            raise ValidationError.from_exception_data("Stream", details)
        return self

    def _problems_of_key(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        key = self.deduplicate.key
        if "entity_id" not in key:
            yield (
                ("deduplicate", "key"),
                f"must contain entity_id: copies are looked for within an entity (got {list(key)})",
            )
        for i, column in enumerate(key):
            if column in ("entity_id", "event_id"):
                continue
            if column not in self.attributes:
                yield (
                    ("deduplicate", "key", i),
                    f"{column!r} is no key; allowed: entity_id, event_id{self._known_attributes}",
                )
            elif self.attributes[column].type == "double":
                yield ("deduplicate", "key", i), f"{column!r} is a double, which is no exact key; use decimal(p,s)"

    def _problems_of_aggregates(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        for name, aggregate in self.sessions.aggregates.items():
            loc = ("sessions", "aggregates", name)
            attribute = self.attributes.get(aggregate.attribute)
            if attribute is None:
                known = self._known_attributes.removeprefix(", ") or "none (this stream has no attributes)"
                yield loc, f"{aggregate.attribute!r} is no attribute of this stream; allowed: {known}"
            elif aggregate.function == "sum" and attribute.type == "double":
                yield loc, "a sum of doubles depends on their order; make the attribute a decimal(p,s) or a long"
            elif aggregate.function == "sum" and attribute.type != "long" and decimal_of(attribute.type) is None:
                yield (
                    loc,
                    f"sum needs a number, and {aggregate.attribute!r} is a {attribute.type}; allowed: long, decimal(p,s)",
                )

    @property
    def _known_attributes(self) -> str:
        return "".join(f", {name}" for name in self.attributes)


# --- files ----------------------------------------------------------------------------------------------------------


def load_streams(path: Path) -> dict[str, Stream]:
    """The streams of a file, or of a folder's `*.yaml` and `*.yml`, by name in the order of the file names.

    Raises StreamFileError with every problem of every file; two streams of one name are a problem too.
    """
    if not path.is_dir():
        stream = load_stream(path)
        return {stream.name: stream}
    files = sorted(f for f in path.iterdir() if f.suffix in (".yaml", ".yml") and not f.name.startswith("."))
    if not files:
        raise StreamFileError(f"{path}: the folder has no stream file (*.yaml or *.yml)")
    streams: dict[str, Stream] = {}
    problems: list[str] = []
    for file in files:
        try:
            stream = load_stream(file)
        except StreamFileError as error:
            problems += error.problems
            continue
        first = streams.setdefault(stream.name, stream)
        if first is not stream:
            problems.append(f"{file}:1: name: {stream.name!r} is the name of the stream in {first.origin.name} already")
    if problems:
        raise StreamFileError(*problems)
    return streams


def load_stream(path: Path) -> Stream:
    """The stream of one file. Raises StreamFileError with every problem, as `file:line: key: what is wrong`."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"is not UTF-8: {error.reason}"
        raise StreamFileError(f"{path}: {reason}") from None
    document, problems = parse_yaml(text)
    if problems:
        raise StreamFileError(*(f"{path}:{line}: {problem}" for line, problem in problems))
    if not isinstance(document.value, dict):
        raise StreamFileError(f"{path}:1: must be a mapping with the keys {', '.join(Stream.model_fields)}")
    try:
        return Stream.model_validate(document.value, context={"origin": path})
    except ValidationError as error:
        problems = describe_errors(error, document, Stream)
        raise StreamFileError(*(f"{path}:{line}: {problem}" for line, problem in problems)) from None
