"""An ingest in a run: whether it went well or not, the run and the asset say how the stream's ingest fares."""

from typing import Final

import dagster as dg

from dedup_platform import tables
from dedup_platform.lake.commits import Commit
from dedup_platform.orchestration import runs
from dedup_platform.orchestration.metadata import Context, asset_key
from dedup_platform.planning.circuit_breaker import Circuit
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream

LONGEST: Final = 5000
"""Letters of a reason that the UI should show."""


def ingest(context: Context, platform: Platform, stream: Stream) -> list[Commit]:
    """All that waits at the source; only a run that somebody waits for tries again itself what may pass."""
    is_awaited = context.run.tags.get(runs.POLICY) == runs.IGNORED
    try:
        return platform.ingest(stream.name, patient=is_awaited)
    except BaseException:
        # Whoever cancels a run interrupts it by what is no Exception.
        health = platform.source.health(stream.name)
        context.log_event(dg.AssetObservation(asset_key(stream, tables.RAW_EVENTS), metadata=_metadata(health)))
        raise
    finally:
        told = platform.source.health(stream.name)
        context.instance.add_run_tags(context.run.run_id, runs.health_tags(told))


def note_lost_ingests(instance: dg.DagsterInstance, platform: Platform, stream: Stream) -> None:
    """Ingests that ended before they could say how they fared failed, too."""
    for run in runs.lost_ingests(instance, stream):
        platform.source.note_lost_run(stream.name, f"run {run.run_id[:8]} ended before it could say why")
        instance.add_run_tags(run.run_id, runs.health_tags(platform.source.health(stream.name)))


def _metadata(health: Circuit) -> dict[str, str | int]:
    """How the ingest fares, for the UI."""
    return {
        "state": health.state,
        "reason": health.reason[:LONGEST],
        "attempts": health.attempts,
        "next_try": health.next_try.isoformat() if health.next_try else "",
    }
