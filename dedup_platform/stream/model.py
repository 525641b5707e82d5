"""A whole stream: its parts, and what must fit between them."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PrivateAttr, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from dedup_platform.stream.definitions import uses_file_path
from dedup_platform.stream.fields import (
    ArrivalTime,
    Attribute,
    Fields,
    FileModified,
    FileName,
    KafkaAppendTime,
    definitions,
)
from dedup_platform.stream.publish import IN_EVERY_TABLE, LONGEST_NAME, Publish
from dedup_platform.stream.rules import (
    Aggregate,
    Claims,
    Deduplicate,
    Health,
    Late,
    Maintenance,
    Partitions,
    Reject,
    Retries,
    Sessions,
)
from dedup_platform.stream.source import FilesSource, KafkaSource, Source
from dedup_platform.stream.values import (
    PUBLISHED_COLUMNS,
    Count,
    Owner,
    Part,
    Problem,
    StreamName,
    decimal_of,
    origin_of,
)

__all__ = ["Stream"]


def _power_of_two(value: int) -> int:
    if value & (value - 1):
        raise ValueError("must be a power of two from 1 to 4096, or 0 to choose it from the data's volume")
    return value


class Stream(Part):
    """One flow of events: the content of one stream file."""

    name: StreamName
    """The stream's name: of its Iceberg namespace, and in front of its assets and jobs."""
    source: Source
    """Where its records come from: files or a topic."""
    fields: Fields
    """Which fields of a record say what the event is."""
    missing_entity: Literal["keep", "reject"] = "keep"
    """What becomes of a record without an entity: kept as an event that is in no session, or rejected."""
    partitions: Partitions
    """The event-time partitions of its tables."""
    buckets: Annotated[Count, Field(ge=0, le=4096), AfterValidator(_power_of_two)] = 0
    """Into how many shares by entity each partition is cut: a power of two, or 0 to choose it from the first
    data."""
    deduplicate: Deduplicate = Deduplicate()
    """Which records are copies of one event."""
    sessions: Sessions | None = None
    """What a session is; without it the stream has none."""
    late: Late = Late()
    """When events count as late, and when and how much is repaired."""
    retries: Retries = Retries()
    """How an ingest, or a sink, that failed is tried again."""
    reject: Reject | None = None
    """When a batch is held because too much of it would be rejected; without it, none is."""
    maintenance: Maintenance = Maintenance()
    """How long history is kept."""
    publish: Publish = Publish()
    """Which changes matter to consumers, and the sinks that get them."""
    claims: Claims = Claims()
    """What becomes of a request for what another process is at."""
    owner: Owner | None = Field(None, exclude_if=lambda owner: owner is None)
    """Whom to ask about the stream, an email address or `team:name`. Dagster's UI shows it, and filters by it."""
    health: Health = Field(Health(), exclude_if=lambda health: health == Health())
    """From where on the stream is not well."""
    _origin: Path = PrivateAttr(default_factory=Path.cwd)

    def model_post_init(self, context: Any) -> None:
        self._origin = origin_of(context)

    @property
    def origin(self) -> Path:
        """The stream file, absolute. It is no part of what the stream says: two copies of a file are equal."""
        return self._origin

    @property
    def attributes(self) -> dict[str, Attribute]:
        """The typed columns, in the file's order."""
        return self.fields.attributes

    @property
    def aggregates(self) -> dict[str, Aggregate]:
        """The columns of sessions that the file names, in its order; none of a stream without sessions."""
        return self.sessions.aggregates if self.sessions else {}

    @property
    def session_timeout(self) -> timedelta:
        """The longest gap within a session of a stream that has sessions."""
        assert self.sessions, f"{self.name} has no sessions"
        return self.sessions.timeout

    @property
    def files(self) -> FilesSource:
        """The source of a stream whose kind is files."""
        assert isinstance(self.source, FilesSource), f"{self.name} is no stream of files"
        return self.source

    @property
    def kafka(self) -> KafkaSource:
        """The source of a stream whose kind is kafka."""
        assert isinstance(self.source, KafkaSource), f"{self.name} is no stream of Kafka"
        return self.source

    @property
    def arrival_time(self) -> ArrivalTime:
        """What tells when the log first had a record."""
        said = self.fields.arrival_time
        return said or (KafkaAppendTime() if isinstance(self.source, KafkaSource) else FileModified())

    @model_validator(mode="after")
    def _parts_fit_together(self) -> "Stream":
        problems = [
            *self._problems_of_arrival(),
            *self._problems_of_file_paths(),
            *self._problems_of_key(),
            *self._problems_of_aggregates(),
            *self._problems_of_publish(),
            *self._problems_without_sessions(),
            *self.source.problems(self.fields),
        ]
        if problems:
            details = [
                InitErrorDetails(type=PydanticCustomError("stream", "{text}", {"text": text}), loc=loc, input=None)
                for loc, text in problems
            ]
            raise ValidationError.from_exception_data("Stream", details)
        return self

    def _problems_of_arrival(self) -> Iterator[Problem]:
        said = self.fields.arrival_time
        if isinstance(self.source, KafkaSource) and isinstance(said, FileModified | FileName):
            yield ("fields", "arrival_time"), "a topic has no files; allowed: a field, kafka_append_time"
        if isinstance(self.source, FilesSource) and isinstance(said, KafkaAppendTime):
            yield ("fields", "arrival_time"), "files are no topic; allowed: a field, file_name, file_modified"

    def _problems_of_file_paths(self) -> Iterator[Problem]:
        for loc, field in definitions(self.fields) if isinstance(self.source, KafkaSource) else ():
            if uses_file_path(field):
                yield ("fields", *loc), "a topic has no files, and so no path"

    def _problems_of_key(self) -> Iterator[Problem]:
        key = self.deduplicate.key
        if "entity_id" not in key:
            yield ("deduplicate", "key"), f"must contain entity_id: copies are found within an entity (got {list(key)})"
        for i, column in enumerate(key):
            if column in ("entity_id", "event_id"):
                continue
            if column not in self.attributes:
                allowed = ", ".join(("entity_id", "event_id", *self.attributes))
                yield ("deduplicate", "key", i), f"{column!r} is no column for a key; allowed: {allowed}"
            elif self.attributes[column].type == "double":
                yield ("deduplicate", "key", i), f"{column!r} is a double, which is no exact key; use decimal(p,s)"

    def _problems_of_aggregates(self) -> Iterator[Problem]:
        for name, aggregate in self.aggregates.items():
            reason = self._refused_aggregate(aggregate)
            if reason:
                yield ("sessions", "aggregates", name), reason

    def _problems_of_publish(self) -> Iterator[Problem]:
        known = {*PUBLISHED_COLUMNS, *self.attributes, *self.aggregates}
        for i, column in enumerate(self.publish.downstream):
            if column not in known:
                allowed = ", ".join(sorted(known))
                yield ("publish", "downstream", i), f"{column!r} is no column of sessions or events; allowed: {allowed}"
        yield from self._problems_of_columns_in_postgres()
        yield from self._problems_of_places()

    def _problems_of_places(self) -> Iterator[Problem]:
        taken: dict[object, str] = {}
        read = (self.source.brokers, self.source.topic) if isinstance(self.source, KafkaSource) else None
        for name, sink in self.publish.sinks.items():
            where = ("publish", "sinks", name)
            if read in sink.places:
                yield where, "writes to the topic that the stream reads; name another one"
            if firsts := {taken.setdefault(place, name) for place in sink.places} - {name}:
                yield where, f"writes to the same place as {min(firsts)}; each needs one of its own"

    def _problems_without_sessions(self) -> Iterator[Problem]:
        for name, sink in self.publish.sinks.items():
            if sink.follows == "sessions" and self.sessions is None:
                reason = "the stream has no sessions; allowed: deduplicated_events, or name `sessions`, {timeout: 30m}"
                yield ("publish", "sinks", name, "follows"), reason

    def _problems_of_columns_in_postgres(self) -> Iterator[Problem]:
        """Postgres has columns of its own, and cuts long names without a word."""
        for name, sink in self.publish.sinks.items():
            columns = self.aggregates if sink.follows == "sessions" else self.attributes
            wrong = [column for column in columns if column in IN_EVERY_TABLE or len(column) > LONGEST_NAME]
            if sink.kind == "postgres" and wrong:
                reason = f"Postgres can have no column {wrong[0]!r}; give it another name"
                yield ("publish", "sinks", name), f"{reason} of at most {LONGEST_NAME} letters"

    def _refused_aggregate(self, aggregate: Aggregate) -> str | None:
        attribute = self.attributes.get(aggregate.attribute)
        if attribute is None:
            known = ", ".join(self.attributes) or "none, as fields.attributes is empty"
            return f"{aggregate.attribute!r} is no attribute of this stream; allowed: {known}"
        if aggregate.function != "sum" or attribute.type == "long" or decimal_of(attribute.type):
            return None
        if attribute.type == "double":
            return "a sum of doubles depends on their order; make the attribute a decimal(p,s) or a long"
        return f"{aggregate.attribute!r} is a {attribute.type}; a sum needs a long or a decimal(p,s)"
