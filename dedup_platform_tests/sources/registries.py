"""A schema registry for tests: the requests that are made of one, answered over HTTP as Confluent's does."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from dedup_platform_tests.servers import serving

References = list[dict[str, Any]] | None


class Registry:
    """What the server answers, by path, and what it was asked; `status` other than 200 is its answer to everything."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        self.status = 200
        self.reason = "not here"
        self.unknown: bytes | None = None
        """The answer to what is not there, if it is not the usual one."""
        self.registered: list[tuple[str, str, str]] = []
        """Subject, kind and text of each schema that was sent, in the order of the ids."""
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add(self, schema_id: int, schema: str, kind: str = "AVRO", references: References = None) -> None:
        """Register a schema; Avro is what a registry leaves unsaid."""
        kinds = {} if kind == "AVRO" else {"schemaType": kind}
        references_said = {"references": references} if references else {}
        self.answers[f"/schemas/ids/{schema_id}"] = {"schema": schema} | kinds | references_said

    def add_version(self, subject: str, schema: str, references: References = None) -> None:
        """Register version 1 of a subject, for schemas that refer to it."""
        answer = {"subject": subject, "version": 1, "id": 900, "schema": schema, "references": references or []}
        self.answers[f"/subjects/{subject}/versions/1"] = answer

    def register(self, subject: str, said: dict[str, Any]) -> dict[str, Any]:
        """The id of a schema, which is asked for by it from now on."""
        schema = (subject, said["schemaType"], said["schema"])
        if schema not in self.registered:
            self.registered.append(schema)
            self.add(len(self.registered), said["schema"], said["schemaType"])
        return {"id": self.registered.index(schema) + 1}


@contextmanager
def schema_registry() -> Iterator[Registry]:
    """A registry that listens on a free port of this machine."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append(self.path)
            registry.logins.append(self.headers["Authorization"])
            known = self.path in registry.answers
            status = registry.status if registry.status != 200 or known else 404
            answer = registry.answers[self.path] if known else registry.unknown if status == 404 else None
            self.answer(status, answer)

        def do_POST(self) -> None:
            registry.asked.append(self.path)
            registry.logins.append(self.headers["Authorization"])
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            subject = self.path.removeprefix("/subjects/").removesuffix("/versions")
            known = registry.answers.get(self.path)
            answer = registry.register(subject, said) if registry.status == 200 and known is None else known
            self.answer(registry.status, answer)

        def answer(self, status: int, answer: Any) -> None:
            unknown = {"error_code": 40403 if status == 404 else status * 100 + 1, "message": registry.reason}
            answer = answer if status == 200 else answer or unknown
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    with serving(Handler) as registry.port:
        yield registry
