"""What commands give to programs, `--json`: plain values, with partitions as keys and snapshot ids as text."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from dedup_platform.cli.console import told_to_its_end

if TYPE_CHECKING:
    from dedup_platform.lake.points import Point
    from dedup_platform.planning.circuit_breaker import Circuit
    from dedup_platform.planning.claims import Claim
    from dedup_platform.planning.health import Check
    from dedup_platform.planning.planner import TablePlan
    from dedup_platform.platform import SinkStatus, Status
    from dedup_platform.platform.figures import PartitionFigures
    from dedup_platform.replay.rejected import Outcome, ReasonCount, RejectedRecord
    from dedup_platform.stream import Stream


def print_json(value: Any) -> None:
    """One JSON document on standard output; times and durations (in seconds) are plain values."""
    with told_to_its_end():
        json.dump(value, sys.stdout, default=_plain, indent=2)
        sys.stdout.write("\n")


def plan_value(stream: Stream, plan: TablePlan) -> dict[str, Any]:
    """A plan for programs, with partitions as keys."""
    key = stream.partitions.key
    stale = []
    for each in plan.stale:
        value = each._asdict()
        cell = value.pop("cell")
        stale.append(value | {"partition": key(cell.partition), "bucket": cell.bucket})
    runs = [asdict(run) | {"partitions": [key(partition) for partition in run.partitions]} for run in plan.runs]
    return {"stream": plan.stream, "table": plan.table, "stale": stale, "runs": runs}


def status_value(
    stream: Stream, status: Status, checks: Sequence[Check], figures: Mapping[int, PartitionFigures]
) -> dict[str, Any]:
    """A stream's status for programs, with its checks and the figures of its partitions."""
    from dedup_platform.cli.file_changes import changes_value

    return {
        "stream": status.stream,
        "healthy": not any(each.is_unhealthy for each in checks),
        "checks": [_check(each) for each in checks],
        "files_read": status.files_read,
        "records_read": status.records_read,
        "rejected": status.rejected,
        "waiting": list(status.waiting.items) if status.waiting else None,
        "waiting_since": status.waiting.since.isoformat() if status.waiting and status.waiting.since else None,
        "left_alone": [{"path": path, "reason": reason} for path, reason in status.waiting.reasons]
        if status.waiting
        else None,
        "skipped": list(status.skipped),
        "trouble": status.trouble,
        "stream_file": changes_value(stream, status.changes),
        "point": _point(status.point),
        "watermark": status.watermark.isoformat() if status.watermark else None,
        "partitions": dict(status.partitions),
        "figures": {stream.partitions.key(partition): each.plain() for partition, each in figures.items()},
        "health": _health(status.health),
        "switched_off": list(status.switched_off),
        "claims": [
            {"target": target, **_claim(stream, claim)} for target, held in status.claims.items() for claim in held
        ],
        # As text: a snapshot id has more digits than the numbers of most readers of JSON.
        "feeds": [asdict(feed) for feed in status.feeds],
        "sinks": [_sink(sink) for sink in status.sinks],
        "audit": dict(status.audit),
        "tables": {table.table: asdict(table) | {"snapshot_id": str(table.snapshot_id)} for table in status.tables},
    }


def rejected_value(reasons: Sequence[ReasonCount], records: Sequence[RejectedRecord]) -> dict[str, Any]:
    """Rejected records for programs; of each payload the beginning."""
    return {
        "reasons": [asdict(each) for each in reasons],
        "records": [_listed(each) for each in records],
    }


def record_value(record: RejectedRecord) -> dict[str, Any]:
    """A rejected record for programs: `payload` is text, or hexadecimal as `payload_encoding` says."""
    payload, encoding = text_of(record.payload)
    return asdict(record) | {"payload": payload, "payload_encoding": encoding}


def text_of(payload: bytes | None) -> tuple[str | None, str | None]:
    """A payload as text and how that stands for its bytes: `utf-8`, `hex`, or None for none."""
    if payload is None:
        return None, None
    try:
        return payload.decode(), "utf-8"
    except UnicodeDecodeError:
        return payload.hex(), "hex"


def outcome_value(stream: Stream, outcome: Outcome) -> dict[str, Any]:
    """What a replay, a drop or a redecode did, for programs; `snapshot_id` is null if nothing changed."""
    partitions = sorted({stream.partitions.key(cell.partition) for cell in outcome.cells})
    snapshot_id = None if outcome.snapshot_id is None else str(outcome.snapshot_id)
    counts = {"accepted": outcome.accepted, "rejected": outcome.rejected, "altered": outcome.altered}
    return {"snapshot_id": snapshot_id, **counts, "cells": len(outcome.cells), "partitions": partitions}


def _check(check: Check) -> dict[str, Any]:
    return {
        "check": check.name,
        "sink": check.sink,
        "passed": check.is_passed,
        "unhealthy": check.is_unhealthy,
        "what": check.what,
        "command": check.command or None,
    }


def _sink(sink: SinkStatus) -> dict[str, Any]:
    moved_at = sink.moved_at.isoformat() if sink.moved_at else None
    return asdict(sink) | {"moved_at": moved_at, "health": _health(sink.health)}


def _health(health: Circuit) -> dict[str, Any]:
    times = {"since": health.since, "next_try": health.next_try}
    return {
        "state": health.state,
        "reason": health.reason,
        "attempts": health.attempts,
        **{name: time.isoformat() if time else None for name, time in times.items()},
    }


def _point(point: Point | None) -> dict[str, Any] | None:
    if point is None:
        return None
    snapshots = {table: str(snapshot_id) for table, snapshot_id in point.snapshots.items()}
    return {"name": point.name, "made_at": point.made_at.isoformat(), "snapshots": snapshots}


def _claim(stream: Stream, claim: Claim) -> dict[str, Any]:
    from dedup_platform.platform.claims import named

    times = {"since": claim.since, "expires": claim.expires, "ended": claim.ended}
    return {
        # As text: it has more digits than the numbers of most readers of JSON.
        "token": str(claim.token),
        "state": claim.state,
        "owner": claim.owner,
        "partitions": named(stream, claim.partitions),
        "wanted_again": named(stream, claim.wanted),
        **{name: time.isoformat() if time else None for name, time in times.items()},
    }


def _listed(record: RejectedRecord) -> dict[str, Any]:
    value = asdict(record) | {"payload_begins": beginning(record)}
    del value["payload"], value["payload_context"]
    return value


def beginning(record: RejectedRecord) -> str | None:
    """What is kept of a rejected record's payload, as text; None for none."""
    # The beginning of a text may end amid a character.
    return None if record.payload is None else record.payload.decode("utf-8", "backslashreplace")


def _plain(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
