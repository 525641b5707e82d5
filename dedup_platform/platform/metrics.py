"""The streams in numbers for Prometheus, in its text format (prometheus.io/docs/instrumenting/exposition_formats)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from dedup_platform.planning.health import Check
from dedup_platform.platform.status import Status

__all__ = ["CONTENT_TYPE", "Sample", "exposition", "samples"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "dedup_platform_"


@dataclass(frozen=True)
class Metric:
    """What a family of samples is: `gauge`, or `counter` of what never goes down, whose name ends in `_total`."""

    kind: str
    help: str


METRICS = {
    "status_known": Metric("gauge", "1 if the stream's status could be told, else 0; then nothing else is told of it."),
    "healthy": Metric("gauge", "1 if no check fails that somebody should act on, else 0."),
    "check_passed": Metric("gauge", "1 if a check of the stream's health passes, else 0."),
    "ingest_failures_in_a_row": Metric("gauge", "Tries of the ingest that failed since the last one that did not."),
    "records_read_total": Metric("counter", "Records read from the source."),
    "rejected_records": Metric("gauge", "Records that could not become events."),
    "waiting_items": Metric("gauge", "Files, or ranges of offsets, that wait at the source."),
    "waiting_since_timestamp_seconds": Metric("gauge", "When the first of what waits came."),
    "watermark_timestamp_seconds": Metric("gauge", "The latest arrival of any event."),
    "table_rows": Metric("gauge", "Rows of a table."),
    "table_bytes": Metric("gauge", "Bytes of a table's data files."),
    "table_files": Metric("gauge", "Data files of a table."),
    "stale_cells": Metric("gauge", "Cells of a table that are to be rebuilt."),
    "oldest_stale_cell_seconds": Metric("gauge", "How long the longest-waiting stale cell of a table has waited."),
    "unsettled_partitions": Metric("gauge", "Partitions that may still change."),
    "feed_version": Metric("gauge", "The last version that a feed of changes has published."),
    "sink_versions_behind": Metric("gauge", "Versions of its feed that a sink has not got."),
    "sink_refused_rows": Metric("gauge", "Rows that the store of a sink has not taken."),
}
"""Name, without the prefix, -> what it is."""


class Sample(NamedTuple):
    """One number of a metric, for these labels."""

    metric: str
    labels: Mapping[str, str]
    value: float


def samples(status: Status, checks: Iterable[Check]) -> Iterator[Sample]:
    """A stream's numbers; what is unknown is left out."""
    checks = list(checks)

    def of(metric: str, value: float | datetime | None, **labels: str) -> Iterator[Sample]:
        if value is not None:
            number = value.timestamp() if isinstance(value, datetime) else float(value)
            yield Sample(metric, {"stream": status.stream, **labels}, number)

    yield from of("status_known", 1)
    yield from of("healthy", not any(each.is_unhealthy for each in checks))
    for check in checks:
        yield from of("check_passed", check.is_passed, check=check.name, **({"sink": check.sink} if check.sink else {}))
    yield from of("ingest_failures_in_a_row", status.health.attempts)
    yield from of("records_read_total", status.records_read)
    yield from of("rejected_records", status.rejected)
    if status.waiting:
        yield from of("waiting_items", len(status.waiting.items))
        yield from of("waiting_since_timestamp_seconds", status.waiting.since)
    yield from of("watermark_timestamp_seconds", status.watermark)
    for table in status.tables:
        yield from of("table_rows", table.rows, table=table.table)
        yield from of("table_bytes", table.bytes, table=table.table)
        yield from of("table_files", table.files, table=table.table)
        yield from of("stale_cells", table.stale_cells, table=table.table)
        oldest = table.oldest_stale
        waiting = oldest.waiting.total_seconds() if oldest else 0
        yield from of("oldest_stale_cell_seconds", waiting, table=table.table)
    yield from of("unsettled_partitions", sum(state != "settled" for state in status.partitions.values()))
    for feed in status.feeds:
        yield from of("feed_version", feed.version, feed=feed.feed)
    for sink in status.sinks:
        yield from of("sink_versions_behind", sink.behind, sink=sink.sink)
        yield from of("sink_refused_rows", sink.refused, sink=sink.sink)


def exposition(found: Iterable[Sample]) -> str:
    """Samples in the text format: those of one metric together, under what it is."""
    by_metric: dict[str, list[Sample]] = {}
    for sample in found:
        by_metric.setdefault(sample.metric, []).append(sample)
    lines = []
    for name, metric in METRICS.items():
        if name in by_metric:
            lines += [f"# HELP {PREFIX}{name} {metric.help}", f"# TYPE {PREFIX}{name} {metric.kind}"]
            lines += [_line(sample) for sample in by_metric[name]]
    return "".join(f"{line}\n" for line in lines)


def _line(sample: Sample) -> str:
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
    return f"{PREFIX}{sample.metric}{{{labels}}} {sample.value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
