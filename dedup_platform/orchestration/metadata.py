"""What partitions hold since a commit, and what it did, as materializations that Dagster's UI lists and plots.

What is named `commit_…` is of the commit alone; all other numbers are of the whole partition as it is now.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict

import dagster as dg

from dedup_platform import tables
from dedup_platform.comments import column_comments
from dedup_platform.errors import ConservationError
from dedup_platform.lake.commits import Commit
from dedup_platform.orchestration.checks import CHECKS, evaluations, unbalanced
from dedup_platform.orchestration.lineage import column_lineage
from dedup_platform.orchestration.partitions import listing, ordinals
from dedup_platform.orchestration.previews import of_sessions
from dedup_platform.orchestration.rejected import report_rejected
from dedup_platform.orchestration.runs import SNAPSHOT_ID
from dedup_platform.planning.completeness import Completeness
from dedup_platform.planning.words import because
from dedup_platform.platform import Platform
from dedup_platform.platform.figures import PartitionFigures
from dedup_platform.sources.clock_skew import Clocks
from dedup_platform.spark.connect import translate_connect_errors
from dedup_platform.stream import Stream

Context = dg.AssetExecutionContext | dg.OpExecutionContext
Metadata = Mapping[str, float | str | dg.JsonMetadataValue | dg.TableMetadataValue | dg.TableColumnLineage]

_NOTHING = PartitionFigures()


def asset_key(stream: Stream, table: str) -> dg.AssetKey:
    """The asset of a table: `<stream>/<table>`."""
    return dg.AssetKey([stream.name, table])


def column_schema(stream: Stream, table: str) -> dict[str, dg.TableSchema]:
    """The columns of a table with their types and what they hold, as the metadata that the UI shows them by."""
    comments = column_comments(stream, table)
    columns = [
        dg.TableColumn(each.name, each.type if isinstance(each.type, str) else "struct", comments.get(each.name))
        for each in tables.columns(stream, table)
    ]
    return {"dagster/column_schema": dg.TableSchema(columns)}


def report_command(stream: Stream) -> dict[str, str]:
    """What to type for a page of the stream's figures, as metadata of its assets."""
    return {"report": f"dedup-platform report {stream.name} --html {stream.name}.html"}


def written_with(table: str) -> tuple[str, ...]:
    """The tables that one recomputation of `table` writes."""
    return (tables.DUPLICATE_EVENTS, table) if table == tables.DEDUPLICATED_EVENTS else (table,)


def report(
    context: Context, platform: Platform, stream: Stream, table: str, commits: Iterable[Commit]
) -> list[dg.AssetCheckEvaluation]:
    """Tell Dagster about every partition that the commits looked at, chosen for this run or linked to a chosen one.

    Dagster itself materializes the chosen ones when the step ends; they get their numbers, the others an event.
    Returns the evaluations of the table's checks, which are logged already.
    """
    chosen, listed = chosen_partitions(context, stream), listing(stream)
    untold, found, snapshots = set(chosen), list[dg.AssetCheckEvaluation](), list[int]()
    for commit in _balanced(context, stream, table, commits):
        context.log.info(sentence(commit))
        snapshots += [commit.snapshot_id] if commit.snapshot_id is not None else []
        untold -= commit.partitions.keys()
        reached = platform.completeness(stream.name)
        held = platform.figures.of(stream.name, commit.partitions)
        # What the UI shows of a table it takes from its newest event.
        newest = max(chosen or filter(listed.__contains__, commit.partitions), default=None)
        preview = of_sessions(context, platform, stream, commit.snapshot_id) if table == tables.SESSIONS else {}
        for name in written_with(table):
            in_all = platform.rows(stream.name, name)
            for partition, done in sorted(commit.partitions.items()):
                metadata = {**figures_of(name, held[partition]), **_metadata(commit, done)}
                metadata |= {**_state(reached, partition), **explained(stream, name, partition)}
                metadata |= _row_counts(in_all, held[partition].rows(name))
                metadata |= {**column_lineage(stream, name), **preview} if partition == newest else {}
                if partition in chosen or partition in listed:
                    _tell(context, stream, name, partition, metadata, partition in chosen)
                else:
                    context.log.warning(unlisted(stream, name, partition, metadata))
        with translate_connect_errors(platform.settings):
            wrong = (
                platform.violations(stream.name, table, commit.partitions)
                if table in tables.DERIVED and commit.partitions
                else {}
            )
        rows = {partition: figures.rows(table) for partition, figures in held.items()}
        found += evaluations(stream, table, rows, wrong, listed)
    if table == tables.RAW_EVENTS:
        report_rejected(context, platform, stream, snapshots)
    for evaluation in found:
        _log_check(context, evaluation)
    if untold:
        _tell_unchanged(context, platform, stream, table, untold)
    return found


