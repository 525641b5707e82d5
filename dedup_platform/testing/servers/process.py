"""A server as a process of its own on the loopback interface, ended by its own process id."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil  # type: ignore[import-untyped]

from dedup_platform.errors import ServerStartError
from dedup_platform.processes import with_parent
from dedup_platform.spark.session import LOOPBACK

__all__ = ["LOOPBACK", "ServerProcess"]

_LINES_SHOWN = 20


class ServerProcess:
    """One server: runs while the `with` block does, can be killed, and started again on the same port and data.

    It ends with the thread that starts it: not one of a pool, which may end before the block does.

    `answers` says whether it serves already (False or OSError: not yet). What it prints is appended to `log`. Its
    environment is this process's, unless it is given.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        answers: Callable[[], bool],
        *,
        environment: Mapping[str, str] | None = None,
        ending: signal.Signals = signal.SIGTERM,
        seconds_to_start: float = 120,
        seconds_between_looks: float = 0.1,
        seconds_to_end: float = 30,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self._answers = answers
        self._environment = dict(os.environ if environment is None else environment)
        self._ending = ending
        self._seconds_to_start = seconds_to_start
        self._seconds_between_looks = seconds_between_looks
        self._seconds_to_end = seconds_to_end
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def is_answering(self) -> bool:
        """Whether it serves now."""
        try:
            return self.pid is not None and self._answers()
        except OSError:
            return False

    def start(self) -> None:
        """Start it and wait until it answers. Raises ServerStartError if it ends before, or takes too long."""
        self._launch()
        until = time.monotonic() + self._seconds_to_start
        try:
            while not self.is_answering():
                if self.pid is None or time.monotonic() > until:
                    raise self._not_started()
                time.sleep(self._seconds_between_looks)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ask it to end and wait until it has; what does not end in time is killed."""
        if self._process is None:
            return
        family = self._family()
        self._process.send_signal(self._ending)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(self._seconds_to_end)
        self._kill(family)

    def kill(self) -> None:
        """End it as a power failure would: SIGKILL for it and for all processes that it started."""
        if self._process is not None:
            self._kill(self._family())

    def restart(self) -> None:
        """Start it again with the same command, port and data; ends it first if it runs. Raises as `start`."""
        self.stop()
        self.start()

    def _launch(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            # A process group of its own: Ctrl-C in a terminal is for whoever started it, who ends it in turn.
            self._process = subprocess.Popen(
                with_parent(self.command),
                env=self._environment,
                cwd=self.log.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
            )

    def _family(self) -> list[psutil.Process]:
        """It and all that it started; nobody if it has ended."""
        if self.pid is None:
            return []
        try:
            process = psutil.Process(self.pid)
            return [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _kill(self, family: list[psutil.Process]) -> None:
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        if self._process is not None:
            self._process.wait()
        psutil.wait_procs(family, timeout=self._seconds_to_end)

    def _not_started(self) -> ServerStartError:
        reason = f"did not answer within {self._seconds_to_start:g} s"
        if self._process is not None and self._process.poll() is not None:
            reason = f"ended with code {self._process.returncode} before it answered"
        printed = self.log.read_text("utf-8", "replace").splitlines()[-_LINES_SHOWN:]
        return ServerStartError(self.name, reason, "\n".join(printed))
