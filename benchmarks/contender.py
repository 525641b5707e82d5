"""What a contender is: one way to turn source files into deduplicated events and sessions."""

import shutil
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SESSION_COLUMNS = ("entity_id", "started_at", "ended_at", "event_count", "revenue", "pages")
TIMEOUT_MINUTES = 30


@dataclass(frozen=True)
class Task:
    """What a contender works on and with; the paths are absolute."""

    sources: str
    """Folder of the source files."""
    home: str
    """Folder of the contender's own."""
    memory: str
    """Heap of a Java process, `4g`."""
    buckets: int
    """Buckets of the platform's tables."""
    logs: str
    """Folder for logs and spilled data."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Output:
    """The data files that hold the result, and nothing but the result."""

    events: list[str]
    sessions: list[str]


class Contender(ABC):
    """Lives in a process of its own; the harness calls its methods by their names and times them."""

    def __init__(self, task: Task) -> None:
        self.task = task

    @property
    def out(self) -> Path:
        """Where results go, unless a catalog decides."""
        return Path(self.task.home) / "out"

    def prepare(self) -> None:  # noqa: B027  (most have nothing to prepare)
        """Start whatever stays warm. Not timed."""

    def clear(self) -> None:
        """Take away all results. Not timed; starts no engine."""
        shutil.rmtree(self.out, ignore_errors=True)

    @abstractmethod
    def rebuild(self) -> dict[str, Any]:
        """Build events and sessions from nothing; returns at least the counts `events` and `sessions`."""

    def update(self) -> dict[str, Any]:
        """Bring the results up to date with new source files. Who cannot do less does everything again."""
        self.clear()
        return self.rebuild()

    @abstractmethod
    def output(self) -> Output:
        """The files of the result as it is now. Not timed."""

    def bytes_read(self) -> int | None:
        """Bytes of table and source data read since the process began; None if nobody counts them."""
        return None


def read_by_this_process() -> int | None:
    """Bytes that this process has read from files; None where the system does not count them."""
    counters = Path("/proc/self/io")
    if not counters.exists():
        return None
    return int(counters.read_text(encoding="ascii").split("rchar: ")[1].split()[0])


def parquet_files(folder: Path) -> list[str]:
    """The Parquet files of a folder and the folders in it."""
    return sorted(str(file) for file in folder.rglob("*.parquet"))
