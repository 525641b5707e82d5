"""How servers are started and ended, seen with small ones: also those that do not start or do not want to end."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from dedup_platform import processes
from dedup_platform.errors import ServerStartError
from dedup_platform.testing.servers import ServerProcess, free_port
from dedup_platform.testing.servers.process import LOOPBACK
from dedup_platform_tests.conftest import PROJECT

LISTEN = f"""
import signal, socket, subprocess, sys, time
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "parent" in sys.argv:
    print(subprocess.Popen(["sleep", "60"]).pid, flush=True)
with socket.create_server(("{LOOPBACK}", int(sys.argv[1]))):
    time.sleep(60)
"""


def listener(folder: Path, *words: str, **options: Any) -> ServerProcess:
    """A server that listens on a port of its own."""
    port = free_port()

    def answers() -> bool:
        socket.create_connection((LOOPBACK, port), 1).close()
        return True

    command = [sys.executable, "-c", LISTEN, str(port), *words]
    return ServerProcess("listener", command, folder / "listener.log", answers, **options)


def test_it_answers_in_the_block_and_is_gone_after_it(tmp_path: Path) -> None:
    with listener(tmp_path) as server:
        assert server.is_answering()
        pid = server.pid
    assert server.pid is None
    assert not server.is_answering()
    assert not psutil.pid_exists(pid)


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="there is no setpriv (Debian: apt-get install util-linux)")
def test_it_does_not_outlive_a_process_that_was_killed(tmp_path: Path) -> None:
    starts_one = (
        "import pathlib, time; from dedup_platform_tests.testing.servers.test_process import listener;"
        f"server = listener(pathlib.Path({str(tmp_path)!r})); server.start();"
        "print(server.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", starts_one], stdout=subprocess.PIPE, cwd=PROJECT) as starter:
        assert starter.stdout
        server = psutil.Process(int(starter.stdout.readline()))
        starter.kill()
    assert psutil.wait_procs([server], timeout=10)[1] == []


def test_a_setpriv_that_cannot_do_it_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of before 2.33, and BusyBox's."""
    (tmp_path / "setpriv").write_text("#!/bin/sh\necho unrecognized option: pdeathsig >&2\nexit 1\n")
    (tmp_path / "setpriv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    processes._setpriv.cache_clear()
    try:
        assert processes.with_parent(["sleep", "1"]) == ["sleep", "1"]
    finally:
        processes._setpriv.cache_clear()


def test_one_that_ends_at_once_is_told_with_what_it_printed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('no such setting'); raise SystemExit(3)"]
    server = ServerProcess("server", command, tmp_path / "log", lambda: False)
    with pytest.raises(ServerStartError, match=r"^server ended with code 3 before it answered(.|\n)*no such setting$"):
        server.start()


def test_one_that_never_answers_is_ended(tmp_path: Path) -> None:
    server = ServerProcess("server", ["sleep", "60"], tmp_path / "log", lambda: False, seconds_to_start=0.5)
    with pytest.raises(ServerStartError, match=r"server did not answer within 0\.5 s"):
        server.start()
    assert server.pid is None


def test_one_that_does_not_want_to_end_is_killed(tmp_path: Path) -> None:
    server = listener(tmp_path, "deaf", seconds_to_end=0.5)
    server.start()
    began = time.monotonic()
    server.stop()
    assert server.pid is None
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("end", [ServerProcess.kill, ServerProcess.stop])
def test_what_it_started_ends_with_it(tmp_path: Path, end: object) -> None:
    server = listener(tmp_path, "parent")
    server.start()
    child = psutil.Process(int(server.log.read_text()))
    assert callable(end)
    end(server)
    assert not child.is_running()


def test_started_again_it_is_another_process(tmp_path: Path) -> None:
    with listener(tmp_path) as server:
        pid = server.pid
        server.restart()
        assert server.is_answering()
        assert server.pid != pid
    server.stop()
    server.kill()
