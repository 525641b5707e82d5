"""Which sink a stream file means."""

from collections.abc import Mapping
from importlib import import_module

from dedup_platform.errors import SinkError
from dedup_platform.settings import Settings
from dedup_platform.sinks.sink import Sink, Target
from dedup_platform.sources.s3.access import S3Access
from dedup_platform.stream import CustomSink, FilesSink, KafkaSink, Stream
from dedup_platform.tables import COORDINATES, DEDUPLICATED_EVENTS, SESSIONS, columns

KEYS = {SESSIONS: ("session_id",), DEDUPLICATED_EVENTS: COORDINATES}
"""What tells rows apart downstream. An event's entity may be null, and change when its record is decoded again."""


def target_of(stream: Stream, name: str, numbers: Mapping[str, int] | None = None) -> Target:
    """What a sink of a stream is to hold; `numbers` are those that its table has for its columns, if it is there."""
    follows = stream.publish.sinks[name].follows
    return Target(stream.name, name, follows, columns(stream, follows), KEYS[follows], numbers)


def open_sink(stream: Stream, name: str, settings: Settings, numbers: Mapping[str, int] | None = None) -> Sink:
    """A sink of a stream, which is not asked anything yet; `numbers` as of `target_of`, for whoever writes to it.

    Raises SinkError if a factory of one's own is not found.
    """
    said = stream.publish.sinks[name]
    target = target_of(stream, name, numbers)
    if isinstance(said, CustomSink):
        return _made(target, said)
    # Loaded only by streams with such a sink, as their libraries are.
    if isinstance(said, FilesSink):
        from dedup_platform.sinks.files import FilesOfChanges

        return FilesOfChanges(target, said, S3Access.of(settings))
    if isinstance(said, KafkaSink):
        from dedup_platform.sinks.kafka import KafkaTopic

        return KafkaTopic(target, said, settings.kafka, settings.registry_login)
    from dedup_platform.sinks.postgres import PostgresTable

    return PostgresTable(target, said, settings.postgres)


def _made(target: Target, said: CustomSink) -> Sink:
    module, _, function = said.factory.partition(":")
    try:
        factory = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        reason = f"there is no {said.factory} ({error}); it must be importable wherever the platform runs"
        raise SinkError(target.stream, target.sink, reason, lasting=True) from error
    made: Sink = factory(target, said.options)
    return made
