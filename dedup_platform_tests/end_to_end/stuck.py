"""Streams whose source never answers."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import yaml


@contextmanager
def silence() -> Iterator[str]:
    """The address of a server that takes all connections, and never says a word."""
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hold() -> None:
            while True:
                try:
                    held.append(server.accept()[0])
                except OSError:
                    return

        Thread(target=hold, daemon=True).start()
        host, port = server.getsockname()
        try:
            yield f"{host}:{port}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for connection in held:
                connection.close()


def write_stuck_stream(folder: Path, name: str, brokers: str) -> Path:
    """The stream file of a topic at these brokers."""
    content = {
        "name": name,
        "source": {"kind": "kafka", "brokers": brokers, "topic": "clicks", "format": "json"},
        "fields": {"entity_id": "user", "event_id": "id", "event_time": "at"},
        "partitions": {"granularity": "day", "start": "2024-01-01"},
        "sessions": {"timeout": "30m"},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path
