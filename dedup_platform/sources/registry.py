"""A schema registry: by which schema a message was written, told by the id at its beginning.

What an id stands for never changes, so it is asked for once a process. That a registry does not know an id is a fact
about the message; that it does not answer is none, and fails the reading.
"""

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from dedup_platform.errors import SourceError

__all__ = ["RegisteredSchema", "SchemaRegistry", "registry_at"]

_SECONDS = 10
_UNKNOWN_SCHEMA = 40403
_LONGEST_ANSWER = 16 * 2**20


@dataclass(frozen=True)
class RegisteredSchema:
    """The text of a schema (`kind` is AVRO, PROTOBUF or JSON), and the name and text of each that it refers to.

    A schema that is referred to stands after those that it refers to itself.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...]


@lru_cache(16)
def registry_at(url: str) -> "SchemaRegistry":
    """The registry at an address, with what this process has learned from it."""
    # Loaded only where a registry is asked: tasks without one start sooner.
    from dedup_platform.settings import load_settings

    return SchemaRegistry(url, load_settings().registry_login)


class SchemaRegistry:
    """Asks one registry; `login` is user:password. SourceError where it does not answer as a registry does."""

    def __init__(self, url: str, login: str | None = None) -> None:
        self._url = url
        self._login = login
        self._known: dict[int, RegisteredSchema] = {}

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """The schema of an id; None if the registry knows none."""
        found = self._known.get(schema_id)
        if found is None and (answer := self._ask(f"schemas/ids/{schema_id}")):
            references = dict(self._references(answer))
            found = RegisteredSchema(answer.get("schemaType", "AVRO"), answer["schema"], tuple(references.items()))
            self._known[schema_id] = found
        return found

    def _references(self, answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for reference in answer.get("references") or ():
            path = f"subjects/{quote(reference['subject'], safe='')}/versions/{reference['version']}"
            referenced = self._ask(path)
            if referenced is None:
                raise SourceError(self._url, f"it has no {path}, to which a schema refers")
            yield from self._references(referenced)
            yield reference["name"], referenced["schema"]

    def _ask(self, path: str) -> dict[str, Any] | None:
        request = Request(f"{self._url}/{path}")
        if self._login:
            # Not sent on to wherever the registry redirects.
            request.add_unredirected_header("Authorization", f"Basic {b64encode(self._login.encode()).decode()}")
        try:
            with urlopen(request, timeout=_SECONDS) as response:
                answer = _json(response.read(_LONGEST_ANSWER))
        except HTTPError as error:
            with error:
                if _json(error.read(_LONGEST_ANSWER)).get("error_code") == _UNKNOWN_SCHEMA:
                    return None
            raise SourceError(self._url, f"the registry answers {error.code} {error.reason} to {path}") from None
        except (HTTPException, OSError) as error:
            raise SourceError(self._url, f"the registry cannot be reached: {getattr(error, 'reason', error)}") from None
        if not isinstance(answer.get("schema"), str):
            raise SourceError(self._url, f"what answers to {path} is no schema registry")
        return answer


def _json(text: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(text)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
