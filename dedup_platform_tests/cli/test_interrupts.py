"""Ctrl-C in the middle of real commands: they end in time, say so once, and leave nothing half done."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from dedup_platform.cli.process import SECONDS_TO_END
from dedup_platform.stream import load_stream
from dedup_platform.testing import HeldClock, lay_out, light_platform, make_stream, record, utc, write_batch
from dedup_platform.testing.comparison import published_rows

SCRIPT = Path(sys.executable).with_name("dedup-platform")
SLOW = 3
"""On a busy machine a process may get to know of a signal so many seconds later."""
PATIENCE = 120
STUBBORN = """
import sys, time
from dedup_platform.cli import process
process.ON_INTERRUPT.append(lambda: time.sleep(60))
def work():
    print("at work", flush=True)
    while True:
        time.sleep(0.01)
        process.out.print("equal")
process.run_to_its_end(work)
"""


@pytest.mark.parametrize("signals", [1, 2])
def test_neither_notes_nor_work_are_waited_for(signals: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    )
    assert process.stdout
    assert process.stderr
    process.stdout.readline()
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    said = process.stderr.readline() + process.stderr.readline()
    os.set_blocking(process.stdout.fileno(), False)
    process.stdout.read()
    time.sleep(0.2)
    assert not process.stdout.read(), "the work goes on to answer"
    if signals == 2:
        process.send_signal(signal.SIGINT)
    process.wait(PATIENCE)
    seconds = time.monotonic() - started
    assert (process.returncode, (said + process.stderr.read()).count(b"interrupted")) == (130, 1)
    assert seconds < (SECONDS_TO_END if signals == 2 else 2 + SLOW)


@contextmanager
def silent_server() -> Iterator[socket.socket]:
    """Takes connections and never says a word; whoever is connected is at work, and waits."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        yield server


def address(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


class Started:
    """A command, and what to wait for until it is in the middle of its work."""

    def __init__(self, home: Path, streams: Path, at_work: Callable[[], object], *arguments: str, **more: str) -> None:
        self.name, self._at_work = arguments[0], at_work
        environment = {
            **os.environ,
            "DEDUP_PLATFORM_HOME": str(home),
            "DEDUP_PLATFORM_STREAMS": str(streams),
            **more,
        }
        self.process = subprocess.Popen(
            [str(SCRIPT), *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def interrupted(self) -> tuple[int, str, float]:
        """Its exit code, what it said, and after how many seconds it was gone."""
        self._at_work()
        assert self.process.poll() is None, self.process.communicate()
        started = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE)
        seconds = time.monotonic() - started
        out, err = self.process.communicate()
        return self.process.returncode, out + err, seconds


def test_commands_that_are_in_the_middle_of_their_work(tmp_path: Path) -> None:
    stream = make_stream(tmp_path, start="2024-03-01")
    with silent_server() as postgres, silent_server() as spark:
        content = yaml.safe_load(stream.origin.read_text())
        sink = {"kind": "postgres", "follows": "sessions", "table": "public.sessions"}
        content["publish"] = {"sinks": {"copy": sink | {"uri": f"postgresql://me@{address(postgres)}/marts"}}}
        stream.origin.write_text(yaml.safe_dump(content))
        stream = load_stream(stream.origin)
        events = [record("a", str(number), utc("2024-03-01"), page="/" * 100) for number in range(1_500)]
        write_batch(stream, lay_out(events, "first.json"))
        home, clock = tmp_path / "home", HeldClock(utc("2024-04-01"))
        platform = light_platform(home, stream, clock)
        platform.ingest("events")
        platform.repair("events")
        platform.publish_changes("events")
        write_batch(stream, lay_out([record("b", "1", utc("2024-03-02"))], "second.json"))
        before = published_rows(platform, "events")

        part, exported = tmp_path / ".out.csv.part", tmp_path / "out.csv"
        os.mkfifo(part)
        reader = os.open(part, os.O_RDONLY | os.O_NONBLOCK)
        remote = {"DEDUP_PLATFORM_SPARK_REMOTE": f"sc://{address(spark)}"}

        def start(at_work: Callable[[], object], *arguments: str, **more: str) -> Started:
            return Started(home, stream.origin, at_work, *arguments, **more)

        def waits_for_spark() -> None:
            # The first connection only asks whether anybody is there.
            held.extend((spark.accept(), spark.accept()))

        held: list[object] = []
        export = ("export", "events", "raw_events", "--to", str(exported))
        started = [
            start(lambda: select.select([reader], [], [], PATIENCE), *export),
            start(lambda: held.append(postgres.accept()), "publish"),
        ]
        ended = {each.name: each.interrupted() for each in started}
        of_spark = (("verify",), ("maintain",), ("redecode", "events", "--partitions", "2024-03-01"), ("run",))
        ended |= {each[0]: start(waits_for_spark, *each, **remote).interrupted() for each in of_spark}
    os.close(reader)
    for name, (code, said, seconds) in ended.items():
        assert (code, said.count("interrupted; what was committed stays")) == (130, 1), f"{name}: {said}"
        assert seconds < 2 + SLOW, name
    assert not part.exists()
    assert not exported.exists()
    assert published_rows(platform, "events") == before
    assert platform.source.waiting("events").amount == "1 files"
