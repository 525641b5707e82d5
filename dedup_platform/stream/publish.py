"""Who is told what changes in a stream's tables, and which changes matter to them."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, PrivateAttr, Tag, model_validator
from pydantic_core import PydanticCustomError

from dedup_platform.stream.format import Registry
from dedup_platform.stream.points import Points
from dedup_platform.stream.s3_path import SCHEME
from dedup_platform.stream.source import Brokers, Topic
from dedup_platform.stream.values import Part, PathText, TableColumn, Text, origin_of

__all__ = ["CustomSink", "FilesSink", "KafkaSink", "PostgresSink", "Publish", "Sink"]

_TAKEN = (
    "raw_events",
    "duplicate_events",
    "deduplicated_events",
    "session_fragments",
    "sessions",
    "event_changes",
    "session_changes",
    "session_aliases",
    "audit",
    "rejected_events",
    "source",
)
_OWN_TABLES = ("dedup_platform_sinks", "dedup_platform_refused")
IN_EVERY_TABLE = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")
"""Columns that Postgres gives every table itself."""
LONGEST_NAME = 63
"""Letters of a name in Postgres."""
_ADDRESS = "postgresql://user@host:5432/database"


def _postgres(value: str) -> str:
    try:
        uri = urlsplit(value)
        is_address = uri.scheme == "postgresql" and uri.hostname and uri.path.strip("/") and uri.port != 0
    except ValueError:
        is_address = False
    if not is_address or uri.query or uri.fragment:
        raise ValueError(f"is no address; write one like {_ADDRESS}")
    if uri.password is not None:
        raise ValueError(
            f"must hold no password: write {_ADDRESS}, and put the password into DEDUP_PLATFORM_POSTGRES "
            '({"password": "…"}) or a file that libpq finds (PGPASSFILE)'
        )
    return value


def _qualified(value: str) -> str:
    # Postgres cuts longer names without a word; ours have up to ten letters more.
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,49}\.[a-z_][a-z0-9_]{0,49}", value):
        raise ValueError("is no table; write schema.table in lower-case letters, digits and _, 50 of each at most")
    if value.partition(".")[2] in _OWN_TABLES:
        raise ValueError(f"is a table of the platform's own; choose a name other than {', '.join(_OWN_TABLES)}")
    return value


def _factory(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value):
        raise ValueError("is no function; write package.module:function")
    return value


def _folder_or_prefix(value: str) -> str:
    if value.startswith(SCHEME):
        if not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^\s]*)?", value):
            raise ValueError("names no bucket; write s3://bucket/prefix")
    elif "://" in value or not value:
        raise ValueError("must be a folder, absolute or relative to the stream file's, or s3://bucket/prefix")
    return value


def _registry_spelling(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


def _known_kind(value: Any) -> Any:
    if value not in ("postgres", "kafka", "files", "custom"):
        raise PydanticCustomError("literal_error", "must be 'postgres', 'kafka', 'files' or 'custom'")
    return value


def _sink_name(value: str) -> str:
    if value in _TAKEN:
        raise ValueError(f"is an asset of every stream; choose a name other than {', '.join(_TAKEN)}")
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,49}", value):
        raise ValueError("is no name; write at most 50 lower-case letters, digits and _, starting with a letter")
    return value


class _Copy(Part):
    """What every sink says: the table that it is a copy of, and which changes of it matter."""

    follows: Literal["sessions", "deduplicated_events"]
    """The table that it is a copy of."""
    changes: Literal["all", "downstream"] = "all"
    """Whether changes that matter to nobody downstream are sent, too."""


class PostgresSink(_Copy):
    """A table of Postgres that is kept equal to one of the stream's. `table` is created where it is missing.

    Other connection options, a password among them, are a setting (`postgres`).
    """

    kind: Annotated[Literal["postgres"], BeforeValidator(_known_kind)]
    """Says that it is a table of Postgres."""
    uri: Annotated[Text, AfterValidator(_postgres)]
    """The database, `postgresql://user@host:5432/database`, without a password."""
    table: Annotated[Text, AfterValidator(_qualified)]
    """The table, `schema.table`; it is made where it is missing."""

    @property
    def places(self) -> Collection[object]:
        """What no other sink may write to."""
        return [(self.uri, f"{self.table}{ending}") for ending in ("", "_retired", "_aliases")]


class KafkaSink(_Copy):
    """A topic of Kafka with a message for each change of one of the stream's tables; keys are the rows' ids.

    `envelope` is Debezium's, with the row before and after, or the plain row. In Avro and Protobuf values begin by the
    id of their schema if there is a `registry`. Other connection options are settings (`kafka`, `registry_login`).
    """

    kind: Literal["kafka"]
    """Says that it is a topic of Kafka."""
    brokers: Brokers
    """`host:port` of a broker, or several with commas between."""
    topic: Topic
    """The topic's name."""
    envelope: Literal["debezium", "row"] = "debezium"
    """Whether a message is a change, in Debezium's envelope, or the plain row."""
    format: Literal["json", "avro", "protobuf"] = "json"
    """The format of messages."""
    registry: Annotated[Registry | None, BeforeValidator(_registry_spelling)] = None
    """The address of a schema registry, for avro and protobuf."""

    @model_validator(mode="after")
    def _json_has_no_schema(self) -> "KafkaSink":
        if self.registry and self.format == "json":
            raise ValueError("registry is for the formats avro and protobuf; messages of json have no schema")
        return self

    @property
    def places(self) -> Collection[object]:
        """What no other sink may write to, nor the stream read."""
        return [(self.brokers, self.topic), (self.brokers, f"{self.topic}.positions")]


