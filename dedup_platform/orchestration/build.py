"""All definitions of a deployment, made from its stream files."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import chain
from pathlib import Path

import dagster as dg

from dedup_platform.errors import StreamFileError
from dedup_platform.orchestration.alerts import alert_sensors
from dedup_platform.orchestration.assets import stream_assets
from dedup_platform.orchestration.broken import broken_assets
from dedup_platform.orchestration.described import described, source_asset
from dedup_platform.orchestration.feeds import audit_asset, feed_assets, publish_job, unpublished_sensor
from dedup_platform.orchestration.health import health_checks
from dedup_platform.orchestration.jobs import ingest_job, repair_job, unlisted_job
from dedup_platform.orchestration.maintenance import maintenance_job, maintenance_schedule
from dedup_platform.orchestration.rejected import rejected_asset, rejected_check
from dedup_platform.orchestration.resources import platform_resource, spark_resource
from dedup_platform.orchestration.sensors import stream_sensors
from dedup_platform.orchestration.sinks import sink_assets, sink_jobs, sink_sensors
from dedup_platform.planning.moments import utc_now
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream


def build_definitions(
    settings: Settings,
    streams: Mapping[str, Stream],
    clock: Callable[[], datetime] = utc_now,
    loggers: Mapping[str, dg.LoggerDefinition] | None = None,
    broken: Mapping[Path, StreamFileError] | None = None,
) -> dg.Definitions:
    """Assets, jobs and sensors for each stream and one upkeep of all, over one platform and one Spark session a run.

    A broken stream file is an asset that says so.
    """
    assets = [each for stream in streams.values() for each in described(stream, settings, _assets(stream))]
    resources = {"spark": spark_resource(settings), "platform": platform_resource(settings, streams, clock)}
    repairs = {name: (repair_job(stream), unlisted_job(stream, resources)) for name, stream in streams.items()}
    upkeep = [maintenance_job(streams.values())] if streams else []
    return dg.Definitions(
        assets=[*assets, *broken_assets(broken or {})],
        asset_checks=[each for stream in streams.values() for each in (rejected_check(stream), health_checks(stream))],
        jobs=[
            *map(ingest_job, streams.values()),
            *map(publish_job, streams.values()),
            *chain.from_iterable(map(sink_jobs, streams.values())),
            *chain(*repairs.values()),
            *upkeep,
        ],
        schedules=[maintenance_schedule(job) for job in upkeep],
        sensors=[
            each
            for name, stream in streams.items()
            for each in (
                *stream_sensors(stream, repairs[name], settings),
                unpublished_sensor(stream, settings),
                *sink_sensors(stream, settings),
            )
        ]
        + alert_sensors(streams.values(), settings, clock),
        resources=resources,
        loggers=loggers,
        executor=dg.in_process_executor,
    )


def _assets(stream: Stream) -> Iterator[dg.AssetsDefinition | dg.AssetSpec]:
    yield source_asset(stream)
    yield from stream_assets(stream)
    yield from feed_assets(stream)
    yield audit_asset(stream)
    yield from sink_assets(stream)
    yield rejected_asset(stream)
