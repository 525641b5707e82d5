"""Real servers for tests: one of each kind that tests share, or one of a test's own that it may kill."""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any, TypeVar

import pytest

from dedup_platform.errors import MissingPartError
from dedup_platform.testing.servers import PostgresServer, ServerProcess

Kind = TypeVar("Kind", bound=ServerProcess)
WEBHOOK_PATH = "/services/T0/B0/secret"


@contextmanager
def running(kind: Callable[..., Kind], folder: Path, **options: Any) -> Iterator[Kind]:
    """A server while the block runs; the test is skipped where it is not installed (with CI=true it fails)."""
    try:
        server = kind(folder, **options)
    except MissingPartError as missing:
        pytest.skip(str(missing))
    with server:
        yield server


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """The free port of this machine on which requests are answered while the block runs."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def webhook(status: int = 200, seconds: float = 0) -> Iterator[tuple[str, list[Any]]]:
    """The secret address of a webhook, and what it was sent; it answers so, letter by letter if it takes its time."""
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            for letter in b"HTTP/1.0 " if seconds else b"":
                self.wfile.write(bytes([letter]))
                sleep(seconds / 9)
            if not seconds:
                self.send_response(status)
                self.send_header("Location", self.path)
                self.end_headers()

        def do_GET(self) -> None:
            got.append((self.path, "redirected"))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}{WEBHOOK_PATH}", got


def new_name(prefix: str = "t") -> str:
    """A name for a topic, a bucket or a database that no other test has."""
    return f"{prefix}{secrets.token_hex(6)}"


def rows_written(server: PostgresServer, database: str, table: str) -> tuple[int, int, int]:
    """Rows of a table that were ever inserted, updated and deleted, by the server's own statistics."""
    connection = server.connect(database)
    connection.autocommit = True
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    try:
        with connection.cursor() as cursor:
            # What a connection did is counted when it has ended, which is a moment after it was closed.
            while cursor.execute(f"SELECT 1 {others} AND backend_type = 'client backend'") or cursor.fetchall():
                sleep(0.01)
            cursor.execute(
                "SELECT n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables WHERE relname = %s", (table,)
            )
            [(inserted, updated, deleted)] = cursor.fetchall()
            return inserted, updated, deleted
    finally:
        connection.close()


def login(password: str) -> dict[str, str]:
    """How clients connect to a broker that asks for a password."""
    user = {"sasl.username": "me", "sasl.password": password}
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **user}


def asking_for_a_password(password: str) -> dict[str, Any]:
    """How a broker is started that asks everybody for it."""
    users = f'username="me" password="{password}" user_me="{password}"'
    protocols = "PLAINTEXT:SASL_PLAINTEXT,SERVICES:PLAINTEXT,CONTROLLER:PLAINTEXT"
    properties = {
        "listener.security.protocol.map": protocols,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
    }
    return {"properties": properties, "clients": login(password)}
