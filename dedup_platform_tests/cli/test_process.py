"""The process of a command: signals that whoever started it let it ignore, and readers that go away."""

import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from dedup_platform import cli
from dedup_platform.testing import make_stream

SCRIPT = Path(sys.executable).with_name("dedup-platform")
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


def test_the_version() -> None:
    told = subprocess.run([SCRIPT, "--version"], capture_output=True, text=True, check=True).stdout
    assert told == f"dedup_platform {version('dedup_platform')}\n"


MANY = "FROM range(1000000)"


@pytest.mark.parametrize(
    "arguments",
    [["check", "--offline"], ["check", "--offline", "--json"], ["sql", MANY, "--csv"], ["sql", MANY, "--json"]],
    ids=["text", "JSON", "csv of many rows", "JSON of many rows"],
)
def test_a_reader_that_has_enough_is_no_failure(arguments: list[str], tmp_path: Path) -> None:
    make_stream(tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "DEDUP_PLATFORM_HOME": str(tmp_path / "home")}
    command = [str(SCRIPT), *arguments, "--streams", str(tmp_path)]
    with os.fdopen(writer) as output:
        done = subprocess.run(command, env=environment, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_ends_a_question_at_once_and_leaves_nothing_aside(tmp_path: Path) -> None:
    stream, aside = make_stream(tmp_path), tmp_path / "aside"
    aside.mkdir()
    environment = {**os.environ, "DEDUP_PLATFORM_HOME": str(tmp_path / "home"), "TMPDIR": str(aside)}
    command = [str(SCRIPT), "sql", "SELECT sum(hash(range)) FROM range(1000000000000)", "--streams", str(stream.origin)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as asked:
        while not list(aside.iterdir()):
            time.sleep(0.05)
        asked.send_signal(signal.SIGINT)
        assert asked.wait(10) == cli.INTERRUPTED
    assert list(aside.iterdir()) == []


def test_what_a_command_starts_is_not_interrupted_with_it() -> None:
    child = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    work = f"subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    program = f"import subprocess, sys; from dedup_platform.cli import process; process.run_to_its_end(lambda: {work})"
    told = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert "SIGINT" in told
