"""The two sensors of a stream: `new_input` (something waits at the source) and `late_partitions` (something is stale).

Both ask what is so now and remember nothing that decides, so a lost tick or a crashed run heals at the next one. They
read metadata only: Spark never starts in a sensor. The first also tells how the stream fares, as asset checks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from typing import Any

import dagster as dg

from dedup_platform import tables
from dedup_platform.errors import IncompatibleChangeError
from dedup_platform.escapes import one_line
from dedup_platform.ingest.pending import Waiting
from dedup_platform.orchestration import runs
from dedup_platform.orchestration.health import asked, with_health
from dedup_platform.orchestration.intake import note_lost_ingests
from dedup_platform.orchestration.metadata import asset_key, written_with
from dedup_platform.orchestration.partitions import Listing, listing
from dedup_platform.planning.circuit_breaker import sentence
from dedup_platform.planning.planner import PlannedRun, TablePlan
from dedup_platform.planning.triage import Deferred, Request, described, paused_until, triage
from dedup_platform.platform import Platform
from dedup_platform.platform.claims import owner
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream, format_duration

FILES_SHOWN = 20


def stream_sensors(stream: Stream, repairs: Sequence[Any], settings: Settings) -> list[dg.SensorDefinition]:
    """The sensors of one stream, on unless somebody switched them off; `repairs` are what late_partitions starts."""
    # Dagster's daemon comes by every five seconds. Asked for just five, it often finds that they are not quite over.
    interval = max(1, settings.sensor_interval - 1)
    return [_new_input(stream, interval), _late_partitions(stream, repairs, interval)]


def _new_input(stream: Stream, interval: int) -> dg.SensorDefinition:
    @dg.sensor(
        name=f"{stream.name}_new_input",
        job_name=runs.ingest_job_name(stream),
        minimum_interval_seconds=interval,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Starts {runs.ingest_job_name(stream)} when the source of {stream.name} has something new.",
    )
    def new_input(context: dg.SensorEvaluationContext, platform: dg.ResourceParam[Platform]) -> dg.SensorResult:
        runs.fail_dead_runs(context.instance)
        if run_id := runs.run_in_work(context.instance, runs.ingest_job_name(stream)):
            at_work = dg.SkipReason(f"run {run_id[:8]} ingests already")
            return with_health(context, platform, stream, at_work, run_id)
        note_lost_ingests(context.instance, platform, stream)
        before = platform.source.health(stream.name)
        waiting = platform.source.look(stream.name)
        after = platform.source.health(stream.name)
        if waiting is None:
            return with_health(context, platform, stream, dg.SkipReason(sentence(after)), asked(before, after, None))
        wanted = _ingest_of(context.instance, platform, stream, waiting)
        return with_health(context, platform, stream, wanted, asked(before, after, waiting))

    return new_input


def _ingest_of(
    instance: dg.DagsterInstance, platform: Platform, stream: Stream, waiting: Waiting
) -> dg.RunRequest | dg.SkipReason:
    """Ask for an ingest of what waits, or say why not."""
    if not waiting.items:
        return dg.SkipReason("\n".join(["nothing new at the source", *_left_alone(waiting)]))
    past = runs.past_ingests(instance, stream, waiting.watermark)
    if due := paused_until(past.in_vain, platform.clock()):
        return dg.SkipReason(
            f"{waiting.amount} wait; {len(past.in_vain)} runs in a row left them where they are, "
            f"the next one starts after {due:%Y-%m-%d %H:%M:%S} UTC"
        )
    # No key is asked for again once its run ended: from then on, another run is the newest that ended.
    return dg.RunRequest(
        run_key=f"{stream.name}/{waiting.watermark}/after {past.newest}",
        tags={runs.WATERMARK: waiting.watermark},
    )


def _left_alone(waiting: Waiting) -> list[str]:
    shown = [one_line(f"{path}: {reason}") for path, reason in waiting.reasons[:FILES_SHOWN]]
    more = len(waiting.reasons) - len(shown)
    return [*shown, f"and {more} more"] if more else shown


def _late_partitions(stream: Stream, jobs: Sequence[Any], interval: int) -> dg.SensorDefinition:
    @dg.sensor(
        name=f"{stream.name}_late_partitions",
        jobs=jobs,
        minimum_interval_seconds=interval,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Starts {runs.repair_job_name(stream)} for the partitions of {stream.name} with stale cells.",
    )
    def late_partitions(
        context: dg.SensorEvaluationContext, platform: dg.ResourceParam[Platform]
    ) -> list[dg.RunRequest] | dg.SkipReason:
        runs.fail_dead_runs(context.instance)
        try:
            plans = platform.plan(stream.name, every_run=True)
        except IncompatibleChangeError as error:
            return dg.SkipReason(str(error))
        listed = listing(stream)
        requests: list[dg.RunRequest] = []
        held: list[Deferred] = []
        asked: dict[int, str] = {}
        for plan, most in _shares(plans, stream.late.max_runs_per_tick):
            claimed = _claimed(platform, stream, plan)
            for decision in _decisions(context.instance, stream, plan, listed, asked, claimed, platform.clock()):
                if isinstance(decision, Deferred):
                    held.append(decision)
                elif len(requests) < most:
                    requests.append(_run_request(stream, plan.table, decision, listed))
                    # A run also repairs the tables downstream.
                    asked |= dict.fromkeys(decision.partitions, f"of {plan.table}")
                else:
                    break
        notes = [*described(held, stream.partitions.key), *_not_ready(stream, plans)]
        if not requests:
            return dg.SkipReason("\n".join(notes) or "nothing is stale")
        for note in notes:
            context.log.info(note)
        return requests

    return late_partitions


def _shares(plans: list[TablePlan], most: int) -> Iterator[tuple[TablePlan, int]]:
    """Each table's plan, and how many runs may be asked for up to it: one is left for each table behind it."""
    for number, plan in enumerate(plans, start=1):
        yield plan, max(1, most - sum(bool(later.runs) for later in plans[number:]))


