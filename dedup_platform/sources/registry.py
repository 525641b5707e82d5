"""A schema registry: by which schema a message was written, told by the id at its beginning, and by which one will be.

What an id stands for never changes, so it is asked for once a process. That a registry does not know an id is a fact
about the message; that it does not answer is none, and fails the reading.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPException, HTTPResponse
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from dedup_platform.errors import SourceError
from dedup_platform.stream import FilesSource, KafkaSource

__all__ = [
    "HEADER_BYTES",
    "RefusedSchemaError",
    "RegisteredSchema",
    "SchemaRegistry",
    "log_in",
    "registry_at",
    "registry_with",
    "split_header",
]

HEADER_BYTES = 5
"""In front of a message: zero, and the id of its schema."""
_SECONDS = 10
_SECONDS_IN_ALL = 30
"""For one answer, however slowly it comes."""
_UNKNOWN_SCHEMA = 40403
_NOT_FOUND = 404
_REFUSED = (400, 401, 403, 409, 422)
"""Answers that are about what was asked, and not about how the registry fares."""
_LONGEST_ANSWER = 16 * 2**20
_LONGEST_REASON = 1000
"""Letters: a schema that does not fit is told as a whole by some registries."""
_MOST_REFERENCES = 100
"""That a schema may have, and steps from it to the farthest."""
_CONTENT = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True)
class RegisteredSchema:
    """The text of a schema (`kind` is AVRO, PROTOBUF or JSON), and the name and text of each that it refers to.

    A schema that is referred to stands after those that it refers to itself.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...]


def split_header(value: bytes) -> tuple[int, bytes] | None:
    """The id of the schema by which a message begins, and what follows it; None if it begins by none."""
    if len(value) < HEADER_BYTES or value[0] != 0:
        return None
    return int.from_bytes(value[1:HEADER_BYTES]), value[HEADER_BYTES:]


class RefusedSchemaError(SourceError):
    """A registry does not take a schema: `code` is the status of its answer."""

    def __init__(self, path: object, reason: str, code: int) -> None:
        super().__init__(path, reason)
        self.code = code


def log_in(source: FilesSource | KafkaSource, login: str | None) -> None:
    """Tell this process its login at a source's registry, if there is one: workers are told with each task."""
    if source.registry:
        _logins[source.registry.url] = login


_logins: dict[str, str | None] = {}


def registry_at(url: str) -> "SchemaRegistry":
    """The registry at an address, with what this process has learned from it.

    The login is the one that this process was told, or else that of its settings.
    """
    if url in _logins:
        return registry_with(url, _logins[url])
    # Loaded only where a registry is asked: tasks without one start sooner.
    from dedup_platform.settings import load_settings

    return registry_with(url, load_settings().registry_login)


@lru_cache(16)
def registry_with(url: str, login: str | None) -> "SchemaRegistry":
    """The registry at an address, with what this process has learned from it."""
    return SchemaRegistry(url, login)


