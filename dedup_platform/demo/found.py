"""What the tables of the click stream hold, asked in the words of its truth, and which cells were rewritten since."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, functions as F

from dedup_platform import tables
from dedup_platform.demo.truth import Found, Visit
from dedup_platform.lake.snapshots import changes, since
from dedup_platform.planning.cells import Cell
from dedup_platform.planning.moments import in_microseconds
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream
from dedup_platform.verification.cells import partition_ordinal


def found(platform: Platform, stream: Stream) -> Found:
    """Count everything that the truth has a label for."""
    raw, events, duplicates, sessions = (
        platform.read(stream.name, table)
        for table in (tables.RAW_EVENTS, tables.DEDUPLICATED_EVENTS, tables.DUPLICATE_EVENTS, tables.SESSIONS)
    )
    rejected = raw.where("rejection_reason is not null").groupBy("rejection_reason").count().collect()
    counts = events.agg(
        F.count("*").alias("deduplicated"),
        F.count_if(_late(stream)).alias("late"),
        F.count_if(F.col("entity_id").isNull()).alias("without_user"),
        F.sum("amount").alias("amount"),
    ).collect()[0]
    return Found(
        records=raw.count(),
        rejected={row.rejection_reason: row["count"] for row in rejected},
        deduplicated=counts.deduplicated,
        duplicates=duplicates.count(),
        conflicts=duplicates.where("kind = 'conflict'").count(),
        across_midnight=_across_midnight(raw, duplicates, stream),
        late_events=counts.late,
        without_user=counts.without_user,
        amount=counts.amount,
        sessions=_visits(sessions),
    )


def snapshots(platform: Platform, stream: Stream) -> dict[str, int]:
    """The newest snapshot of each table."""
    return {table.table: table.snapshot_id for table in platform.status(stream.name).tables}


def rewritten(platform: Platform, stream: Stream, before: Mapping[str, int]) -> dict[str, set[Cell]]:
    """Table -> the cells with files added or taken away since these snapshots, as Iceberg's manifests tell."""
    cells = {}
    for name, snapshot_id in before.items():
        table = platform.lake.catalog.load(stream.name, name)
        assert table is not None
        newer, _ = since(table, snapshot_id)
        cells[name] = {change.cell for snapshot in newer for change in changes(table, snapshot) if change.cell}
    return cells


def _late(stream: Stream) -> Column:
    length, grace = in_microseconds(stream.partitions.length), in_microseconds(stream.late.grace)
    end = (_partition("event_time", stream) + 1) * F.lit(length)
    return F.unix_micros("arrival_time") > end + F.lit(grace)


def _across_midnight(raw: DataFrame, duplicates: DataFrame, stream: Stream) -> int:
    """Duplicates that are in another partition than the record that beats them."""
    winner = [f"winner_{column.name}" for column in tables.COORDINATE_COLUMNS]
    times = raw.select(
        *(F.col(name).alias(f"winner_{name}") for name in tables.COORDINATES), F.col("event_time").alias("won")
    )
    pairs = duplicates.select(*winner, "event_time").join(times, winner)
    return pairs.where(_partition("event_time", stream) != _partition("won", stream)).count()


def _visits(sessions: DataFrame) -> dict[Visit, str]:
    columns = sessions.select("entity_id", "started_at", "ended_at", "event_count", "session_id").toArrow().to_pydict()
    *visit, ids = columns.values()
    return {Visit(*values): session_id for *values, session_id in zip(*visit, ids, strict=True)}


def _partition(column: str, stream: Stream) -> Column:
    return partition_ordinal(F.col(column), stream.partitions.length)
