"""The harness's side of a contender's process: asks, waits, and watches its memory and what it writes."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil  # type: ignore[import-untyped]

from benchmarks.contender import Output, Task
from benchmarks.contenders import BEFORE, OURS

PROJECT = Path(__file__).parent.parent
_SECONDS_BETWEEN_LOOKS = 0.25
_PATIENCE_SECONDS = 60
_MEGABYTE = 1024 * 1024
_CALLED = {BEFORE: OURS}
"""Names here -> what another checkout calls the same contender."""


class ContenderError(Exception):
    """A contender failed; the message holds what it said."""


@dataclass(frozen=True)
class Run:
    """One timed call: what it returned and what it cost."""

    value: Any
    seconds: float
    peak_mb: float
    """Most resident memory of the process and all its children together."""
    data_bytes_read: int | None
    data_bytes_written: int
    data_files_written: int
    metadata_bytes_written: int


class Contestant:
    """A contender in its own process, which stays warm until it is closed; its code may be that of another checkout."""

    def __init__(self, name: str, task: Task, checkout: Path = PROJECT) -> None:
        self.name = name
        self.task = task
        Path(task.home).mkdir(parents=True, exist_ok=True)
        logs = Path(task.logs)
        logs.mkdir(parents=True, exist_ok=True)
        self._log = logs / f"{name.replace(' ', '-')}.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.worker", _CALLED.get(name, name), json.dumps(task.to_json())],
                cwd=checkout,
                # The folder alone would do for this process, but not for those that it starts.
                env=os.environ | {"PYTHONPATH": str(checkout)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def __enter__(self) -> "Contestant":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After a failure, whatever it is doing is for nothing.
        self.close(patience_seconds=0 if error else _PATIENCE_SECONDS)

    def call(self, method: str, **arguments: Any) -> Any:
        """What a method returns; raises ContenderError if it fails."""
        return self._ask(method, arguments)["value"]

    def output(self) -> Output:
        """The files of its result."""
        return Output(**self.call("output"))

    def run(self, method: str, **arguments: Any) -> Run:
        """Call a method and measure it. The clock is the contender's own: pipes are not in its time."""
        read, before = self.call("bytes_read"), _files(Path(self.task.home))
        with _peak(self._process.pid) as peak:
            answer = self._ask(method, arguments)
        read_after = self.call("bytes_read")
        written = {path: at for path, at in _files(Path(self.task.home)).items() if before.get(path) != at}
        data = [size for path, (size, _) in written.items() if path.endswith(".parquet")]
        return Run(
            value=answer["value"],
            seconds=answer["seconds"],
            peak_mb=peak[0] / _MEGABYTE,
            data_bytes_read=None if read is None else read_after - read,
            data_bytes_written=sum(data),
            data_files_written=len(data),
            metadata_bytes_written=sum(size for path, (size, _) in written.items() if not path.endswith(".parquet")),
        )

    def close(self, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        """End the process and its children, and wait until they are gone."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        children = _tree(self._process.pid)
        for process in psutil.wait_procs(children, timeout=patience_seconds)[1]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()

    def _ask(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"method": method, "arguments": arguments}) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise ContenderError(f"{self.name} ended in {method}; see {self._log.name} in the folder of logs")
        answer: dict[str, Any] = json.loads(line)
        if "failure" in answer:
            raise ContenderError(f"{self.name}, {method}: {answer['failure']}")
        return answer


def run_cold(name: str, task: Task, method: str) -> Run:
    """One method in a process of its own, timed from the start of the process to its end."""
    started = time.monotonic()
    with Contestant(name, task) as contestant:
        run = contestant.run(method)
    return replace(run, seconds=time.monotonic() - started)


@contextmanager
def _peak(pid: int) -> Iterator[list[int]]:
    """The most resident bytes that a process and its children have together while the block runs."""
    peak, done = [0], threading.Event()

    def watch() -> None:
        while True:
            peak[0] = max(peak[0], sum(_resident(process) for process in _tree(pid)))
            if done.wait(_SECONDS_BETWEEN_LOOKS):
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def _tree(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and modification time of every file of tables below a folder; databases and checksum files are none."""
    found = {}
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if file.is_file() and file.suffix not in (".crc", ".db"):
                status = file.stat()
                found[str(file)] = (status.st_size, status.st_mtime_ns)
    return found
