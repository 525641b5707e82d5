"""The health of streams as asset checks: red where people look, and green again by themselves.

The sensor that asks a stream's source evaluates them, without a run: it knows whether the source answers. It tells
Dagster what is news only, so that a tick that finds all as it was adds no event.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta

import dagster as dg

from dedup_platform import tables
from dedup_platform.escapes import one_line
from dedup_platform.ingest.pending import Waiting
from dedup_platform.orchestration import runs
from dedup_platform.orchestration.metadata import asset_key
from dedup_platform.planning.circuit_breaker import Circuit
from dedup_platform.planning.health import DESCRIPTIONS, SINK, STALE, AtSource, Check
from dedup_platform.platform import Platform
from dedup_platform.platform.health import at_source
from dedup_platform.stream import Stream

TABLES_EVERY = timedelta(minutes=1)
"""How often a sensor asks what the tables tell: that costs what all cells are, and not what changed."""
LONGEST = 5000
"""Letters of a sentence that the UI should show."""


def health_checks(stream: Stream) -> dg.AssetChecksDefinition:
    """The checks of one stream. Executed by hand, or with the assets in the UI, they ask source and sinks at once."""
    specs = [_spec(key) for key in check_keys(stream)]

    @dg.multi_asset_check(
        name=f"{stream.name}__health", specs=specs, description=f"Whether {stream.name} is well.", can_subset=True
    )
    def check(
        context: dg.AssetCheckExecutionContext, platform: dg.ResourceParam[Platform]
    ) -> Iterator[dg.AssetCheckResult]:
        chosen = context.selected_asset_check_keys
        for each in platform.health.of_status(platform.status(stream.name)):
            told = evaluation(stream, each)
            if told.asset_check_key in chosen:
                yield dg.AssetCheckResult(
                    passed=told.passed,
                    asset_key=told.asset_key,
                    check_name=told.check_name,
                    metadata=told.metadata,
                    severity=told.severity,
                    description=told.description,
                )

    return check


def check_keys(stream: Stream) -> list[dg.AssetCheckKey]:
    """The keys of a stream's checks, each on the asset that it is about."""
    of_stream = [name for name in DESCRIPTIONS if name != SINK]
    of_sinks = [dg.AssetCheckKey(asset_key(stream, sink), SINK) for sink in stream.publish.sinks]
    return [*(dg.AssetCheckKey(_asset(stream, name), name) for name in of_stream), *of_sinks]


def without_health(selection: dg.AssetSelection, stream: Stream) -> dg.AssetSelection:
    """A job's assets without the checks that a sensor evaluates anyhow."""
    return selection - dg.AssetSelection.checks(*check_keys(stream))


def evaluation(stream: Stream, check: Check) -> dg.AssetCheckEvaluation:
    """A check, for Dagster: what was found as its description, what to type as metadata."""
    severity = dg.AssetCheckSeverity.WARN if check.may_pass else dg.AssetCheckSeverity.ERROR
    return dg.AssetCheckEvaluation(
        asset_key(stream, check.sink) if check.sink else _asset(stream, check.name),
        check.name,
        passed=check.is_passed,
        metadata={"command": check.command} if check.command else {},
        severity=severity,
        description=one_line(check.what)[:LONGEST],
    )


def asked(before: Circuit, after: Circuit, waiting: Waiting | None) -> AtSource | None:
    """What a sensor that looked at the source found there; None if it was not asked, as it is not time yet."""
    if waiting is None and after == before:
        return None
    return at_source(waiting, after.reason if waiting is None else None)


def with_health(
    context: dg.SensorEvaluationContext,
    platform: Platform,
    stream: Stream,
    wanted: dg.RunRequest | dg.SkipReason,
    found: AtSource | str | None,
) -> dg.SensorResult:
    """What a sensor's tick comes to, and with it those checks of the stream that are news.

    `found` is what the source told, or the run that ingests meanwhile. What fails here is logged, and keeps no ingest
    from being asked for.
    """
    requests = [wanted] if isinstance(wanted, dg.RunRequest) else None
    skipped = wanted if isinstance(wanted, dg.SkipReason) else None
    now = platform.clock()
    with_tables = _is_due(context.cursor, now)
    try:
        checks = _checks(context.instance, platform, stream, found, with_tables)
        told = [evaluation(stream, each) for each in checks]
        news = _news(context.instance, told)
    except Exception as error:
        context.log.warning(f"{stream.name}: its health is not known: {type(error).__name__}: {one_line(str(error))}")
        return dg.SensorResult(run_requests=requests, skip_reason=skipped, cursor=context.cursor)
    cursor = now.isoformat() if with_tables else context.cursor
    return dg.SensorResult(run_requests=requests, skip_reason=skipped, cursor=cursor, asset_events=news)


def latest(
    instance: dg.DagsterInstance, keys: Collection[dg.AssetCheckKey]
) -> Mapping[dg.AssetCheckKey, dg.AssetCheckEvaluation]:
    """What was last told of each check since its asset was last materialized: what the UI shows."""
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(keys))
    materialized = instance.get_latest_materialization_events({key.asset_key for key in records})
    found = {}
    for key, record in records.items():
        newest = materialized.get(key.asset_key)
        evaluated = record.evaluation
        # As Dagster's UI tells it.
        is_current = newest is None or newest.run_id == record.run_id or newest.timestamp < record.create_timestamp
        if is_current and isinstance(evaluated, dg.AssetCheckEvaluation):
            found[key] = evaluated
    return found


def _checks(
    instance: dg.DagsterInstance, platform: Platform, stream: Stream, found: AtSource | str | None, with_tables: bool
) -> list[Check]:
    if not isinstance(found, str):
        return platform.health.of_parts(stream.name, found, with_tables=with_tables)
    at_work = platform.health.at_work(stream.name, found[:8], runs.begun(instance, found))
    return platform.health.of_parts(stream.name, at_work, with_tables=with_tables)


def _news(instance: dg.DagsterInstance, told: Collection[dg.AssetCheckEvaluation]) -> list[dg.AssetCheckEvaluation]:
    known = latest(instance, [each.asset_check_key for each in told])
    return [each for each in told if _essence(known.get(each.asset_check_key)) != _essence(each)]


def _essence(evaluation: dg.AssetCheckEvaluation | None) -> tuple[object, ...]:
    """What is news once it is another: of what is as it should be, details are not."""
    if evaluation is None:
        return ()
    return (True,) if evaluation.passed else (False, evaluation.severity, evaluation.description)


def _is_due(cursor: str | None, now: datetime) -> bool:
    last = datetime.fromisoformat(cursor) if cursor else None
    return last is None or not last <= now < last + TABLES_EVERY


def _asset(stream: Stream, check: str) -> dg.AssetKey:
    return asset_key(stream, tables.derived(stream)[-1] if check == STALE else tables.RAW_EVENTS)


def _spec(key: dg.AssetCheckKey) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(key.name, asset=key.asset_key, description=DESCRIPTIONS[key.name])
