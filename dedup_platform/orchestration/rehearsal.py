"""Does in this process what Dagster's daemon does: evaluates a stream's sensors and executes the runs they ask for."""

from collections.abc import Mapping

import dagster as dg

from dedup_platform.orchestration import runs
from dedup_platform.orchestration.build import build_definitions
from dedup_platform.orchestration.embedded import LISTED, LISTENER, listening_logger, open_instance
from dedup_platform.orchestration.failures import as_raised
from dedup_platform.orchestration.progress import Listener
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream


def follow_sensors(settings: Settings, streams: Mapping[str, Stream], name: str, listener: Listener) -> int:
    """Evaluate both sensors of a stream once, as they are, and execute the runs that they ask for; returns how many."""
    definitions = build_definitions(settings, streams, loggers={LISTENER: listening_logger(listener)})
    executed = 0
    with open_instance(settings) as instance:
        for sensor in (f"{name}_new_input", f"{name}_late_partitions"):
            requests, skipped = evaluate(definitions, instance, sensor)
            listener.say(f"{sensor}: " + (skipped or "; ".join(map(_described, requests))))
            for request in requests:
                execute(definitions, instance, sensor, request)
            executed += len(requests)
    return executed


def evaluate(
    definitions: dg.Definitions, instance: dg.DagsterInstance, sensor: str
) -> tuple[list[dg.RunRequest], str | None]:
    """One tick of a sensor that remembers none before: the runs that it asks for, or why it asks for none."""
    requests, skipped, _ = tick(definitions, instance, sensor, None)
    return requests, skipped


def tick(
    definitions: dg.Definitions, instance: dg.DagsterInstance, sensor: str, cursor: str | None
) -> tuple[list[dg.RunRequest], str | None, str | None]:
    """One tick of a sensor after others: also what the next one is to remember. What it tells of assets is recorded."""
    with dg.build_sensor_context(
        instance=instance,
        definitions=definitions,
        sensor_name=sensor,
        resources=definitions.resources,
        cursor=cursor,
    ) as context:
        done = definitions.resolve_sensor_def(sensor).evaluate_tick(context)
    for event in done.asset_events:
        instance.report_runless_asset_event(event)
    return list(done.run_requests or ()), done.skip_message, done.cursor


def execute(
    definitions: dg.Definitions, instance: dg.DagsterInstance, sensor: str, request: dg.RunRequest
) -> dg.ExecuteInProcessResult:
    """The run that a sensor asked for, in this process."""
    job = definitions.resolve_job_def(request.job_name or str(definitions.resolve_sensor_def(sensor).job_name))
    with as_raised():
        return job.execute_in_process(
            instance=instance,
            asset_selection=request.asset_selection,
            tags={**request.tags, "dagster/run_key": str(request.run_key), "dagster/sensor_name": sensor, **LISTED},
            run_config={"loggers": {name: {} for name in definitions.loggers or ()}},
        )


def _described(request: dg.RunRequest) -> str:
    first, last = request.tags.get(runs.RANGE_START), request.tags.get(runs.RANGE_END)
    asked = f"{first} … {last}" if first else request.tags.get(runs.UNLISTED, "").replace("..", " … ")
    return f"asks for a run of {asked}" if asked else "asks for a run"
