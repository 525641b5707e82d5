"""Which processes still live, told by the names that they gave themselves."""

import subprocess
import sys
import time

import psutil  # type: ignore[import-untyped]
import pytest

from dedup_platform.processes import identity, is_gone

WITHOUT_ITS_FIRST_THREAD = """
import ctypes, threading, time
from dedup_platform.processes import identity
print(identity(), flush=True)
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_who_lives_is_not_gone() -> None:
    assert not is_gone(identity())


@pytest.mark.parametrize("name", ["elsewhere/1/2.34", "", "{host}", "{host}/?/2.34"])
def test_of_others_nobody_knows(name: str) -> None:
    assert not is_gone(name.format(host=identity().partition("/")[0]))


def test_who_has_the_number_of_one_that_ended_is_another_one() -> None:
    host, number, started = identity().split("/")
    assert is_gone(f"{host}/{number}/{float(started) - 60:.2f}")


def test_who_was_killed_is_gone_with_the_last_of_its_threads() -> None:
    process = subprocess.Popen([sys.executable, "-c", WITHOUT_ITS_FIRST_THREAD], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        name = process.stdout.readline().strip()
        wait_for(process.pid, threads=2)
        assert not is_gone(name)
        process.kill()
        wait_for(process.pid, threads=1)
        assert is_gone(name)
    finally:
        process.kill()
        process.communicate()
    assert is_gone(name)


def wait_for(process: int, threads: int) -> None:
    """Until it has ended but for so many threads, of which the first one waits for the others."""
    until = time.monotonic() + 30
    found = psutil.Process(process)
    while (found.status(), found.num_threads()) != (psutil.STATUS_ZOMBIE, threads):
        assert time.monotonic() < until
        time.sleep(0.01)
