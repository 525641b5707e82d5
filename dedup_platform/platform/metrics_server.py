"""Where Prometheus asks for the metrics: `GET /metrics`."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from time import monotonic
from typing import Any

from dedup_platform.errors import DedupPlatformError, SettingsError
from dedup_platform.escapes import one_line
from dedup_platform.platform import Platform
from dedup_platform.platform.metrics import CONTENT_TYPE, Sample, exposition, samples
from dedup_platform.settings import Settings
from dedup_platform.stream import read_streams

__all__ = ["following", "metrics_server"]

SECONDS_KEPT = 10.0
"""Whoever asks within this time of the last one gets the same: a status asks sources and the stores of sinks."""
_LOG = logging.getLogger(__name__)


@contextmanager
def metrics_server(opened: Callable[[], Platform], address: str, port: int) -> Iterator[int]:
    """Answer while the block runs, on this port of an address of this machine, 0 for a free one: the port.

    `opened` gives the platform of the streams as they are when somebody asks. SettingsError if the port is taken.
    """
    metrics = _Metrics(opened)

    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            try:
                content = metrics.text().encode()
            except DedupPlatformError as error:
                self.send_error(503, explain=one_line(str(error)))
                return
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Whoever asks does so every few seconds."""

    try:
        server = ThreadingHTTPServer((address, port), Handler)
    except OSError as error:
        raise SettingsError(f"the metrics cannot be served on {address}:{port}: {error.strerror}") from None
    server.daemon_threads = True
    with server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def following(settings: Settings, files: Path) -> Callable[[], Platform]:
    """Gives the platform of the stream files as they are now, broken ones left out: another one once they change.

    Metadata is all that it can tell.
    """
    last = Platform(settings, {}, _no_spark)

    def opened() -> Platform:
        nonlocal last
        streams = read_streams(files).streams
        if streams != last.streams:
            last = Platform(settings, streams, _no_spark)
        return last

    return opened


def _no_spark() -> Any:
    raise AssertionError("metrics are told from metadata")


class _Metrics:
    def __init__(self, opened: Callable[[], Platform]) -> None:
        self._opened = opened
        self._lock = Lock()
        self._known: tuple[float, str] | None = None

    def text(self) -> str:
        with self._lock:
            if self._known is None or monotonic() - self._known[0] > SECONDS_KEPT:
                platform = self._opened()
                told = exposition(each for name in platform.streams for each in _of(platform, name))
                self._known = monotonic(), told
            return self._known[1]


def _of(platform: Platform, stream: str) -> Iterator[Sample]:
    try:
        status = platform.status(stream)
        checks = platform.health.of_status(status)
    except Exception as error:
        # One stream's failure is not another's.
        _LOG.warning("%s: its status is not known: %s: %s", stream, type(error).__name__, one_line(str(error)))
        yield Sample("status_known", {"stream": stream}, 0.0)
    else:
        yield from samples(status, checks)
