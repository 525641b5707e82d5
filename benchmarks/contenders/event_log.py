"""What the tasks of a Spark application read, from the log that Spark keeps while it runs."""

import json
from pathlib import Path


def recording(logs: Path) -> dict[str, str]:
    """Spark properties that make the session tell what it reads, and spill beside its log."""
    events, spill = logs / "spark-events", logs / "spill"
    for folder in (events, spill):
        folder.mkdir(parents=True, exist_ok=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.local.dir": str(spill),
    }


class EventLog:
    """Sums what the tasks of an application say they read, from the log that Spark keeps while it runs."""

    def __init__(self, logs: Path, application: str) -> None:
        self._file = logs / "spark-events" / f"{application}.inprogress"
        self._place = 0
        self._sum = 0

    def bytes_read(self) -> int:
        """Bytes that tasks read from files so far; shuffled data is not in it."""
        with self._file.open("rb") as log:
            log.seek(self._place)
            for line in log:
                if line.endswith(b"\n"):
                    self._place += len(line)
                    self._sum += _input_bytes(line)
        return self._sum


def _input_bytes(line: bytes) -> int:
    if b'"Event":"SparkListenerTaskEnd"' not in line[:60]:
        return 0
    metrics = json.loads(line).get("Task Metrics") or {}
    return int(metrics.get("Input Metrics", {}).get("Bytes Read", 0))
