"""Rejected records in Dagster's UI: an asset of their own for each stream, with counts, and a check that warns."""

from collections.abc import Collection, Mapping

import dagster as dg

from dedup_platform import tables
from dedup_platform.orchestration.previews import of_rejected
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream

Context = dg.AssetExecutionContext | dg.OpExecutionContext

CHECK = "none_rejected"
_DESCRIPTION = (
    "The records that cannot become events, with the reason. `dedup-platform rejected` shows, replays and drops them."
)


def rejected_asset(stream: Stream) -> dg.AssetSpec:
    """The asset. Nothing materializes it: whoever ingests reports it."""
    return dg.AssetSpec(
        _key(stream),
        deps=[dg.AssetKey([stream.name, tables.RAW_EVENTS])],
        description=_DESCRIPTION,
        group_name=stream.name,
        kinds={"iceberg"},
    )


def rejected_check(stream: Stream) -> dg.AssetChecksDefinition:
    """Warns where the newest batch brought rejected records; evaluated by every ingest, and by whoever asks."""

    @dg.asset_check(
        asset=_key(stream), name=CHECK, description="The newest batch brought no record that cannot become an event."
    )
    def check(platform: dg.ResourceParam[Platform]) -> dg.AssetCheckResult:
        newest = platform.rejected.newest_batch(stream.name)
        reasons = platform.rejected.added_by_reason(stream.name, [newest] if newest is not None else [])
        return dg.AssetCheckResult(passed=not reasons, severity=dg.AssetCheckSeverity.WARN, metadata=_counts(reasons))

    return check


def report_rejected(context: Context, platform: Platform, stream: Stream, snapshot_ids: Collection[int]) -> None:
    """Tell Dagster how many records these ingests rejected, by reason, and how many are rejected in all.

    Costs what the ingests brought: the total is in metadata, reasons are read from the files that they added.
    """
    if not snapshot_ids:
        return
    reasons = platform.rejected.added_by_reason(stream.name, snapshot_ids)
    metadata = {"total": platform.rejected.count(stream.name), **_counts(reasons)}
    preview = of_rejected(context, platform, stream, snapshot_ids) if reasons else {}
    context.log_event(dg.AssetMaterialization(_key(stream), metadata={**metadata, **preview}))
    evaluation = dg.AssetCheckEvaluation(
        _key(stream), CHECK, passed=not reasons, severity=dg.AssetCheckSeverity.WARN, metadata=_counts(reasons)
    )
    context.log_event(evaluation)  # type: ignore[arg-type]  # it takes every event that a step may yield


def _key(stream: Stream) -> dg.AssetKey:
    return dg.AssetKey([stream.name, tables.REJECTED_EVENTS])


def _counts(reasons: Mapping[str, int]) -> dict[str, int]:
    """`added`, and `added_<reason>` for each reason."""
    return {"added": sum(reasons.values()), **{f"added_{reason}": count for reason, count in sorted(reasons.items())}}
