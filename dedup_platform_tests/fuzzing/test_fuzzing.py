"""A hundred thousand damaged inputs, and faults that are planted and must be found."""

import re
import subprocess
import sys

import pytest

from dedup_platform_tests.conftest import PROJECT

INPUTS = 100_000
THOROUGH = 20
"""Times as many where there is time."""


def fuzz(*arguments: str, program: tuple[str, ...] = ("-m", "dedup_platform_tests.fuzzing")) -> tuple[int, str]:
    """In a process of its own, as its children must find no threads."""
    command = [sys.executable, *program, *arguments]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_damaged_inputs_become_rows_or_reasons(thorough: bool) -> None:
    code, said = fuzz("--inputs", str(INPUTS * (THOROUGH if thorough else 1)))
    assert code == 0, said


PLANTED = """
import os, signal, sys
from dedup_platform_tests.fuzzing import __main__, reading
read_group = reading.read_group
def poisoned(*said):
    for frame in read_group(*said):
        if any(b"\\xff" in payload for payload in frame["payload"] if payload):
            {fault}
        yield frame
reading.read_group = poisoned
sys.exit(__main__.main())
"""


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("raise KeyError('who')", "KeyError: 'who'"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "died of SIGSEGV"),
        ("frame = frame.tail(-1)", "NotConservedError: "),
    ],
)
def test_a_fault_that_is_planted_is_found_and_narrowed_down(fault: str, told: str) -> None:
    code, said = fuzz("--kind", "json", "--inputs", "100", "--size", "100", program=("-c", PLANTED.format(fault=fault)))
    assert code == 1
    assert re.search(rf"json, seed 0: {told}", said), said
    assert re.search(r"python -m dedup_platform_tests.fuzzing --kind json --seed 0 --size 100 --only \d+\n", said), said
