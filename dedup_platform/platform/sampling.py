"""Looks at a source of which there is no stream file yet, and tries a stream file on it before there are tables.

All of it is done in a deployment of its own, in a temporary folder: nothing is left of it, and nothing that the user's
deployment has read or holds is touched or decides what is looked at.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from dedup_platform import uris
from dedup_platform.errors import InferenceError, SourceError
from dedup_platform.infer import LONGEST, Layout, Sampled, layout_of
from dedup_platform.planning.moments import Clock, utc_now
from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.sources.decoding import EventDecoder
from dedup_platform.sources.records import ENDED_PROCESS, Fields
from dedup_platform.sources.registry import SchemaRegistry, registry_with, split_header
from dedup_platform.stream import Stream

__all__ = ["preview", "sample_of"]

_NAME = "sample"
_BEGINNING = 2**20
"""Bytes of a file by which its format is told."""
_OF_EACH = 4000
"""Records of a file, or of a topic's partition."""
_MOST_BYTES = 64 * 2**20
_PLACE = ("kind", "path", "brokers", "topic")
_RESTS: Mapping[str, Any] = {"settle": "0s"}
"""A file that was just written may be looked at, whoever may still write it."""


def sample_of(settings: Settings, place: str, source: Mapping[str, Any], clock: Clock = utc_now) -> Sampled:
    """Some records of a source, `kind` and `path`, or `kind`, `brokers` and `topic`; `place` names it in errors.

    What else a stream file says of a source may be there, as a schema and the format that it is for; what is missing
    is found. SourceError if it cannot be read, InferenceError if it has nothing, nothing in a format that can be told,
    or not what is said.
    """
    is_topic = source["kind"] == "kafka"
    if "format" in source:
        layout = Layout(source["format"], evidence="by its schema")
    elif is_topic:
        layout = _layout_of_topic(settings, place, source, clock)
    else:
        layout = _layout(settings, place, source, clock)
    stream = _probe(place, {**layout.source, **source, **({} if is_topic else _RESTS)})
    with _opened(settings, stream, clock) as platform:
        return _sampled(place, layout, stream, platform.source.first_rows(stream.name, _OF_EACH))


def preview(settings: Settings, stream: Stream, look: Callable[[Platform, Stream], Any], clock: Clock = utc_now) -> Any:
    """What `look` gives of a stream whose source nobody has read yet."""
    if stream.source.kind == "files":
        rested = stream.source.model_copy(update={"settle": type(stream.files.settle)(0)})
        rested.__pydantic_private__ = stream.source.__pydantic_private__
        stream = stream.model_copy(update={"source": rested})
    with _opened(settings, stream, clock) as platform:
        return look(platform, stream)


def _layout(settings: Settings, place: str, source: Mapping[str, Any], clock: Clock) -> Layout:
    stream = _probe(place, {**_bare(source), **_RESTS})
    trouble: InferenceError | None = None
    with _opened(settings, stream, clock) as platform:
        for path, beginning in platform.source.beginnings(stream.name, _BEGINNING):
            try:
                return layout_of(path, beginning)
            except InferenceError as error:
                trouble = trouble or error
    raise trouble or SourceError(place, "no file matches that can be read")


def _layout_of_topic(settings: Settings, place: str, source: Mapping[str, Any], clock: Clock) -> Layout:
    """Of messages, which are JSON, or begin by the id of a schema that the registry knows the kind of."""
    stream = _probe(place, _bare(source))
    with _opened(settings, stream, clock) as platform:
        rows = list(platform.source.first_rows(stream.name, _OF_EACH))
    payloads = [row["payload"] for row in rows if row["payload"]]
    if not payloads:
        raise InferenceError(place, "no message waits in this topic")
    if "registry" in source:
        kind = _registered_kind(place, registry_with(source["registry"]["url"], settings.registry_login), payloads)
        if kind != "json":
            return Layout(kind, evidence="as the registry says")
        payloads = [body for _, body in filter(None, map(split_header, payloads))]
    # An end of a line within JSON is a space.
    joined = b"\n".join(each.replace(b"\n", b" ").replace(b"\r", b" ") for each in payloads)
    is_json = joined.lstrip()[:1] in (b"{", b"[")
    if not is_json:
        hint = "--registry URL" if joined[:1] == b"\0" else "--schema FILE (.avsc, or .proto with --message NAME)"
        raise InferenceError(place, f"its messages are no JSON; say how they are written by {hint}")
    return layout_of(place, joined[:_BEGINNING])


