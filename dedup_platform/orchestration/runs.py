"""What Dagster's own records tell about runs: who works on what, what was tried before, and which runs are dead."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from typing import Final

import dagster as dg

from dedup_platform import processes, tables
from dedup_platform.orchestration.partitions import ordinals
from dedup_platform.orchestration.pools import free_slots
from dedup_platform.planning.circuit_breaker import Circuit
from dedup_platform.planning.triage import NO_RUN, PastRun, RunHistory
from dedup_platform.stream import Stream

STREAM: Final = "dedup_platform/stream"
TABLE: Final = "dedup_platform/table"
WATERMARK: Final = "dedup_platform/watermark"
CELLS: Final = "dedup_platform/cells"
STALE: Final = "stale"
"""Value of `CELLS`: recompute the stale cells of the run's partitions only, not the whole partitions."""
REASON: Final = "dedup_platform/reason"
INGESTED: Final = "dedup_platform/ingested"
POLICY: Final = "dedup_platform/policy"
IGNORED: Final = "ignored"
"""Value of `POLICY`: repair all that is stale at once, whatever the stream's `late` says about waiting."""
HEALTH: Final = "dedup_platform/health"
"""How the stream's ingest fared at the end of the run's try: a run without it could not say so itself."""
NEXT_TRY: Final = "dedup_platform/next_try"
SNAPSHOT_ID: Final = "snapshot_id"
"""In the metadata of materializations that tell of a commit."""
PROCESS: Final = "dedup_platform/process"
"""`host/pid/start time` of the process that executes the run, so that anybody can tell whether it still lives."""

UNLISTED: Final = "dedup_platform/unlisted"
"""First and last key of partitions that Dagster does not know, so that its own tags cannot name them."""

RANGE_START: Final = "dagster/asset_partition_range_start"
RANGE_END: Final = "dagster/asset_partition_range_end"
PARTITION: Final = "dagster/partition"

HISTORY_LENGTH = 500
LOST_SEEN = 10

IN_WORK = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


def command(stream: Stream) -> str:
    """What a person types to have a stream taken in, repaired and published at once, whatever waits or pauses."""
    return f"dedup-platform run --stream {stream.name}"


def ingest_job_name(stream: Stream) -> str:
    """The job that pulls what waits at the source and repairs what it touched."""
    return f"{stream.name}_ingest"


def repair_job_name(stream: Stream) -> str:
    """The job that rebuilds stale cells of a range of partitions."""
    return f"{stream.name}_repair"


def publish_job_name(stream: Stream) -> str:
    """The job that brings the feeds up to date."""
    return f"{stream.name}_publish"


def sink_job_name(stream: Stream, sink: str) -> str:
    """The job that brings one sink up to date."""
    return f"{stream.name}_to_{sink}"


def unlisted_job_name(stream: Stream) -> str:
    """The job that rebuilds stale cells of partitions that Dagster has no key for."""
    return f"{stream.name}_repair_unlisted"


def unlisted_tag(stream: Stream, partitions: tuple[int, ...]) -> dict[str, str]:
    """The tag that makes a run of the unlisted job cover a contiguous range of partitions."""
    return {UNLISTED: f"{stream.partitions.key(partitions[0])}..{stream.partitions.key(partitions[-1])}"}


def range_tags(stream: Stream, partitions: tuple[int, ...]) -> dict[str, str]:
    """The tags that make one run cover a contiguous range of partitions."""
    return {RANGE_START: stream.partitions.key(partitions[0]), RANGE_END: stream.partitions.key(partitions[-1])}


def history(instance: dg.DagsterInstance, stream: Stream, table: str) -> RunHistory:
    """The repairs of one derived table, by the late_partitions sensor (ended) and by anybody (in work)."""
    wanted = dg.RunsFilter(tags={STREAM: stream.name, TABLE: table}, statuses=ENDED)
    records = instance.get_run_records(wanted, limit=HISTORY_LENGTH)
    return RunHistory(
        past=tuple(_past_run(record, stream) for record in records),
        in_work=dict(_in_work(instance, stream, table)),
        last_rebuilt=_last_rebuilt(instance, stream, table),
    )


@dataclass(frozen=True)
class PastIngests:
    """What ended before an ingest of the input that waits now."""

    newest: str
    """The run that was created last."""
    in_vain: Sequence[datetime]
    """When the latest ended, newest first, that did not fail and left this input waiting."""


def past_ingests(instance: dg.DagsterInstance, stream: Stream, watermark: str) -> PastIngests:
    """What was tried before with the input that waits under this watermark."""
    records = _ended_ingests(instance, stream, HISTORY_LENGTH)
    in_vain = takewhile(lambda record: _left(record, watermark), records)
    return PastIngests(
        newest=records[0].dagster_run.run_id if records else NO_RUN, in_vain=[_ended(record) for record in in_vain]
    )


def lost_ingests(instance: dg.DagsterInstance, stream: Stream) -> list[dg.DagsterRun]:
    """The latest ingests that ended and could not say how they fared."""
    return lost_runs(instance, ingest_job_name(stream))


def lost_runs(instance: dg.DagsterInstance, job_name: str) -> list[dg.DagsterRun]:
    """The latest runs of a job that ended and could not say how what they tried fared."""
    records = instance.get_run_records(dg.RunsFilter(job_name=job_name, statuses=ENDED), limit=LOST_SEEN)
    ended = (record.dagster_run for record in records)
    return list(takewhile(lambda run: not {HEALTH, INGESTED} & run.tags.keys(), ended))


