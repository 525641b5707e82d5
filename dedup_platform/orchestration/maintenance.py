"""The deployment's job `maintenance`, and its schedule: looks after the tables of all streams, one step for a pool."""

from collections.abc import Iterable
from dataclasses import asdict

import dagster as dg

from dedup_platform import tables
from dedup_platform.maintenance.upkeep import Upkeep
from dedup_platform.orchestration.failures import told
from dedup_platform.orchestration.metadata import asset_key, written_with
from dedup_platform.orchestration.pools import pool
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream

MAINTENANCE = "maintenance"
NIGHTLY = "0 3 * * *"


def maintenance_job(streams: Iterable[Stream]) -> dg.JobDefinition:
    """Compaction, expiry and removal of orphans, in the pools of the tables' writers.

    A stream's tables come one after the other, downstream first; another stream's trouble does not stop them.
    """
    steps = [_steps(stream) for stream in streams]

    @dg.job(
        name=MAINTENANCE,
        description="Compact small files, expire old snapshots and remove orphaned files. No row changes.",
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        for first, *others in steps:
            done = first()
            for step in others:
                done = step(done)

    return job


def maintenance_schedule(job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Nightly. It is off until somebody switches it on: it deletes history."""
    return dg.ScheduleDefinition(
        name=f"{MAINTENANCE}_nightly",
        job=job,
        cron_schedule=NIGHTLY,
        execution_timezone="UTC",
        description=f"Starts {MAINTENANCE} at 3 o'clock UTC.",
    )


def _steps(stream: Stream) -> list[dg.OpDefinition]:
    downstream_first = (*reversed(tables.derived(stream)), tables.RAW_EVENTS)
    return [_step(stream, table, is_first=table == downstream_first[0]) for table in downstream_first]


def _step(stream: Stream, table: str, is_first: bool) -> dg.OpDefinition:
    @dg.op(
        name=f"{stream.name}__maintain_{table}",
        pool=pool(stream, table),
        ins={} if is_first else {"after": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
    )
    def maintain(context: dg.OpExecutionContext, platform: dg.ResourceParam[Platform]) -> None:
        with told(f"dedup-platform maintain --stream {stream.name}"):
            done = platform.maintain(stream.name, written_with(table))
        for upkeep in done:
            context.log.info(sentence(upkeep))
            context.log_event(dg.AssetObservation(asset_key(stream, upkeep.table), metadata=_numbers(upkeep)))

    return maintain


def sentence(upkeep: Upkeep) -> str:
    """What was done to a table, in words: `sessions: 40 → 8 files, 12 snapshots expired, 0 orphans removed, 2 s`."""
    files = f"{upkeep.before.files:,} → {upkeep.after.files:,} files"
    expired = f"{upkeep.snapshots_expired:,} snapshots expired, {upkeep.orphans_removed:,} orphans removed"
    waits = f"; {upkeep.waits}" if upkeep.waits else ""
    return f"{upkeep.table}: {files}, {expired}, {upkeep.seconds:.1f} s{waits}"


def _numbers(upkeep: Upkeep) -> dict[str, float]:
    return {
        **asdict(upkeep.after),
        "files_before": upkeep.before.files,
        "files_compacted": upkeep.files_compacted,
        "snapshots_expired": upkeep.snapshots_expired,
        "orphans_removed": upkeep.orphans_removed,
        "bytes_freed": upkeep.before.bytes - upkeep.after.bytes,
        "seconds": round(upkeep.seconds, 3),
    }
