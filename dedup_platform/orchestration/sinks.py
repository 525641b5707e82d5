"""Sinks in Dagster's UI: each an asset of its own with a job and a sensor, so that none holds another back."""

from typing import Any

import dagster as dg

from dedup_platform import tables
from dedup_platform.changes import Published
from dedup_platform.orchestration import failures, runs
from dedup_platform.orchestration.feeds import ask
from dedup_platform.orchestration.health import without_health
from dedup_platform.orchestration.metadata import asset_key
from dedup_platform.orchestration.pools import pool
from dedup_platform.orchestration.publish_words import told
from dedup_platform.planning.circuit_breaker import sentence
from dedup_platform.platform import Platform
from dedup_platform.platform.claims import owner
from dedup_platform.settings import Settings
from dedup_platform.sinks import Position
from dedup_platform.stream import Stream

CHECK = "none_refused"
FEED, VERSION = "feed", "version"


def sink_assets(stream: Stream) -> list[dg.AssetsDefinition]:
    """The sinks of one stream."""
    return [_asset(stream, name) for name in stream.publish.sinks]


def sink_jobs(stream: Stream) -> list[Any]:  # Dagster does not publish the type
    """For each sink the job that brings it up to date."""
    return [
        dg.define_asset_job(
            runs.sink_job_name(stream, name),
            selection=without_health(dg.AssetSelection.assets(asset_key(stream, name)), stream),
            description=f"Write to {name} what changed in {stream.name}.{sink.follows} and is not there yet.",
            executor_def=dg.in_process_executor,
            tags={runs.STREAM: stream.name},
        )
        for name, sink in stream.publish.sinks.items()
    ]


def sink_sensors(stream: Stream, settings: Settings) -> list[dg.SensorDefinition]:
    """For each sink the sensor that starts its job."""
    return [_sensor(stream, name, settings) for name in stream.publish.sinks]


def _asset(stream: Stream, name: str) -> dg.AssetsDefinition:
    sink = stream.publish.sinks[name]

    @dg.asset(
        key=asset_key(stream, name),
        deps=[asset_key(stream, tables.FEED_OF[sink.follows])],
        description=f"A copy of {sink.follows}, kept equal to it by every version of its feed.",
        group_name=stream.name,
        kinds={sink.kind},
        pool=pool(stream, name),
        check_specs=[
            dg.AssetCheckSpec(CHECK, asset=asset_key(stream, name), description="The store has taken every row.")
        ],
    )
    def body(context: dg.AssetExecutionContext, platform: dg.ResourceParam[Platform]) -> dg.MaterializeResult:
        try:
            with failures.told(f"dedup-platform publish --stream {stream.name} --sink {name}"):
                done = platform.publish(stream.name, name)
        finally:
            health = platform.sinks.health(stream.name, name)
            context.instance.add_run_tags(context.run.run_id, runs.health_tags(health))
        context.log.info(told(done))
        at = platform.newest_version(stream.name, sink.follows)
        check = dg.AssetCheckResult(
            passed=not done.refused,
            check_name=CHECK,
            severity=dg.AssetCheckSeverity.WARN,
            metadata={"refused": done.refused},
        )
        return dg.MaterializeResult(metadata=_numbers(done, at), check_results=[check])

    return body


def _numbers(done: Published, at: Position | None) -> dict[str, int | str]:
    # What was left to another process says nothing of the sink.
    numbers: dict[str, int | str] = {} if done.left and not done.version else {VERSION: done.version, **done.sent}
    numbers |= {"suppressed": done.suppressed, "forced": done.forced, "refused": done.refused}
    return numbers | ({FEED: at.feed} if at else {})


def _sensor(stream: Stream, name: str, settings: Settings) -> dg.SensorDefinition:
    follows, job = stream.publish.sinks[name].follows, runs.sink_job_name(stream, name)

    @dg.sensor(
        name=f"{stream.name}_{name}_behind",
        job_name=job,
        minimum_interval_seconds=max(1, settings.sensor_interval - 1),
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Starts {job} when {name} has not got all that is published of {stream.name}.{follows}.",
    )
    def behind(
        context: dg.SensorEvaluationContext, platform: dg.ResourceParam[Platform]
    ) -> dg.RunRequest | dg.SkipReason:
        newest = platform.newest_version(stream.name, follows)
        has = _last_told(context.instance, stream, name)
        if newest is None or has == (newest.feed, newest.version):
            return dg.SkipReason(f"{name} has version {has[1]}" if has else "nothing is published yet")
        waits = f"version {newest.version} waits"
        runs.fail_dead_runs(context.instance)
        _note_lost_runs(context.instance, platform, stream, name)
        if held := platform.claims.in_work(stream.name, name):
            return dg.SkipReason(f"{waits}; {owner(held[0])} publishes what it finds")
        if not platform.sinks.is_due(stream.name, name):
            return dg.SkipReason(f"{waits}; {sentence(platform.sinks.health(stream.name, name), 'the sink')}")
        return ask(context.instance, stream, job, waits)

    return behind


def _note_lost_runs(instance: dg.DagsterInstance, platform: Platform, stream: Stream, name: str) -> None:
    """Runs that ended before they could say how the sink fared failed, too."""
    lost = runs.lost_runs(instance, runs.sink_job_name(stream, name))
    for run in (each for each in lost if each.status == dg.DagsterRunStatus.FAILURE):
        platform.sinks.note_lost_run(stream.name, name, f"run {run.run_id[:8]} ended before it could say why")
        instance.add_run_tags(run.run_id, runs.health_tags(platform.sinks.health(stream.name, name)))


def _last_told(instance: dg.DagsterInstance, stream: Stream, name: str) -> tuple[str, int] | None:
    """How far the sink had come when a run last wrote to it. The sink itself knows; this spares asking it."""
    event = instance.get_latest_materialization_event(asset_key(stream, name))
    found = event.asset_materialization.metadata if event and event.asset_materialization else {}
    if FEED not in found or VERSION not in found:
        return None
    return str(found[FEED].value), int(str(found[VERSION].value))
