"""Spark and the platform as Dagster resources: cheap to make, and Spark starts only when a step asks for it."""

from collections.abc import Callable, Mapping
from datetime import datetime

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from dedup_platform.orchestration import runs
from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.spark.session import open_session, public_conf, use_this_python
from dedup_platform.stream import Stream


def spark_resource(settings: Settings) -> dg.ResourceDefinition:
    """One Spark session for a run (steps run in one process); a sensor that holds it never starts it."""

    @dg.resource(description="One lazy Spark session for each run, set up by the deployment's settings.")
    def spark() -> LazyPySparkResource:
        settings.make_folders()
        use_this_python(settings)
        # Made here and not configured, because the UI shows a resource's configuration and settings may hold secrets.
        return LazyPySparkResource(spark_config=public_conf(settings))

    return spark


def platform_resource(
    settings: Settings, streams: Mapping[str, Stream], clock: Callable[[], datetime]
) -> dg.ResourceDefinition:
    """The platform over these streams. In a run it also notes which process executes it, see `fail_dead_runs`."""

    @dg.resource(required_resource_keys={"spark"}, description="The tables of all streams of this deployment.")
    def platform(context: dg.InitResourceContext) -> Platform:
        if context.run and context.instance:
            context.instance.add_run_tags(context.run.run_id, runs.this_process())
        spark = context.resources.spark
        return Platform(
            settings, dict(streams), spark=lambda: open_session(settings, lambda: spark.spark_session), clock=clock
        )

    return platform
