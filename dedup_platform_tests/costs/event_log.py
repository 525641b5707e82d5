"""What Spark's own event log says was read: Iceberg's scan metrics, and the input of tasks."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SQL = "org.apache.spark.sql.execution.ui.SparkListener"
FILES = "v2Custom_org.apache.iceberg.spark.source.metrics.ResultDataFiles"
BYTES = "v2Custom_org.apache.iceberg.spark.source.metrics.TotalDataFileSize"


@dataclass(frozen=True)
class Scans:
    """What was read between two moments: Iceberg's scans, the data files in them with their bytes, and task input."""

    scans: int
    files: int
    bytes: int
    records: int


def scans(log: Path, start: int, end: int) -> Scans:
    """What the application of this log read from `start` to `end` (milliseconds since 1970)."""
    events = [event for event in map(json.loads, log.read_text(encoding="utf-8").splitlines()) if event]
    executions = {
        event["executionId"]
        for event in events
        if event["Event"] == f"{SQL}SQLExecutionStart" and start <= event["time"] <= end
    }
    kinds: dict[int, str] = {}
    values: dict[int, int] = {}
    for event in events:
        if event.get("executionId") in executions:
            if plan := event.get("sparkPlanInfo"):
                kinds |= dict(_metrics(plan))
            # A scan that runs again tells again what it planned once.
            values |= dict(event.get("accumUpdates", ()))
    tasks = [event for event in events if event["Event"] == "SparkListenerTaskEnd"]
    return Scans(
        scans=sum(kinds.get(number) == FILES for number in values),
        files=_total(FILES, kinds, values),
        bytes=_total(BYTES, kinds, values),
        records=sum(_records(task) for task in tasks if start <= task["Task Info"]["Launch Time"] <= end),
    )


def _metrics(plan: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    for metric in plan["metrics"]:
        yield metric["accumulatorId"], metric["metricType"]
    for child in plan["children"]:
        yield from _metrics(child)


def _total(kind: str, kinds: Mapping[int, str], values: Mapping[int, int]) -> int:
    return sum(value for number, value in values.items() if kinds.get(number) == kind)


def _records(task: Mapping[str, Any]) -> int:
    return int(task["Task Metrics"]["Input Metrics"]["Records Read"])


def only_log(folder: Path) -> Path:
    """The log of the one application that wrote to this folder."""
    files: Iterable[Path] = (file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))
    [log] = files
    return log