class FilesSink(_Copy):
    """Files of the changes of one of the stream's tables, in a folder or on S3 (`s3://bucket/prefix`).

    A folder is absolute, or relative to the stream file's.
    """

    kind: Literal["files"]
    """Says that it is files."""
    path: Annotated[PathText, AfterValidator(_folder_or_prefix)]
    """A folder, absolute or relative to the stream file's, or `s3://bucket/prefix`."""
    format: Literal["json", "csv", "parquet"] = "json"
    """The format of the files; of json, lines."""
    _origin: Path = PrivateAttr(default_factory=Path.cwd)

    def model_post_init(self, context: Any) -> None:
        self._origin = origin_of(context).parent.resolve()

    @property
    def s3(self) -> tuple[str, str] | None:
        """Bucket and prefix, with a slash at its end; None for a folder."""
        if not self.path.startswith(SCHEME):
            return None
        bucket, _, prefix = self.path.removeprefix(SCHEME).partition("/")
        return bucket, f"{prefix.rstrip('/')}/" if prefix else ""

    @property
    def folder(self) -> Path:
        """The folder, where it is one."""
        return self._origin / self.path

    @property
    def places(self) -> Collection[object]:
        """What no other sink may write to."""
        return [self.s3 or self.folder]


class CustomSink(_Copy):
    """A sink of one's own: `factory` names a function, `package.module:function`, that makes it.

    It is called with what the sink is to hold (`dedup_platform.sinks.Target`) and with `options`.
    """

    kind: Literal["custom"]
    """Says that it is of your own."""
    factory: Annotated[Text, AfterValidator(_factory)]
    """The function that makes it, `package.module:function`."""
    options: dict[Text, Text] = Field(default_factory=dict)
    """What the function is called with besides: texts by name."""

    @property
    def places(self) -> Collection[object]:
        """What no other sink may write to."""
        return [(self.factory, *sorted(self.options.items()))]


def _tag(value: Any) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    known = {"kafka": "KafkaSink", "files": "FilesSink", "custom": "CustomSink"}
    return known.get(str(kind), "PostgresSink")


Sink = Annotated[
    Annotated[PostgresSink, Tag("PostgresSink")]
    | Annotated[KafkaSink, Tag("KafkaSink")]
    | Annotated[FilesSink, Tag("FilesSink")]
    | Annotated[CustomSink, Tag("CustomSink")],
    Discriminator(_tag),
]
SinkName = Annotated[Text, AfterValidator(_sink_name)]


class Publish(Part):
    """What consumers of a stream's tables are told: of which columns' changes they take note, and who they are."""

    downstream: tuple[TableColumn, ...] = (
        "session_id",
        "started_at",
        "ended_at",
        "entity_id",
        "event_id",
        "event_time",
    )
    """The columns of events and sessions whose changes matter downstream."""
    sinks: dict[SinkName, Sink] = Field(default_factory=dict)
    """The copies elsewhere: name -> what it is."""
    points: Points = Points()
    """How long points are kept."""
