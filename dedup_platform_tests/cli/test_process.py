"""Signals that whoever started a command let it ignore."""

import subprocess
import sys

import pytest

CHILD = "import signal; print(signal.getsignal(signal.SIGTERM).name, signal.pthread_sigmask(signal.SIG_BLOCK, []))"
COMMAND = f"""
import os, signal, subprocess, sys
from dedup_platform.cli.process import let_children_be_ended
{{before}}
let_children_be_ended()
subprocess.run([sys.executable, "-c", {CHILD!r}], check=True)
{{after}}
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "os.kill(os.getpid(), signal.SIGTERM)"),
        ("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])", ""),
        ("", ""),
    ],
    ids=["ignored", "blocked", "neither"],
)
def test_children_end_by_sigterm_whatever_this_process_does(before: str, after: str) -> None:
    command = [sys.executable, "-c", COMMAND.format(before=before, after=after)]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert told == "SIG_DFL set()\n"
