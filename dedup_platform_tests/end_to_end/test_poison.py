"""`dedup-platform run` with files that once stopped a stream, took all memory, or made thousands of files of little.

Whatever they hold becomes rows or reasons, within a minute and a gigabyte, and their neighbours arrive exactly once.
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Thread

import psutil  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.stream import load_streams
from dedup_platform.tables import DEDUPLICATED_EVENTS, RAW_EVENTS
from dedup_platform.testing.servers import KafkaServer
from dedup_platform_tests.end_to_end.conftest import BRIEF
from dedup_platform_tests.end_to_end.poison import HEALTHY, OF_TOPIC, POISONS, write_stream, write_topic_stream
from dedup_platform_tests.end_to_end.processes import CommandLine, said_by
from dedup_platform_tests.ingest.kafka.topics import Topic
from dedup_platform_tests.servers import new_name
from dedup_platform_tests.sources.registries import schema_registry

MOST_MEMORY = 2**30
MOST_SECONDS = 60
"""Of the processors' time of Python: how long that is depends on what else the machine does."""
SOME = ["quotes", "endless", "dictionary", "unpacked", "hours", "link"]
"""Of the files those that are read where time is short, one for each way to be too much."""
ANY_STAMP = {"message_timestamp_type": "CreateTime", "message_timestamp_after_max_ms": str(2**63 - 1)}


class Watch:
    """What the Python processes of a command take while it runs."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._seconds: dict[int, float] = {}
        self.memory = 0
        """The most that one process had, in bytes."""
        Thread(target=self._look, daemon=True).start()

    @property
    def seconds(self) -> float:
        return sum(self._seconds.values())

    def _look(self) -> None:
        with suppress(psutil.NoSuchProcess):
            while self._process.is_running():
                for each in (self._process, *self._process.children(recursive=True)):
                    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                        self._note(each)
                time.sleep(0.1)

    def _note(self, process: psutil.Process) -> None:
        if process.name() != "java":
            self.memory = max(self.memory, process.memory_info().rss)
            times = process.cpu_times()
            self._seconds[process.pid] = times.user + times.system


def run(folder: Path) -> Watch:
    """`dedup-platform run` of all streams in a folder, to its end."""
    command = CommandLine(BRIEF | {"DEDUP_PLATFORM_HOME": str(folder / "home"), "DEDUP_PLATFORM_STREAMS": str(folder)})
    with command.started("run") as process:
        watch = Watch(process.pid)
        out, err = said_by(process)
        assert process.returncode == 0, f"{out}\n{err}"
    return watch


def opened(folder: Path) -> Platform:
    return Platform(Settings(home=folder / "home"), load_streams(folder), lambda: pytest.fail("only to look"))


def rows(platform: Platform, name: str, table: str) -> pa.Table:
    return platform.lake.catalog.load_table(name, table).scan().to_arrow()


def reasons(raw: pa.Table) -> dict[str | None, int]:
    """How many records were rejected for each reason; None are those that were not."""
    return {each["values"]: each["counts"] for each in pc.value_counts(raw["rejection_reason"]).to_pylist()}


def judge(platform: Platform, names: Iterable[str]) -> None:
    """What came of the files of these streams is what should, and each healthy record is there once."""
    for name in names:
        raw, events = (rows(platform, name, table) for table in (RAW_EVENTS, DEDUPLICATED_EVENTS))
        assert reasons(raw) == POISONS[name].rejected | {None: len(HEALTHY) + POISONS[name].events}, name
        healthy = raw.filter(pc.equal(raw["source"], f"b.{POISONS[name].format}"))
        assert sorted(healthy["event_id"].to_pylist()) == [each["id"] for each in HEALTHY], name
        assert events.num_rows == len(HEALTHY) + POISONS[name].events, name


def test_each_becomes_rows_or_reasons_beside_others(tmp_path: Path, kafka_server: KafkaServer, thorough: bool) -> None:
    names = list(POISONS) if thorough else SOME
    topic = Topic(kafka_server, new_name())
    kafka_server.create_topic(topic.name, 1, **ANY_STAMP)
    for name in names:
        write_stream(tmp_path, name, POISONS[name])
    with schema_registry() as registry:
        write_topic_stream(tmp_path, topic, registry)
        watch = run(tmp_path)
    platform = opened(tmp_path)
    judge(platform, names)
    assert reasons(rows(platform, "topic", RAW_EVENTS)) == OF_TOPIC
    assert sorted(rows(platform, "topic", DEDUPLICATED_EVENTS)["event_id"].to_pylist()) == ["0", "1", "2"]
    assert watch.memory < MOST_MEMORY


@pytest.mark.thorough
@pytest.mark.parametrize("name", POISONS)
def test_each_is_done_within_a_minute_and_a_gigabyte(tmp_path: Path, name: str) -> None:
    write_stream(tmp_path, name, POISONS[name])
    watch = run(tmp_path)
    judge(opened(tmp_path), [name])
    assert watch.memory < MOST_MEMORY
    assert watch.seconds < MOST_SECONDS
