"""A stream's two jobs: `<stream>_ingest` pulls what waits and repairs what it touched, `<stream>_repair` repairs."""

from typing import Any

import dagster as dg

from dedup_platform import tables
from dedup_platform.orchestration import runs
from dedup_platform.orchestration.assets import pool
from dedup_platform.orchestration.intake import take_in
from dedup_platform.orchestration.metadata import asset_key, report
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream


def repair_job(stream: Stream) -> Any:  # Dagster does not publish the type
    """The derived tables, over a range of partitions that the run's tags name."""
    derived = (tables.DUPLICATE_EVENTS, *tables.DERIVED)
    return dg.define_asset_job(
        runs.repair_job_name(stream),
        selection=dg.AssetSelection.assets(*(asset_key(stream, table) for table in derived)),
        description=f"Rebuild the stale cells of {stream.name} in a range of partitions.",
        executor_def=dg.in_process_executor,
    )


def ingest_job(stream: Stream) -> dg.JobDefinition:
    """Ingest all that waits, then repair what that touched, in one run.

    Which partitions it touches is known only once it has read them, so these are steps that report materializations,
    and not assets, whose partitions must be known before.
    """
    repairs = [_repair(stream, table) for table in tables.DERIVED]
    ingest = _ingest(stream)

    @dg.job(
        name=runs.ingest_job_name(stream),
        description=f"Pull all that waits at the source of {stream.name} and repair what it touched.",
        executor_def=dg.in_process_executor,
        tags={runs.STREAM: stream.name},
    )
    def job() -> None:
        done = ingest()
        for repair in repairs:
            done = repair(done)

    return job


def _ingest(stream: Stream) -> dg.OpDefinition:
    @dg.op(name=f"{stream.name}__ingest", pool=pool(stream, tables.RAW_EVENTS), out=dg.Out(dg.Nothing))
    def ingest(context: dg.OpExecutionContext, platform: dg.ResourceParam[Platform]) -> None:
        report(context, platform, stream, tables.RAW_EVENTS, take_in(context, platform, stream))
        context.instance.add_run_tags(context.run.run_id, {runs.INGESTED: "true"})

    return ingest


def _repair(stream: Stream, table: str) -> dg.OpDefinition:
    @dg.op(
        name=f"{stream.name}__repair_{table}",
        pool=pool(stream, table),
        ins={"after": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
    )
    def repair(context: dg.OpExecutionContext, platform: dg.ResourceParam[Platform]) -> None:
        if context.run.tags.get(runs.POLICY) == runs.IGNORED:
            report(context, platform, stream, table, [platform.recompute_stale(stream.name, table)])
        elif partitions := _ready(context, platform, stream, table):
            report(context, platform, stream, table, [platform.recompute_stale(stream.name, table, partitions)])

    return repair


def _ready(context: dg.OpExecutionContext, platform: Platform, stream: Stream, table: str) -> set[int]:
    """The partitions that this run touched and may repair now.

    Whatever this run wrote itself is passed on at once. What it ingested is held back while the stream's policy says to
    wait, and where earlier repairs failed: those partitions are the late_partitions sensor's, which tries them apart.
    """
    touched = runs.reported(context.instance, context.run.run_id, stream, tables.INPUT_OF[table])
    if tables.INPUT_OF[table] != tables.RAW_EVENTS:
        return touched
    history = runs.history(context.instance, stream, table)
    return {
        partition
        for plan in platform.plan(stream.name)
        if plan.table == table
        for planned in plan.runs
        for partition in planned.partitions
        if partition in touched and not history.tries(partition, planned.watermark)
    }
