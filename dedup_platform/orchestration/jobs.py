"""A stream's jobs: `<stream>_ingest` pulls what waits and repairs what it touched, `<stream>_repair` repairs.

`<stream>_repair_unlisted` repairs what `<stream>_repair` cannot be asked for.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from dedup_platform import tables
from dedup_platform.orchestration import intake, runs
from dedup_platform.orchestration.failures import told
from dedup_platform.orchestration.health import without_health
from dedup_platform.orchestration.metadata import asset_key, report
from dedup_platform.orchestration.partitions import listing
from dedup_platform.orchestration.points import make_point
from dedup_platform.orchestration.pools import pool
from dedup_platform.orchestration.publish import publish
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream


def repair_job(stream: Stream) -> Any:  # Dagster does not publish the type
    """The derived tables, over a range of partitions that the run's tags name."""
    derived = (tables.DUPLICATE_EVENTS, *tables.derived(stream))
    return dg.define_asset_job(
        runs.repair_job_name(stream),
        selection=without_health(dg.AssetSelection.assets(*(asset_key(stream, table) for table in derived)), stream),
        description=f"Rebuild the stale cells of {stream.name} in a range of partitions.",
        executor_def=dg.in_process_executor,
    )


def unlisted_job(stream: Stream, resources: Mapping[str, dg.ResourceDefinition]) -> dg.JobDefinition:
    """The derived tables, over partitions before the start of the stream's, or so far ahead that some clock was wrong.

    A run of assets can only be asked for partitions that Dagster knows, so these are steps that are none. Where a
    sensor has several jobs, each must hold its `resources` itself.
    """
    first, *others = (_repair_unlisted(stream, table) for table in tables.derived(stream))

    @dg.job(
        name=runs.unlisted_job_name(stream),
        description=f"Rebuild the stale cells of {stream.name} in partitions that Dagster has no key for.",
        executor_def=dg.in_process_executor,
        resource_defs=resources,
        tags={runs.STREAM: stream.name},
    )
    def job() -> None:
        done = first()
        for repair in others:
            done = repair(done)

    return job


def ingest_job(stream: Stream) -> dg.JobDefinition:
    """Ingest all that waits, then repair what that touched, in one run.

    Which partitions it touches is known only once it has read them, so these are steps that report materializations,
    and not assets, whose partitions must be known before.
    """
    repairs = [_repair(stream, table) for table in tables.derived(stream)]
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
        with told(runs.command(stream)):
            report(context, platform, stream, tables.RAW_EVENTS, intake.ingest(context, platform, stream))
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
        with told(runs.command(stream)):
            if context.run.tags.get(runs.POLICY) == runs.IGNORED:
                report(context, platform, stream, table, [platform.recompute_stale(stream.name, table)])
            elif partitions := _ready(context, platform, stream, table):
                report(context, platform, stream, table, [platform.recompute_stale(stream.name, table, partitions)])
            publish(context, platform, stream, table)
            make_point(context, platform, stream, table)

    return repair


def _repair_unlisted(stream: Stream, table: str) -> dg.OpDefinition:
    @dg.op(
        name=f"{stream.name}__repair_unlisted_{table}",
        pool=pool(stream, table),
        ins={} if table == tables.DERIVED[0] else {"after": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
    )
    def repair(context: dg.OpExecutionContext, platform: dg.ResourceParam[Platform]) -> None:
        asked = context.run.tags.get(runs.TABLE, table)
        if tables.DERIVED.index(table) < tables.DERIVED.index(asked):
            return
        with told(runs.command(stream)):
            partitions = _unlisted(context, platform, stream, table)
            report(context, platform, stream, table, [platform.recompute_stale(stream.name, table, partitions)])
            publish(context, platform, stream, table)
            make_point(context, platform, stream, table)

    return repair


def _unlisted(context: dg.OpExecutionContext, platform: Platform, stream: Stream, table: str) -> set[int]:
    """The partitions that the run was asked for, all if it was asked for none, and what it rewrote beside them."""
    asked = runs.partitions_of(context.run, stream) or _every_unlisted(platform, stream, table)
    return {*asked, *runs.reported(context.instance, context.run.run_id, stream, tables.INPUT_OF[table])}


def _every_unlisted(platform: Platform, stream: Stream, table: str) -> set[int]:
    """The stale partitions that Dagster has no key for, nor will have soon."""
    listed = listing(stream)
    stale = (each.cell.partition for plan in platform.plan(stream.name) if plan.table == table for each in plan.stale)
    return {partition for partition in stale if not listed.is_awaited(partition)}


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
