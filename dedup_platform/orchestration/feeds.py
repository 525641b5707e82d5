"""Feeds, and the aliases made of one, in Dagster's UI: assets, a job that brings them up to date, and its sensor.

A run publishes what it changed itself, so the sensor finds only what others changed, or what a run left behind that
died. It asks what is so now, as all sensors do.
"""

from datetime import datetime
from itertools import takewhile
from typing import Any

import dagster as dg

from dedup_platform import tables
from dedup_platform.comments import TABLE_COMMENTS
from dedup_platform.orchestration import runs
from dedup_platform.orchestration.failures import told
from dedup_platform.orchestration.metadata import asset_key, column_schema
from dedup_platform.orchestration.pools import pool
from dedup_platform.orchestration.publish import counted, numbers
from dedup_platform.orchestration.publish_words import saved, sentence
from dedup_platform.planning.triage import paused_until
from dedup_platform.platform import Platform
from dedup_platform.platform.claims import owner
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream


def feed_assets(stream: Stream) -> list[dg.AssetsDefinition]:
    """The feeds of one stream, and its aliases. Each holds all partitions: a version may change several."""
    return [_asset(stream, table) for table in tables.followers_of(stream)]


def audit_asset(stream: Stream) -> dg.AssetsDefinition:
    """What the commits of one stream came to. Runs count their own when they have written the last table."""

    @dg.asset(
        key=asset_key(stream, tables.AUDIT),
        deps=[asset_key(stream, table) for table in (*tables.all_of(stream), *tables.feeds_of(stream).values())],
        description=TABLE_COMMENTS[tables.AUDIT],
        metadata=column_schema(stream, tables.AUDIT),
        group_name=stream.name,
        kinds={"iceberg"},
        pool=pool(stream, tables.AUDIT),
    )
    def body(context: dg.AssetExecutionContext, platform: dg.ResourceParam[Platform]) -> dg.MaterializeResult:
        with told(f"dedup-platform publish --stream {stream.name}"):
            done = platform.audit(stream.name)
        context.log.info(saved(done.counts))
        return dg.MaterializeResult(metadata=counted(done))

    return body


def publish_job(stream: Stream) -> Any:  # Dagster does not publish the type
    """Bring all feeds of a stream up to the newest commits."""
    feeds = tables.followers_of(stream).values()
    return dg.define_asset_job(
        runs.publish_job_name(stream),
        selection=dg.AssetSelection.assets(*(asset_key(stream, table) for table in (*feeds, tables.AUDIT))),
        description=f"Publish what commits of {stream.name} changed and no version tells yet.",
        executor_def=dg.in_process_executor,
        tags={runs.STREAM: stream.name},
    )


def unpublished_sensor(stream: Stream, settings: Settings) -> dg.SensorDefinition:
    """Starts the job when a table has commits that no version tells."""

    @dg.sensor(
        name=f"{stream.name}_unpublished_changes",
        job_name=runs.publish_job_name(stream),
        minimum_interval_seconds=max(1, settings.sensor_interval - 1),
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Starts {runs.publish_job_name(stream)} when a feed of {stream.name} is behind its table.",
    )
    def unpublished_changes(
        context: dg.SensorEvaluationContext, platform: dg.ResourceParam[Platform]
    ) -> dg.RunRequest | dg.SkipReason:
        if run_id := runs.run_in_work(context.instance, runs.ingest_job_name(stream)):
            return dg.SkipReason(f"run {run_id[:8]} publishes what it finds")
        behind = platform.unpublished(stream.name)
        if not behind:
            return dg.SkipReason("every commit is published")
        waits = f"{', '.join(behind)} wait"
        held = [platform.claims.in_work(stream.name, tables.FOLLOWER_OF[table]) for table in behind]
        if all(held):
            return dg.SkipReason(f"{waits}; {owner(held[0][0])} publishes what it finds")
        return request(context.instance, stream, runs.publish_job_name(stream), waits, platform.clock())

    return unpublished_changes


def request(
    instance: dg.DagsterInstance, stream: Stream, job: str, waits: str, now: datetime
) -> dg.RunRequest | dg.SkipReason:
    """Ask for a run of a job that publishes, unless one is at work, or the last ones failed a short while ago."""
    runs.fail_dead_runs(instance)
    asked = ask(instance, stream, job, waits)
    if isinstance(asked, dg.SkipReason):
        return asked
    failed = list(takewhile(lambda run: run.status == dg.DagsterRunStatus.FAILURE, runs.ended(instance, job)))
    if due := paused_until([run.at for run in failed], now):
        return dg.SkipReason(
            f"{waits}; {len(failed)} runs in a row failed, the next one starts after {due:%Y-%m-%d %H:%M:%S} UTC"
        )
    return asked


def ask(instance: dg.DagsterInstance, stream: Stream, job: str, waits: str) -> dg.RunRequest | dg.SkipReason:
    """Ask for a run of a job that publishes, unless one is at work. Those that are dead have failed already."""
    if run_id := runs.run_in_work(instance, job):
        return dg.SkipReason(f"{waits}; run {run_id[:8]} publishes what it finds")
    ended = runs.ended(instance, job, most=1)
    return dg.RunRequest(run_key=f"{stream.name}/{job}/after {ended[0].run_id if ended else 'none'}")


def _asset(stream: Stream, table: str) -> dg.AssetsDefinition:
    feed = tables.FOLLOWER_OF[table]

    @dg.asset(
        key=asset_key(stream, feed),
        deps=[asset_key(stream, table)],
        description=TABLE_COMMENTS[feed],
        metadata=column_schema(stream, feed),
        group_name=stream.name,
        kinds={"iceberg"},
        pool=pool(stream, feed),
    )
    def body(context: dg.AssetExecutionContext, platform: dg.ResourceParam[Platform]) -> dg.MaterializeResult:
        with told(f"dedup-platform publish --stream {stream.name}"):
            done = platform.publish_changes(stream.name, [table])
        for each in done:
            context.log.info(sentence(each))
        return dg.MaterializeResult(metadata=numbers(done[0]) if done else {})

    return body
