"""Servers that stand before another one and spoil what it answers: for tests of what happens when a network does.

`FaultyProxy` passes on bytes of any protocol and loses, cuts or delays them. `LaggingListing` passes on HTTP, and
leaves the newest key out of what S3's ListObjectsV2 answers.
"""

import random
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from http import HTTPStatus
from http.client import HTTPConnection, HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit
from xml.etree import ElementTree

from dedup_platform.spark.session import LOOPBACK

__all__ = ["Faults", "FaultyProxy", "LaggingListing"]

_CHUNK = 64 * 1024
_S3 = "http://s3.amazonaws.com/doc/2006-03-01/"
_SECONDS_TO_ANSWER = 60
_OF_ONE_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass
class Faults:
    """How often what goes wrong: shares from 0 (never) to 1 (always), of connections or of pieces of what is said.

    A piece is what one side sends at once, at most 64 KiB. `refuse`: new connections are closed. Of answers, `drop`:
    the connection breaks before a piece; `cut`: a random part of the piece is still sent; `delay`: the piece comes
    later, by at most `delay_seconds`. Of requests, `lose`: the connection breaks before a piece; `late`: the piece
    comes later, by as much, also where the client is gone by then.
    """

    refuse: float = 0.0
    drop: float = 0.0
    cut: float = 0.0
    delay: float = 0.0
    lose: float = 0.0
    late: float = 0.0
    delay_seconds: float = 0.1


class FaultyProxy:
    """A TCP proxy on a free port of the loopback interface before the server on `target`, while the block runs.

    A test may set the rates of `faults` at any time. `happened` counts what went wrong, by the names of the rates. One
    seed gives one sequence of decisions, of which faults of rate 0 take none; which connection meets which depends on
    the order in which they are served.
    """

    def __init__(self, target: int, seed: int, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.happened: Counter[str] = Counter()
        self._target = target
        self._random = random.Random(seed)
        self._deciding = threading.Lock()
        self._listening = socket.create_server((LOOPBACK, 0))
        self._open: set[socket.socket] = set()
        self.port: int = self._listening.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _end(self._listening)
        self._listening.close()
        self.sever()

    def sever(self) -> None:
        """Break all connections that are open now."""
        for each in list(self._open):
            _end(each)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self._is_due("refuse", self.faults.refuse):
                client.close()
            else:
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection((LOOPBACK, self._target))
        except OSError:
            client.close()
            return
        self._open |= {client, server}
        asking = threading.Thread(target=self._pass_on, args=(client, server), daemon=True)
        asking.start()
        try:
            self._answer(server, client)
        finally:
            asking.join(_SECONDS_TO_ANSWER)
            self._open -= {client, server}
            client.close()
            server.close()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        """What the client says, lost or late."""
        with suppress(OSError):
            while piece := client.recv(_CHUNK):
                if self._is_due("lose", self.faults.lose):
                    _end(server)
                    break
                self._pause("late", self.faults.late)
                server.sendall(piece)
        with suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        """What the server says, spoiled."""
        with suppress(OSError):
            while piece := server.recv(_CHUNK):
                if self._is_due("drop", self.faults.drop):
                    break
                if self._is_due("cut", self.faults.cut):
                    client.sendall(piece[: self._below(len(piece))])
                    break
                self._pause("delay", self.faults.delay)
                client.sendall(piece)
        _end(client)
        _end(server)

    def _is_due(self, name: str, rate: float) -> bool:
        if not rate or self._share() >= rate:
            return False
        self.happened[name] += 1
        return True

    def _pause(self, name: str, rate: float) -> None:
        if self._is_due(name, rate):
            time.sleep(self._share() * self.faults.delay_seconds)

    def _share(self) -> float:
        with self._deciding:
            return self._random.random()

    def _below(self, size: int) -> int:
        with self._deciding:
            return self._random.randrange(size)


class LaggingListing:
    """An HTTP proxy before the S3 server on `target`, whose listings lag, while the block runs.

    Of each answer to ListObjectsV2 the newest key is left out until `seconds` have passed since it was seen first. A
    test may set `seconds` at any time; 0 passes everything on. `left_out` are the keys that were, in order.
    """

    def __init__(self, target: int, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.left_out: list[str] = []
        self._first_seen: dict[str, float] = {}
        self._serving = ThreadingHTTPServer((LOOPBACK, 0), self._handler(target))
        self._serving.daemon_threads = True
        self.port: int = self._serving.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._serving.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._serving.shutdown()
        self._serving.server_close()

    @property
    def endpoint(self) -> str:
        """Its address, for clients of S3."""
        return f"http://{LOOPBACK}:{self.port}"

    def lagging(self, listing: bytes) -> bytes:
        """An answer to ListObjectsV2 without its newest key, if that was seen first too short a time ago."""
        root = ElementTree.fromstring(listing)
        found = root.findall(f"{{{_S3}}}Contents")
        if not found:
            return listing
        newest = max(found, key=lambda each: (_text(each, "LastModified"), _text(each, "Key")))
        key = _text(newest, "Key")
        now = time.monotonic()
        if now - self._first_seen.setdefault(key, now) >= self.seconds:
            return listing
        self.left_out.append(key)
        root.remove(newest)
        for count in root.findall(f"{{{_S3}}}KeyCount"):
            count.text = str(len(found) - 1)
        ElementTree.register_namespace("", _S3)
        return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)

    def _handler(self, target: int) -> type[BaseHTTPRequestHandler]:
        lag = self.lagging

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                """Ask the server the same, and answer what it answers."""
                if "Transfer-Encoding" in self.headers:
                    self.send_error(HTTPStatus.LENGTH_REQUIRED)
                    return
                server = HTTPConnection(LOOPBACK, target, timeout=_SECONDS_TO_ANSWER)
                try:
                    size = int(self.headers.get("Content-Length", 0))
                    _ask(server, self.command, self.path, self.headers, self.rfile.read(size))
                    answer = server.getresponse()
                    body = answer.read()
                    if answer.status == HTTPStatus.OK and "list-type=2" in urlsplit(self.path).query.split("&"):
                        body = lag(body)
                    self._reply(answer.status, answer.msg, body)
                finally:
                    server.close()

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = pass_on  # noqa: N815  # the names that the library wants

            def log_message(self, format: str, *values: object) -> None:  # noqa: A002  # the library's name
                """Say nothing: the server has its own log."""

            def _reply(self, status: int, headers: HTTPMessage, body: bytes) -> None:
                self.send_response_only(status)
                for name, value in headers.items():
                    if name.lower() not in _OF_ONE_CONNECTION:
                        self.send_header(name, value)
                size = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
                self.send_header("Content-Length", size)
                self.end_headers()
                self.wfile.write(body)

        return Handler


def _ask(server: HTTPConnection, method: str, path: str, headers: Message, body: bytes) -> None:
    """With the client's own headers, the host included: its signature is over them."""
    server.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        if name.lower() not in {"connection", "expect"}:
            server.putheader(name, value)
    server.endheaders(body)


def _text(element: ElementTree.Element, name: str) -> str:
    return element.findtext(f"{{{_S3}}}{name}") or ""


def _end(connection: socket.socket) -> None:
    """End both directions, and so wake who waits at it, who closes it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