def _tell_unchanged(
    context: Context, platform: Platform, stream: Stream, table: str, partitions: Collection[int]
) -> None:
    """Tell of chosen partitions that no commit touched, or a backfill would count them as failed."""
    reached, held = platform.completeness(stream.name), platform.figures.of(stream.name, partitions)
    in_all = {name: platform.rows(stream.name, name) for name in written_with(table)}
    for partition in sorted(partitions):
        for name in written_with(table):
            figures = held.get(partition, _NOTHING)
            metadata = {**figures_of(name, figures), "changed": False, **_state(reached, partition)}
            metadata |= _row_counts(in_all[name], figures.rows(name))
            metadata |= column_lineage(stream, name) if partition == max(partitions) else {}
            _tell(context, stream, name, partition, metadata, is_chosen=True)


def results(
    stream: Stream, table: str, evaluations: Sequence[dg.AssetCheckEvaluation]
) -> Iterator[dg.MaterializeResult]:
    """What an asset's step must return: its tables, and each check over all partitions of the run."""
    for name in written_with(table):
        key = asset_key(stream, name)
        yield dg.MaterializeResult(
            asset_key=key,
            check_results=[
                dg.AssetCheckResult(
                    asset_key=key,
                    check_name=check,
                    passed=all(each.passed for each in evaluations if each.check_name == check),
                    metadata={"partitions": sum(each.check_name == check for each in evaluations)},
                )
                for check in CHECKS.get(name, ())
            ],
        )


def _log_check(context: Context, evaluation: dg.AssetCheckEvaluation) -> None:
    context.log_event(evaluation)  # type: ignore[arg-type]  # it takes every event that a step may yield


def _balanced(context: Context, stream: Stream, table: str, commits: Iterable[Commit]) -> Iterator[Commit]:
    """The commits; where counts do not balance nothing is published, and the check says so."""
    try:
        yield from commits
    except ConservationError as error:
        if table in CHECKS:
            _log_check(context, unbalanced(stream, table, str(error)))
        raise


def chosen_partitions(context: Context, stream: Stream) -> set[int]:
    """The partitions that this run was asked for; none in a run of the ingest job."""
    return set(ordinals(stream, context.partition_keys)) if context.has_partition_key_range else set()


def sentence(commit: Commit) -> str:
    """What a commit did, for people: `sessions: 812 rows written, 2 of 14 cells changed, 1.2 s, because of …`."""
    if commit.left and not commit.cells_checked:
        return f"{commit.table}: {commit.left}"
    cells = f"{len(commit.cells_rewritten):,} of {len(commit.cells_checked):,} cells changed"
    done = f"{commit.table}: {commit.rows_written:,} rows written, {cells}, {commit.seconds:.1f} s"
    if commit.table in tables.DERIVED:
        done += f", because of {because(commit.reason)}"
    return f"{done}; {commit.left}" if commit.left else done


