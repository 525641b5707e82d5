"""The tables of a stream as assets: ask the platform, report."""

import warnings
from collections.abc import Iterator

import dagster as dg

from dedup_platform import tables
from dedup_platform.comments import TABLE_COMMENTS
from dedup_platform.lake.commits import Commit
from dedup_platform.orchestration import checks, intake, runs
from dedup_platform.orchestration.failures import told
from dedup_platform.orchestration.metadata import (
    asset_key,
    chosen_partitions,
    column_schema,
    report,
    results,
    written_with,
)
from dedup_platform.orchestration.partitions import partitions_definition
from dedup_platform.orchestration.points import make_point
from dedup_platform.orchestration.pools import pool
from dedup_platform.orchestration.publish import publish
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream


def stream_assets(stream: Stream) -> list[dg.AssetsDefinition]:
    """The assets of one stream, upstream first."""
    return [_asset(stream, table) for table in (tables.RAW_EVENTS, *tables.derived(stream))]


def _asset(stream: Stream, table: str) -> dg.AssetsDefinition:
    with warnings.catch_warnings():
        # The one way to let a backfill put many partitions into a run; "beta" since it was added years ago.
        warnings.simplefilter("ignore", dg.BetaWarning)

        @dg.multi_asset(
            name=f"{stream.name}__{table}",
            specs=[_spec(stream, name) for name in written_with(table)],
            check_specs=[spec for name in written_with(table) for spec in checks.specs(stream, name)],
            partitions_def=partitions_definition(stream),
            backfill_policy=dg.BackfillPolicy.multi_run(stream.late.max_partitions_per_run),
            pool=pool(stream, table),
        )
        def body(
            context: dg.AssetExecutionContext, platform: dg.ResourceParam[Platform]
        ) -> Iterator[dg.MaterializeResult]:
            with told(runs.command(stream)):
                evaluations = report(context, platform, stream, table, _commits(context, platform, stream, table))
                publish(context, platform, stream, table)
                make_point(context, platform, stream, table)
            yield from results(stream, table, evaluations)

    return body


def _spec(stream: Stream, table: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        asset_key(stream, table),
        deps=[asset_key(stream, tables.BUILT_FROM.get(table, tables.SOURCE))],
        description=TABLE_COMMENTS[table],
        metadata=column_schema(stream, table),
        group_name=stream.name,
        kinds={"spark", "iceberg"},
    )


def _commits(context: dg.AssetExecutionContext, platform: Platform, stream: Stream, table: str) -> Iterator[Commit]:
    """What the run asks for: whole partitions that a person chose, or what a sensor found stale in them.

    What earlier steps of the run rewrote in linked partitions is repaired as well.
    """
    if table == tables.RAW_EVENTS:
        yield from intake.ingest(context, platform, stream)
        return
    chosen = chosen_partitions(context, stream)
    linked = runs.reported(context.instance, context.run.run_id, stream, tables.INPUT_OF[table]) - chosen
    if context.run.tags.get(runs.CELLS) == runs.STALE:
        yield platform.recompute_stale(stream.name, table, chosen | linked)
        return
    yield platform.recompute(stream.name, table, chosen)
    if linked:
        yield platform.recompute_stale(stream.name, table, linked)
