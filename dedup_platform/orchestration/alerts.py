"""The sensor that posts a stream's health to a webhook: once for each change, also when all is well again.

It tells what the checks tell in the UI, so nobody is woken by what cannot be seen there.
"""

import json
import time
from collections.abc import Collection, Mapping

import dagster as dg

from dedup_platform.errors import UnreachableError
from dedup_platform.orchestration.health import check_keys, latest
from dedup_platform.planning.moments import Clock
from dedup_platform.platform.alerts import Alert, Failed, post
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream

NAME = "health_alerts"
SECONDS_OF_A_TICK = 30.0
"""Dagster gives a tick a minute; what was not posted in this time is posted by the next one."""


def alert_sensors(streams: Collection[Stream], settings: Settings, clock: Clock) -> list[dg.SensorDefinition]:
    """The sensor, where there are streams and a webhook to post to."""
    if not streams or settings.alert_webhook is None:
        return []
    address = settings.alert_webhook.get_secret_value()

    @dg.sensor(
        name=NAME,
        minimum_interval_seconds=max(1, settings.sensor_interval - 1),
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Posts to a webhook when a stream becomes unhealthy, when that changes, and when it is well again.",
    )
    def health_alerts(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        told: dict[str, list[str]] = json.loads(context.cursor or "{}")
        posted, trouble, begun = list[str](), "", time.monotonic()
        found = latest(context.instance, [key for stream in streams for key in check_keys(stream)])
        for stream in streams:
            failed = _failed(stream, found, told.get(stream.name, []))
            if failed.keys() == {*told.get(stream.name, [])}:
                continue
            if time.monotonic() - begun > SECONDS_OF_A_TICK:
                trouble = "the rest is for the next tick"
                break
            try:
                post(address, Alert(stream.name, clock(), [*failed.values()]), settings.alert_format)
            except UnreachableError as error:
                trouble = f"{error} The next tick tries again"
                break
            told[stream.name] = sorted(failed)
            posted.append(f"{stream.name} is {'unhealthy' if failed else 'healthy'}")
        # Else a stream of this name that comes back later would begin with what was told of another one.
        names = {stream.name for stream in streams}
        cursor = json.dumps({name: checks for name, checks in told.items() if name in names and checks})
        words = [f"posted: {', '.join(posted)}" if posted else "nothing to post", *([trouble] if trouble else [])]
        return dg.SensorResult(skip_reason="; ".join(words), cursor=cursor)

    return [health_alerts]


def _failed(
    stream: Stream, found: Mapping[dg.AssetCheckKey, dg.AssetCheckEvaluation], told: Collection[str]
) -> dict[str, Failed]:
    """The checks that fail, by their keys; of one that nobody has evaluated since its asset changed, what was told."""
    failed = dict[str, Failed]()
    for key in check_keys(stream):
        name, evaluation = key.to_user_string(), found.get(key)
        if evaluation is None:
            if name in told:
                failed[name] = Failed(key.asset_key.to_user_string(), key.name, "it failed when it was last told", "")
        elif not evaluation.passed and evaluation.severity == dg.AssetCheckSeverity.ERROR:
            command = evaluation.metadata.get("command")
            failed[name] = Failed(
                asset=key.asset_key.to_user_string(),
                check=key.name,
                what=evaluation.description or "",
                command=str(command.value) if command else "",
            )
    return failed