def _claimed(platform: Platform, stream: Stream, plan: TablePlan) -> dict[int, str]:
    """The planned partitions that a process is at, be it no run of Dagster's, and which it is."""
    planned = [partition for each in plan.runs for partition in each.partitions]
    held = platform.claims.in_work(stream.name, plan.table) if planned else []
    return {partition: owner(claim) for claim in held for partition in planned if partition in claim.partitions}


def _decisions(
    instance: dg.DagsterInstance,
    stream: Stream,
    plan: TablePlan,
    listed: Listing,
    asked: Mapping[int, str],
    claimed: Mapping[int, str],
    now: datetime,
) -> Iterator[Request | Deferred]:
    """For each planned run of a table: what to ask for and what waits, also for what was `asked` for just now."""
    history = runs.history(instance, stream, plan.table)
    history = replace(history, in_work={**asked, **history.in_work}, claimed=claimed)
    for part in (part for planned in plan.runs for part in _parts(planned, listed)):
        # What Dagster will not know soon, if ever, is asked for in another way.
        last = listed.last if listed.is_awaited(part.partitions[0]) else part.partitions[-1]
        yield from triage(part, history, last, now)


def _parts(planned: PlannedRun, listed: Listing) -> Iterator[PlannedRun]:
    """A planned run, cut where Dagster's partitions begin and where it will have none for long."""
    for _, partitions in groupby(planned.partitions, listed.is_awaited):
        yield replace(planned, partitions=tuple(partitions))


def _not_ready(stream: Stream, plans: list[TablePlan]) -> Iterator[str]:
    for plan in plans:
        cells = [stale for stale in plan.stale if not stale.ready]
        if cells:
            settle, max_delay = format_duration(stream.late.settle), format_duration(stream.late.max_delay)
            yield (
                f"{plan.table}: {len(cells)} stale cells wait until nothing new came for {settle} (late.settle), "
                f"at most {max_delay} (late.max_delay)"
            )


def _run_request(stream: Stream, table: str, request: Request, listed: Listing) -> dg.RunRequest:
    run_key = f"{stream.name}/{request.key}"
    tags = {
        runs.STREAM: stream.name,
        runs.TABLE: table,
        runs.CELLS: runs.STALE,
        runs.WATERMARK: request.planned.watermark,
        runs.REASON: request.planned.reason,
    }
    if request.partitions[0] not in listed:
        tags |= runs.unlisted_tag(stream, request.partitions)
        return dg.RunRequest(run_key=run_key, job_name=runs.unlisted_job_name(stream), tags=tags)
    derived = tables.derived(stream)
    return dg.RunRequest(
        run_key=run_key,
        job_name=runs.repair_job_name(stream),
        asset_selection=[
            asset_key(stream, name) for each in derived[derived.index(table) :] for name in written_with(each)
        ],
        tags=tags | runs.range_tags(stream, request.partitions),
    )