class SchemaRegistry:
    """Asks one registry; `login` is user:password. SourceError where it does not answer as a registry does."""

    def __init__(self, url: str, login: str | None = None) -> None:
        self._url = url
        self._login = login
        self._known: dict[int, RegisteredSchema] = {}
        self._ids: dict[tuple[str, str, str], int] = {}
        self._is_there = False

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """The schema of an id; None if the registry knows none, or none whose references come to an end."""
        found = self._known.get(schema_id)
        if found is None and (answer := self._ask(f"schemas/ids/{schema_id}")):
            try:
                references = self._references(answer)
            except RecursionError:
                return None
            found = RegisteredSchema(answer.get("schemaType", "AVRO"), answer["schema"], tuple(references.items()))
            self._known[schema_id] = found
        return found

    def register(self, subject: str, kind: str, text: str) -> int:
        """The id of a schema (`kind` is AVRO or PROTOBUF) under a subject, whose newest version it becomes.

        It stays what it is if it is one of the subject's. RefusedSchemaError if the registry does not take it.
        """
        said = (subject, kind, text)
        if said not in self._ids:
            path = f"subjects/{quote(subject, safe='')}/versions"
            try:
                answer = self._answer(path, {"schemaType": kind, "schema": text})
            except HTTPError as error:
                raise self._refusal(path, error) from None
            if not isinstance(answer.get("id"), int):
                raise SourceError(self._url, f"what answers to {path} is no schema registry")
            self._ids[said] = answer["id"]
        return self._ids[said]

    def _refusal(self, path: str, error: HTTPError) -> SourceError:
        said = str(_told_by(error).get("message", ""))[:_LONGEST_REASON]
        reason = f"the registry answers {error.code} {error.reason} to {path}{f': {said}' if said else ''}"
        if error.code in _REFUSED:
            return RefusedSchemaError(self._url, reason, error.code)
        return SourceError(self._url, reason)

    def _references(self, answer: dict[str, Any]) -> dict[str, str]:
        """The text of each name that a schema refers to, after those that it refers to itself.

        RecursionError if one refers to itself by others, or there are too many.
        """
        found: dict[str, str] = {}
        answers: dict[str, dict[str, Any]] = {}

        def add(answer: dict[str, Any], above: tuple[str, ...]) -> None:
            for name, path in self._referred(answer):
                if path in above or max(len(above), len(found)) >= _MOST_REFERENCES:
                    raise RecursionError
                if name in found:
                    continue
                if path not in answers:
                    answers[path] = self._referenced(path)
                add(answers[path], (*above, path))
                found[name] = answers[path]["schema"]

        add(answer, ())
        return found

    def _referred(self, answer: dict[str, Any]) -> list[tuple[str, str]]:
        """The names that a schema uses, and the paths of what they stand for."""
        match answer.get("references") or []:
            case [*references] if all(map(_is_reference, references)):
                return [
                    (each["name"], f"subjects/{quote(each['subject'], safe='')}/versions/{each['version']}")
                    for each in references
                ]
        raise SourceError(self._url, "what it tells of the references of a schema is not what a registry tells")

    def _referenced(self, path: str) -> dict[str, Any]:
        if (referenced := self._ask(path)) is None:
            raise SourceError(self._url, f"it has no {path}, to which a schema refers")
        return referenced

    def _ask(self, path: str) -> dict[str, Any] | None:
        try:
            answer = self._answer(path)
        except HTTPError as error:
            if _told_by(error).get("error_code") == _UNKNOWN_SCHEMA or (error.code == _NOT_FOUND and self._answers):
                return None
            raise SourceError(self._url, f"the registry answers {error.code} {error.reason} to {path}") from None
        if not isinstance(answer.get("schema"), str):
            raise SourceError(self._url, f"what answers to {path} is no schema registry")
        return answer

    @property
    def _answers(self) -> bool:
        """Whether there is a registry at the address: else nothing is known of the schemas that are not found there."""
        if not self._is_there:
            try:
                self._is_there = isinstance(_json(self._content("subjects")), list)
            except (HTTPError, SourceError):
                return False
        return self._is_there

    def _answer(self, path: str, sent: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The object that the registry answers, an empty one if it is none; HTTPError if that is an error."""
        return _object(self._content(path, sent))

    def _content(self, path: str, sent: Mapping[str, str] | None = None) -> bytes:
        content = json.dumps(sent).encode() if sent else None
        request = Request(f"{self._url}/{path}", content, {"Content-Type": _CONTENT} if sent else {})
        if self._login:
            # Not sent on to wherever the registry redirects.
            request.add_unredirected_header("Authorization", f"Basic {b64encode(self._login.encode()).decode()}")
        try:
            return _answered_in_time(lambda: _read_from(request))
        except HTTPError:
            raise
        except (HTTPException, OSError) as error:
            raise SourceError(self._url, f"the registry cannot be reached: {getattr(error, 'reason', error)}") from None


def _answered_in_time(ask: Callable[[], bytes]) -> bytes:
    """What is answered; TimeoutError if that takes longer, also if some of it comes all the time."""
    told: Future[bytes] = Future()

    def work() -> None:
        try:
            told.set_result(ask())
        except BaseException as error:
            told.set_exception(error)

    # Of an executor the process would wait for the thread at its end.
    Thread(target=work, daemon=True).start()
    wait([told], _SECONDS_IN_ALL)
    if not told.done():
        raise TimeoutError("its answer takes too long")
    return told.result()


def _read_from(request: Request) -> bytes:
    with urlopen(request, timeout=_SECONDS) as response:
        return _read(response)


def _is_reference(said: Any) -> bool:
    return (
        isinstance(said, dict)
        and isinstance(said.get("name"), str)
        and isinstance(said.get("subject"), str)
        and type(said.get("version")) is int
    )


def _read(response: HTTPResponse | HTTPError) -> bytes:
    """An answer; what is too long is cut."""
    answer = bytearray()
    while (part := response.read1(2**16)) and len(answer) <= _LONGEST_ANSWER:
        answer += part
    return bytes(answer)


def _told_by(error: HTTPError) -> dict[str, Any]:
    try:
        with error:
            return _object(_answered_in_time(lambda: _read(error)))
    except (HTTPException, OSError):
        return {}


def _object(text: bytes) -> dict[str, Any]:
    answer = _json(text)
    return answer if isinstance(answer, dict) else {}


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        return None