def unlisted(stream: Stream, table: str, partition: int, metadata: Metadata) -> str:
    """What is said of a partition where Dagster has no key to say it of."""
    numbers = {name: value for name, value in metadata.items() if isinstance(value, int | float) and "/" not in name}
    plotted = ", ".join(f"{name} {value:g}" for name, value in numbers.items())
    return f"{stream.name}/{table}: Dagster has no partition {stream.partitions.key(partition)} to show: {plotted}"


def figures_of(table: str, figures: PartitionFigures) -> Metadata:
    """The figures of a whole partition that are told of one of its tables."""
    told: dict[str, float | None] = {"rows": figures.rows(table), "cells_total": figures.cells(table)}
    if table in tables.FIGURED:
        told |= {"copies": figures.copies, "conflicts": figures.conflicts}
    if table == tables.DEDUPLICATED_EVENTS:
        told |= {"duplicates": figures.rows(tables.DUPLICATE_EVENTS), **figures.lateness()}
    return {name: number for name, number in told.items() if number is not None}


def _row_counts(table: int, partition: int) -> Metadata:
    """How many rows the table and a partition have, by the names under which Dagster looks for it."""
    return {"dagster/row_count": table, "dagster/partition_row_count": partition}


def _metadata(commit: Commit, done: Mapping[str, float]) -> Metadata:
    """What the commit did, here (`done`) and in all of its partitions."""
    built_from = {f"built_from_{name}": str(snapshot_id) for name, snapshot_id in commit.built_from.items()}
    return {
        **{f"commit_partition_{name}": number for name, number in done.items()},
        **built_from,
        **_skews(commit.clocks),
        "changed": any(done.get(name) for name in ("cells_rewritten", "rows_added")),
        "reason": commit.reason,
        # As text: a snapshot id has more digits than a browser's numbers.
        SNAPSHOT_ID: str(commit.snapshot_id),
        "commit_bytes_read": commit.bytes_read,
        "commit_bytes_written": commit.bytes_written,
        "commit_seconds": round(commit.seconds, 3),
    }


def _state(reached: Completeness, partition: int) -> Metadata:
    """Whether the partition may still get records that are not late, and the watermark that says so."""
    if partition not in reached.states:
        return {}
    watermark = {"watermark": reached.watermark.isoformat()} if reached.watermark else {}
    return {"state": reached.states[partition], **watermark}


def explained(stream: Stream, table: str, partition: int) -> Metadata:
    """What to type to learn why a row of this partition is as it is; nothing of tables that are not explained."""
    words = {
        tables.RAW_EVENTS: "event {} EVENT_ID",
        tables.DUPLICATE_EVENTS: "event {} EVENT_ID",
        tables.DEDUPLICATED_EVENTS: "event {} EVENT_ID",
        tables.SESSIONS: "session {} SESSION_ID",
    }
    if table not in words:
        return {}
    what = words[table].format(stream.name)
    return {"explain": f"dedup-platform explain {what} --at {stream.partitions.key(partition)}"}


def _skews(clocks: Clocks | None) -> Metadata:
    """What the records of the commit, of all its partitions, tell about their producers' clocks."""
    if clocks is None:
        return {}
    overall = clocks.overall
    seconds = {"p50": overall.p50, "p99": overall.p99, "max": overall.max}
    return {
        **{f"commit_skew_{name}_seconds": value for name, value in seconds.items() if value is not None},
        "commit_records_ahead": overall.ahead,
        "commit_skew_by_source": dg.MetadataValue.json([asdict(skew) for skew in clocks.worst]),
    }


def _tell(
    context: Context,
    stream: Stream,
    table: str,
    partition: int,
    metadata: Metadata,
    is_chosen: bool,
) -> None:
    key = stream.partitions.key(partition)
    if is_chosen and isinstance(context, dg.AssetExecutionContext):
        context.add_asset_metadata(metadata, asset_key=asset_key(stream, table), partition_key=key)
    else:
        context.log_event(dg.AssetMaterialization(asset_key(stream, table), partition=key, metadata=metadata))
