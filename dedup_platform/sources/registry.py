"""A schema registry: by which schema a message was written, told by the id at its beginning, and by which one will be.

What an id stands for never changes, so it is asked for once a process. That a registry does not know an id is a fact
about the message; that it does not answer is none, and fails the reading.
"""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from dedup_platform.errors import SourceError

__all__ = ["RefusedSchemaError", "RegisteredSchema", "SchemaRegistry", "registry_at", "registry_with"]

_SECONDS = 10
_UNKNOWN_SCHEMA = 40403
_REFUSED = (400, 401, 403, 409, 422)
"""Answers that are about what was asked, and not about how the registry fares."""
_LONGEST_ANSWER = 16 * 2**20
_LONGEST_REASON = 1000
"""Letters: a schema that does not fit is told as a whole by some registries."""
_CONTENT = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True)
class RegisteredSchema:
    """The text of a schema (`kind` is AVRO, PROTOBUF or JSON), and the name and text of each that it refers to.

    A schema that is referred to stands after those that it refers to itself.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...]


class RefusedSchemaError(SourceError):
    """A registry does not take a schema: `code` is the status of its answer."""

    def __init__(self, path: object, reason: str, code: int) -> None:
        super().__init__(path, reason)
        self.code = code


@lru_cache(16)
def registry_at(url: str) -> "SchemaRegistry":
    """The registry at an address, with what this process has learned from it; the login is that of the settings."""
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

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """The schema of an id; None if the registry knows none."""
        found = self._known.get(schema_id)
        if found is None and (answer := self._ask(f"schemas/ids/{schema_id}")):
            references = dict(self._references(answer))
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
        said = str(_content(error).get("message", ""))[:_LONGEST_REASON]
        reason = f"the registry answers {error.code} {error.reason} to {path}{f': {said}' if said else ''}"
        if error.code in _REFUSED:
            return RefusedSchemaError(self._url, reason, error.code)
        return SourceError(self._url, reason)

    def _references(self, answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for reference in answer.get("references") or ():
            path = f"subjects/{quote(reference['subject'], safe='')}/versions/{reference['version']}"
            referenced = self._ask(path)
            if referenced is None:
                raise SourceError(self._url, f"it has no {path}, to which a schema refers")
            yield from self._references(referenced)
            yield reference["name"], referenced["schema"]

    def _ask(self, path: str) -> dict[str, Any] | None:
        try:
            answer = self._answer(path)
        except HTTPError as error:
            if _content(error).get("error_code") == _UNKNOWN_SCHEMA:
                return None
            raise SourceError(self._url, f"the registry answers {error.code} {error.reason} to {path}") from None
        if not isinstance(answer.get("schema"), str):
            raise SourceError(self._url, f"what answers to {path} is no schema registry")
        return answer

    def _answer(self, path: str, sent: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What the registry answers; HTTPError if that is an error."""
        content = json.dumps(sent).encode() if sent else None
        request = Request(f"{self._url}/{path}", content, {"Content-Type": _CONTENT} if sent else {})
        if self._login:
            # Not sent on to wherever the registry redirects.
            request.add_unredirected_header("Authorization", f"Basic {b64encode(self._login.encode()).decode()}")
        try:
            with urlopen(request, timeout=_SECONDS) as response:
                return _json(response.read(_LONGEST_ANSWER))
        except HTTPError:
            raise
        except (HTTPException, OSError) as error:
            raise SourceError(self._url, f"the registry cannot be reached: {getattr(error, 'reason', error)}") from None


def _content(error: HTTPError) -> dict[str, Any]:
    try:
        with error:
            return _json(error.read(_LONGEST_ANSWER))
    except (HTTPException, OSError):
        return {}


def _json(text: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(text)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
