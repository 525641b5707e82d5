"""Which runs made commits, as far as Dagster remembers what they told of some partitions."""

from collections.abc import Collection, Iterator, Mapping

import dagster as dg

from dedup_platform.errors import DedupPlatformError
from dedup_platform.orchestration.embedded import open_instance
from dedup_platform.orchestration.metadata import asset_key
from dedup_platform.orchestration.runs import SNAPSHOT_ID
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream

MOST = 200
"""So many materializations of a table's partitions are looked at, the newest ones."""


def runs_behind(settings: Settings, stream: Stream, partitions: Mapping[str, Collection[int]]) -> dict[int, str]:
    """Snapshot -> the run that told of its commit, for some partitions of some tables; empty where there is no Dagster.

    Its records may be deleted, or be out of reach: then nothing is known, and that is no failure.
    """
    if not (settings.dagster_home / "dagster.yaml").exists():
        return {}
    try:
        with open_instance(settings) as instance:
            return {
                snapshot_id: run_id
                for table, ordinals in partitions.items()
                for snapshot_id, run_id in _told(instance, stream, table, ordinals)
            }
    except DedupPlatformError:
        return {}


def _told(
    instance: dg.DagsterInstance, stream: Stream, table: str, ordinals: Collection[int]
) -> Iterator[tuple[int, str]]:
    if not ordinals:
        return
    keys = [stream.partitions.key(ordinal) for ordinal in sorted(ordinals)]
    wanted = dg.AssetRecordsFilter(asset_key=asset_key(stream, table), asset_partitions=keys)
    for record in instance.fetch_materializations(wanted, limit=MOST).records:
        told = record.asset_materialization
        snapshot_id = told.metadata.get(SNAPSHOT_ID) if told else None
        if snapshot_id and str(snapshot_id.value).isdecimal():
            yield int(str(snapshot_id.value)), record.run_id
