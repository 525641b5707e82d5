"""`python -m dedup_platform_tests.claims.crowd HOME STREAM_FILE FOLDER PROCESSES REQUESTS SEED`: many ask for few.

Processes ask for partitions and are killed at random, until there were so many requests. What a partition's work reads
is how many requests there were for it. `FOLDER` tells afterwards what was asked, left to others, begun, and done.
"""

import fcntl
import os
import signal
import sys
import time
from pathlib import Path
from random import Random

from dedup_platform.planning.claims import Partitions
from dedup_platform.planning.moments import utc_now
from dedup_platform.platform import Platform
from dedup_platform.platform.claims import Turn
from dedup_platform.stream import Stream, load_stream
from dedup_platform.tables import SESSIONS
from dedup_platform.testing import light_platform

PARTITIONS = 10
LONGEST_WORK, LONGEST_PAUSE, BETWEEN_KILLS = 0.05, 0.2, 0.15
"""Seconds, at most."""


class Asker:
    """One of the processes."""

    def __init__(self, platform: Platform, stream: Stream, folder: Path, random: Random) -> None:
        self._claims, self._stream, self._folder, self._random = platform.claims, stream, folder, random
        self._log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def ask(self, *partitions: int) -> None:
        """One request for each of these partitions."""
        asked = {partition: self._note_request(partition) for partition in partitions}
        work = self._claims.work(self._stream, SESSIONS, Partitions(frozenset(partitions)), self._work)
        for partition, number in asked.items():
            self._say("left" if work.left else "answered", partition, number)

    def _work(self, turn: Turn) -> None:
        with turn.reading():
            read = {partition: self._requests(partition) for partition in turn.partitions.listed}
            locks = [self._lock(partition) for partition in read]
            for partition, number in read.items():
                self._say("begun", partition, number)
            time.sleep(self._random.random() * LONGEST_WORK)
            for partition, number in read.items():
                self._say("done", partition, number)
        for lock in locks:
            os.close(lock)

    def _lock(self, partition: int) -> int:
        """A lock that the system takes from whoever dies."""
        handle = os.open(self._folder / f"lock{partition}", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._say("shared", partition, 0)
        return handle

    def _note_request(self, partition: int) -> int:
        handle = os.open(self._folder / f"requests{partition}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, b".")
        number = os.fstat(handle).st_size
        os.close(handle)
        return number

    def _requests(self, partition: int) -> int:
        return (self._folder / f"requests{partition}").stat().st_size

    def _say(self, *words: object) -> None:
        os.write(self._log, f"{' '.join(map(str, words))}\n".encode())


def requests(folder: Path) -> int:
    """How many there were so far."""
    return sum(file.stat().st_size for file in folder.glob("requests*"))


def main(home: str, file: str, place: str, processes: str, wanted: str, seed: str) -> None:
    """Let them ask, and kill some."""
    stream, folder, random = load_stream(Path(file)), Path(place), Random(int(seed))

    def start() -> int:
        own = Random(random.random())
        child = os.fork()
        if child:
            return child
        asker = Asker(light_platform(Path(home), stream, utc_now), stream, folder, own)
        while not (folder / "over").exists():
            asker.ask(*own.sample(range(PARTITIONS), own.choice((1, 1, 2))))
            time.sleep(own.random() * LONGEST_PAUSE)
        os._exit(0)

    def end(process: int) -> None:
        _, status = os.waitpid(process, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status):
            sys.exit(f"process {process} failed")

    living, killed = {start() for _ in range(int(processes))}, 0
    while requests(folder) < int(wanted):
        time.sleep(random.random() * BETWEEN_KILLS)
        victim = random.choice(sorted(living))
        os.kill(victim, signal.SIGKILL)
        end(victim)
        living = living - {victim} | {start()}
        killed += 1
    (folder / "over").touch()
    for process in living:
        end(process)
    print(killed)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
