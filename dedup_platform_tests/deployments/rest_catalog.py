"""A small server of Iceberg's REST protocol, over PyIceberg's own SQL catalog: as much of it as tables need.

It speaks to any client of the protocol. It is no model of any product: each has more, and ways of its own.
"""

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table

_STATUS: dict[type[Exception], HTTPStatus] = {
    CommitFailedException: HTTPStatus.CONFLICT,
    NamespaceAlreadyExistsError: HTTPStatus.CONFLICT,
    NoSuchNamespaceError: HTTPStatus.NOT_FOUND,
    NoSuchTableError: HTTPStatus.NOT_FOUND,
    TableAlreadyExistsError: HTTPStatus.CONFLICT,
}


class RestCatalogServer(ThreadingHTTPServer):
    """Serves one catalog to whoever knows the credential."""

    def __init__(self, catalog: SqlCatalog, credential: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.catalog = catalog
        self.credential = credential
        self.token = secrets.token_hex(8)
        self.asked: set[str] = set()
        """The clients that were answered, as they call themselves."""
        self.one_at_a_time = threading.Lock()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def rest_catalog(catalog: SqlCatalog, credential: str) -> Iterator[RestCatalogServer]:
    """A server while the block runs."""
    server = RestCatalogServer(catalog, credential)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RestCatalogServer

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def do_HEAD(self) -> None:
        self._handle()

    def log_message(self, *_: Any) -> None:
        """Say nothing: what goes wrong is in the answer."""

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0].strip("/").split("/")[1:]
        try:
            with self.server.one_at_a_time:
                status, answer = self._answer(path, body)
        except tuple(_STATUS) as error:
            status = _STATUS[type(error)]
            answer = {"error": {"message": str(error), "type": type(error).__name__, "code": int(status)}}
        self._send(status, answer)

    def _answer(self, path: list[str], body: bytes) -> tuple[HTTPStatus, dict[str, Any]]:
        if path == ["oauth", "tokens"]:
            return self._token(body)
        if self.headers.get("Authorization") != f"Bearer {self.server.token}":
            error = {"message": "who are you?", "type": "NotAuthorizedException", "code": 401}
            return HTTPStatus.UNAUTHORIZED, {"error": error}
        self.server.asked.add(str(self.headers.get("User-Agent")).partition("/")[0])
        match self.command, path:
            case "GET", ["config"]:
                return HTTPStatus.OK, {"defaults": {}, "overrides": {}}
            case "POST", ["namespaces"]:
                [name] = json.loads(body)["namespace"]
                self.server.catalog.create_namespace(name)
                return HTTPStatus.OK, {"namespace": [name], "properties": {}}
            case _, ["namespaces", name]:
                return HTTPStatus.OK, {
                    "namespace": [name],
                    "properties": self.server.catalog.load_namespace_properties(name),
                }
            case "POST", ["namespaces", name, "tables"]:
                # What is not said is null, and PyIceberg wants it said.
                unsaid = dict.fromkeys(("location", "partition-spec", "write-order"))
                return HTTPStatus.OK, _loaded(self._create(name, CreateTableRequest(**unsaid | json.loads(body))))
            case "POST", ["namespaces", name, "tables", table]:
                # Java's client leaves the table's name to the address.
                place = {"identifier": {"namespace": [name], "name": table}}
                commit = CommitTableRequest.model_validate(place | json.loads(body))
                found = self.server.catalog.load_table((name, table))
                self.server.catalog.commit_table(found, commit.requirements, commit.updates)
                return HTTPStatus.OK, _loaded(self.server.catalog.load_table((name, table)))
            case _, ["namespaces", name, "tables", table]:
                return HTTPStatus.OK, _loaded(self.server.catalog.load_table((name, table)))
        raise NoSuchTableError(f"{self.command} {self.path}")

    def _token(self, body: bytes) -> tuple[HTTPStatus, dict[str, Any]]:
        form = parse_qs(body.decode())
        if f"{form['client_id'][0]}:{form['client_secret'][0]}" != self.server.credential:
            return HTTPStatus.UNAUTHORIZED, {"error": "invalid_client", "error_description": "who are you?"}
        return HTTPStatus.OK, {"access_token": self.server.token, "token_type": "bearer", "expires_in": 3600}

    def _create(self, namespace: str, asked: CreateTableRequest) -> Table:
        return self.server.catalog.create_table(
            (namespace, asked.name),
            asked.table_schema,
            asked.location,
            asked.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            properties=asked.properties,
        )

    def _send(self, status: HTTPStatus, answer: dict[str, Any]) -> None:
        content = b"" if self.command == "HEAD" else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _loaded(table: Table) -> dict[str, Any]:
    return {
        "metadata-location": table.metadata_location,
        "metadata": json.loads(table.metadata.model_dump_json()),
        # What a server lends for the files of one table.
        "config": {"s3.session-token": "lent"},
    }
