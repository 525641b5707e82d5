"""Servers and commands as processes of their own, on the loopback interface; each is ended by its own process id."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pyspark
import pytest

from dedup_platform.testing.servers import free_port
from dedup_platform_tests.conftest import PROJECT
from dedup_platform_tests.end_to_end.conftest import PATIENCE, wait_until

LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1"}
TELLS_WHERE_IT_IS = {"PYTHONFAULTHANDLER": "1"}
"""For `said_by`: a Python that gets SIGABRT then says what each of its threads is doing."""


@dataclass(frozen=True)
class CommandLine:
    """`dedup-platform` under settings of its own."""

    environment: Mapping[str, str]

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """What it printed on standard output, or on standard error if `code` says that it must fail."""
        with self.started(*arguments) as process:
            out, err = said_by(process)
        assert process.returncode == code, f"{out}\n{err}"
        return out if code == 0 else err

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """The command at work; it and what it started end with the block at the latest."""
        command = [str(Path(sys.executable).with_name("dedup-platform")), *arguments]
        environment = {**os.environ, "COLUMNS": "300", **TELLS_WHERE_IT_IS, **self.environment}
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


def said_by(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process, which leads a session of its own, printed until its end.

    If that does not come, or others that it started hold its output, the test fails with what each of them is doing.
    """
    try:
        return process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        left = [each for each in psutil.process_iter(["ppid", "status", "cmdline"]) if _is_of(each, process.pid)]
        told = "\n".join(f"{each.pid} {each.info}" for each in left)
        for each in left:
            # A stack of each thread: Java says so on standard output and goes on.
            each.send_signal(signal.SIGQUIT if each.name() == "java" else signal.SIGABRT)
        time.sleep(5)
        for each in left:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        out, err = process.communicate(timeout=PATIENCE)
    pytest.fail(f"{process.args!r} did not end: {told}\n{out}\n{err}")


def _is_of(process: psutil.Process, session: int) -> bool:
    try:
        return os.getsid(process.pid) == session
    except ProcessLookupError:
        return False


@contextmanager
def running(command: list[str], environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process while the block runs."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=os.environ | environment, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def standalone_cluster(folder: Path, workers: int) -> Iterator[str]:
    """A Spark cluster of a master and workers of one core and 1 GB each; its address for `spark.master`.

    Worker number n runs its executors in `folder / str(n)`.
    """
    port, ui = free_port(), free_port()
    deploy = "org.apache.spark.deploy"
    here = ["--host", "127.0.0.1", "--webui-port"]
    environment = LOOPBACK | {"SPARK_DAEMON_MEMORY": "256m"}
    with ExitStack() as started:

        def start(name: str, *arguments: str) -> None:
            started.enter_context(
                running([spark_class(), f"{deploy}.{name}", *here, *arguments], environment, folder / f"{port}.log")
            )

        start("master.Master", str(ui), "--port", str(port))
        wait_until(lambda: alive_workers(ui) == 0, "the master answers", PATIENCE)
        for number in range(workers):
            size = "--cores", "1", "--memory", "1g", "--work-dir", str(folder / str(number))
            start("worker.Worker", "0", *size, f"spark://127.0.0.1:{port}")
        wait_until(lambda: alive_workers(ui) == workers, "all workers are there", PATIENCE)
        yield f"spark://127.0.0.1:{port}"


def alive_workers(master_ui: int) -> int | None:
    """How many workers a master knows; None while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{master_ui}/json/", timeout=10) as answer:
            return int(json.load(answer)["aliveworkers"])
    except OSError:
        return None


def run_tests(chosen: Iterable[str], *options: str, environment: Mapping[str, str]) -> None:
    """Run other tests of this project, in a process of their own and with such options; fails if they do."""
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        + [str(PROJECT / "dedup_platform_tests" / name) for name in chosen],
        cwd=PROJECT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | dict(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def spark_class() -> str:
    return str(Path(pyspark.__file__).parent / "bin" / "spark-class")
