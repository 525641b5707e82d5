"""Which of a stream's tables runs of Dagster write to now; ingests claim nothing else."""

from dedup_platform import tables
from dedup_platform.orchestration.embedded import open_instance
from dedup_platform.orchestration.pools import busy_pools
from dedup_platform.orchestration.runs import fail_dead_runs
from dedup_platform.settings import Settings


def written_now(settings: Settings, stream: str) -> list[str]:
    """The tables that a run writes whose process lives; none where there is no Dagster. By the stream's name."""
    if not (settings.dagster_home / "dagster.yaml").exists():
        return []
    with open_instance(settings) as instance:
        fail_dead_runs(instance)
        busy = busy_pools(instance, [f"{stream}.{table}" for table in tables.ALL])
    return [pool.removeprefix(f"{stream}.") for pool in busy]