def _registered_kind(place: str, registry: SchemaRegistry, payloads: Sequence[bytes]) -> str:
    """The format of messages, by the first schema that they name and the registry has."""
    for schema_id in dict.fromkeys(number for number, _ in filter(None, map(split_header, payloads))):
        if schema := registry.schema(schema_id):
            if schema.kind == "PROTOBUF":
                raise InferenceError(place, "its messages are Protobuf; add their schema: --schema FILE.proto")
            return schema.kind.lower()
    raise InferenceError(place, f"none of {len(payloads)} messages begins by the id of a schema that the registry has")


def _bare(source: Mapping[str, Any]) -> dict[str, Any]:
    """The source as a stream of lines of JSON, to see the bytes as they are."""
    return {name: source[name] for name in _PLACE if name in source} | {"format": "json"}


def _probe(place: str, source: Mapping[str, Any]) -> Stream:
    """A stream that takes every record of a source for an event. InferenceError if no stream can read it so."""
    # The hash has all of a record decoded.
    fields = {"entity_id": {"constant": "-"}, "event_id": {"hash": "*"}, "event_time": {"constant": "2000-01-01"}}
    partitions = {"granularity": "day", "start": "1970-01-01"}
    said = {"name": _NAME, "source": dict(source), "fields": fields, "partitions": partitions}
    try:
        return Stream.model_validate(said)
    except ValidationError as error:
        first = error.errors()[0]
        # Beside names of keys there stands the class that was chosen by `kind`.
        where = ".".join(part for part in map(str, first["loc"]) if not part[:1].isupper())
        raise InferenceError(place, f"{where}: {first['msg'].removeprefix('Value error, ')}") from None


def _sampled(place: str, layout: Layout, stream: Stream, rows: Iterator[Mapping[str, Any]]) -> Sampled:
    decoder = EventDecoder(stream)
    records: list[Fields] = []
    kept: list[Mapping[str, Any]] = []
    malformed = size = 0
    for row in rows:
        payload = row["payload"] or b""
        size += len(payload)
        is_safe = not (row["rejection_reason"] or "").startswith(ENDED_PROCESS) and len(payload) <= LONGEST
        content = "" if not is_safe else _content(decoder, row)
        if isinstance(content, str):
            malformed += 1
        else:
            records.append(content)
            kept.append(row)
        if size > _MOST_BYTES:
            break
    is_topic = stream.source.kind == "kafka"
    return Sampled(place, layout, records, _each(kept, "source"), _each(kept, "arrival_time"), malformed, is_topic)


def _content(decoder: EventDecoder, row: Mapping[str, Any]) -> Fields | str:
    return decoder.kept(row["payload"], row["payload_context"], row["source"], row["arrival_time"])[0]


def _each(rows: Sequence[Mapping[str, Any]], column: str) -> list[Any]:
    return [row[column] for row in rows]


@contextmanager
def _opened(settings: Settings, stream: Stream, clock: Clock) -> Iterator[Platform]:
    with tempfile.TemporaryDirectory(prefix="dedup_platform_") as folder:
        home = Path(folder)
        places = {
            "home": home,
            "warehouse": str(home / "warehouse"),
            "catalog_uri": uris.sqlite(home / "catalog.db"),
            "control_uri": uris.sqlite(home / "control.db"),
            "catalog_conf": {},
        }
        own = settings.model_copy(update=places)
        own.make_folders()
        yield Platform(own, {stream.name: stream}, _no_spark, clock)


def _no_spark() -> NoReturn:
    raise AssertionError("to look at a source takes no Spark")