def health_tags(health: Circuit) -> dict[str, str]:
    """The tags that say how an ingest or a sink fares."""
    next_try = {NEXT_TRY: health.next_try.isoformat()} if health.next_try else {}
    return {HEALTH: health.state, **next_try}


def _ended_ingests(instance: dg.DagsterInstance, stream: Stream, most: int) -> Sequence[dg.RunRecord]:
    return instance.get_run_records(dg.RunsFilter(job_name=ingest_job_name(stream), statuses=ENDED), limit=most)


def _left(record: dg.RunRecord, watermark: str) -> bool:
    """Whether a run that took in all that it could left what waits under this watermark where it was."""
    tags = record.dagster_run.tags
    return INGESTED in tags and tags.get(WATERMARK) == watermark


def reported(instance: dg.DagsterInstance, run_id: str, stream: Stream, table: str) -> set[int]:
    """The partitions of a table that a run has reported so far."""
    kind = dg.DagsterEventType.ASSET_MATERIALIZATION
    found = instance.get_records_for_run(run_id, of_type=kind).records
    key = dg.AssetKey([stream.name, table])
    return set(ordinals(stream, [each.partition_key for each in found if each.asset_key == key and each.partition_key]))


@dataclass(frozen=True)
class EndedRun:
    """How a run ended, and when."""

    run_id: str
    status: dg.DagsterRunStatus
    at: datetime


def ended(instance: dg.DagsterInstance, job_name: str, most: int = HISTORY_LENGTH) -> list[EndedRun]:
    """The latest runs of a job that ended, newest first."""
    records = instance.get_run_records(dg.RunsFilter(job_name=job_name, statuses=ENDED), limit=most)
    return [EndedRun(each.dagster_run.run_id, each.dagster_run.status, _ended(each)) for each in records]


def run_in_work(instance: dg.DagsterInstance, job_name: str) -> str | None:
    """The id of a queued or running run of this job, None if there is none."""
    return next((run.run_id for run in instance.get_runs(dg.RunsFilter(job_name=job_name, statuses=IN_WORK))), None)


def begun(instance: dg.DagsterInstance, run_id: str) -> datetime:
    """When a run began to work; while it is queued, when it was asked for."""
    record = instance.get_run_record_by_id(run_id)
    if record is None:  # it was deleted
        return datetime.now(UTC)
    return datetime.fromtimestamp(record.start_time, UTC) if record.start_time else record.create_timestamp


def this_process() -> dict[str, str]:
    """The tag that tells which process executes a run."""
    return {PROCESS: processes.identity()}


def fail_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark runs as failed whose process is gone, and free pool slots that nobody needs any more; returns the dead.

    A process killed with SIGKILL can do neither for itself. Runs of other machines are left to Dagster's monitoring.
    """
    in_work = instance.get_runs(dg.RunsFilter(statuses=IN_WORK))
    dead = [run for run in in_work if processes.is_gone(run.tags.get(PROCESS, ""))]
    for run in dead:
        instance.report_run_failed(run, "The process of this run is gone; it was killed or its machine restarted.")
    free_slots(instance)
    return [run.run_id for run in dead]


def _past_run(record: dg.RunRecord, stream: Stream) -> PastRun:
    run = record.dagster_run
    partitions = partitions_of(run, stream)
    return PastRun(
        first=partitions.start,
        last=partitions.stop - 1,
        watermark=run.tags[WATERMARK],
        failed=run.status != dg.DagsterRunStatus.SUCCESS,
        ended=_ended(record),
        run_id=run.run_id,
    )


def _last_rebuilt(instance: dg.DagsterInstance, stream: Stream, table: str) -> Callable[[int], datetime | None]:
    """Asks when a run of any kind last told of a commit of the table that looked at a partition."""

    def ask(partition: int) -> datetime | None:
        key = dg.AssetKey([stream.name, table])
        wanted = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[stream.partitions.key(partition)])
        for record in instance.fetch_materializations(wanted, limit=1).records:
            told = record.asset_materialization
            if told and SNAPSHOT_ID in told.metadata:
                return datetime.fromtimestamp(record.timestamp, UTC)
        return None

    return ask


def _ended(record: dg.RunRecord) -> datetime:
    return datetime.fromtimestamp(record.end_time, UTC) if record.end_time else record.update_timestamp


def _in_work(instance: dg.DagsterInstance, stream: Stream, table: str) -> Iterator[tuple[int, str]]:
    for run in instance.get_runs(dg.RunsFilter(statuses=IN_WORK)):
        if run.job_name == ingest_job_name(stream):
            # It goes on into the repair of what it touched.
            partitions: Iterable[int] = reported(instance, run.run_id, stream, tables.RAW_EVENTS)
        else:
            partitions = partitions_of(run, stream) if _works_on(run, stream, table) else ()
        yield from ((partition, run.run_id) for partition in partitions)


def _works_on(run: dg.DagsterRun, stream: Stream, table: str) -> bool:
    if run.asset_selection:
        return dg.AssetKey([stream.name, table]) in run.asset_selection
    return run.job_name in (repair_job_name(stream), unlisted_job_name(stream)) and table in tables.DERIVED


def partitions_of(run: dg.DagsterRun, stream: Stream) -> range:
    """The partitions that a run's tags name; none if they name none."""
    first, _, last = run.tags.get(UNLISTED, "").partition("..")
    first = first or run.tags.get(RANGE_START) or run.tags.get(PARTITION, "")
    last = last or run.tags.get(RANGE_END) or first
    if not first:
        return range(0)
    return range(stream.partitions.ordinal_of(first), stream.partitions.ordinal_of(last) + 1)
