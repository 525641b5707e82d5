"""Recomputes everything from raw and compares it with the tables row for row (rules 1, 2, 5 and 7)."""

from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import DataFrame, functions as F

from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.ledger import Ledger
from dedup_platform.stream import KafkaSource, Stream
from dedup_platform.tables import (
    ADDED_LATER,
    COORDINATES,
    DEDUPLICATED_EVENTS,
    DUPLICATE_EVENTS,
    RAW_EVENTS,
    SESSION_FRAGMENTS,
    SESSIONS,
    column_names,
)
from dedup_platform.verification.deduplicated import deduplicate
from dedup_platform.verification.fragments import fragment
from dedup_platform.verification.sessions import stitch

SHOWN = 5
"""How many differing rows of a table are shown."""


def differences(lake: Lakehouse, ledger: Ledger, stream: Stream) -> list[str]:
    """What is wrong, a line each; empty if the tables are what a full recomputation gives.

    Nothing is written. All tables are read as they are when the check begins.
    """
    pinned, records_read = _pinned(lake, ledger, stream)
    if not pinned:
        return []
    tables = {name: lake.read(stream, name, snapshot) for name, snapshot in pinned.items()}
    records = tables[RAW_EVENTS].where("rejection_reason is null")
    expected = deduplicate(records, stream)
    # Found once: events are the records that are not among the duplicates.
    duplicates = expected.duplicates.persist()
    try:
        return [
            *_raw_problems(tables[RAW_EVENTS], records_read),
            *_compare(stream, DUPLICATE_EVENTS, tables[DUPLICATE_EVENTS], duplicates),
            *_compare(stream, DEDUPLICATED_EVENTS, tables[DEDUPLICATED_EVENTS], expected.events),
            *(_wrong_sessions(stream, tables, expected.events) if stream.sessions else ()),
        ]
    finally:
        duplicates.unpersist()


def _wrong_sessions(stream: Stream, tables: Mapping[str, DataFrame], events: DataFrame) -> Iterator[str]:
    # Found once: sessions are made of fragments.
    fragments = fragment(events, stream).persist()
    try:
        yield from _compare(stream, SESSION_FRAGMENTS, tables[SESSION_FRAGMENTS], fragments)
        yield from _compare(stream, SESSIONS, tables[SESSIONS], stitch(fragments, stream))
        yield from _repeated_ids(tables[SESSIONS])
    finally:
        fragments.unpersist()


def _pinned(lake: Lakehouse, ledger: Ledger, stream: Stream) -> tuple[dict[str, int], int | None]:
    """The snapshot of each table that is looked at, and how many records had been read by then."""
    heads, records_read, before = ledger.sync(stream.name), None, None
    # The ledger tells the number as of now: it is that of the snapshot if nothing was taken in before or after asking.
    while heads and heads[RAW_EVENTS] != before:
        before, records_read = heads[RAW_EVENTS], _records_read(ledger, stream)
        heads = ledger.sync(stream.name)
    pinned = {name: head.snapshot_id for name, head in heads.items()}
    if pinned and (pair := lake.duplicates_of(stream, pinned[DEDUPLICATED_EVENTS])):
        # Not the newest ones: their writer may not have published the events yet that belong to them.
        pinned[DUPLICATE_EVENTS] = pair
    return pinned, records_read


def _records_read(ledger: Ledger, stream: Stream) -> int | None:
    """None for a topic: an offset need not hold a record, so positions do not tell how many there were."""
    return None if isinstance(stream.source, KafkaSource) else ledger.records_read(stream.name)


def _raw_problems(raw: DataFrame, records_read: int | None) -> Iterator[str]:
    rows = raw.count()
    if records_read not in (None, rows):
        yield f"{RAW_EVENTS}: {rows} rows, but {records_read} records were read"
    for row in raw.groupBy(*COORDINATES).count().where("count > 1").limit(SHOWN).collect():
        yield f"{RAW_EVENTS}: {row['count']} rows of the record {tuple(row[name] for name in COORDINATES)}"


def _repeated_ids(sessions: DataFrame) -> Iterator[str]:
    for row in sessions.groupBy("session_id").count().where("count > 1").limit(SHOWN).collect():
        yield f"{SESSIONS}: {row['count']} rows with the session_id {row.session_id}"


def _compare(stream: Stream, name: str, found: DataFrame, expected: DataFrame) -> Iterator[str]:
    """Rows on one side only, each as often as it is too many or missing.

    In the column that was added later, null in a row found is no difference: an earlier version built its cell.
    """
    path = ADDED_LATER.get(name, ())
    names = [column for column in column_names(stream, name) if (column,) != path]
    one, other = (_apart(rows, names, path) for rows in (found, expected))
    sides = one.withColumn("_side", F.lit(1)).unionByName(other.withColumn("_side", F.lit(-1)))
    # Identical rows cancel, and a repeated row does not.
    totals = (F.sum("_side").alias("_surplus"), F.min("_added").alias("_least"), F.max("_added").alias("_most"))
    unequal = sides.groupBy(*names).agg(*totals).where("_surplus != 0 or _least != _most")
    # By Arrow: as Python's local times, those of the last hours that there are cannot be told everywhere.
    for row in unequal.limit(SHOWN).toArrow().to_pylist():
        surplus, another = row["_surplus"], f"has another {'.'.join(path)}"
        what = another if not surplus else "should not be there" if surplus > 0 else "is missing"
        values = ", ".join(f"{column}={row[column]}" for column in names if row[column] is not None)
        yield f"{name}: {what}: {values}"


def _apart(rows: DataFrame, names: Sequence[str], path: Sequence[str]) -> DataFrame:
    """Rows with the column that these names lead to as `_added`; null where the table does not have it yet."""
    inside = rows.select(f"{path[0]}.*") if path[1:] else rows
    if not path or path[-1] not in inside.columns:
        return rows.select(*names, F.lit(None).cast("timestamp").alias("_added"))
    told = rows.withColumn("_added", F.col(".".join(path)))
    if path[1:]:
        told = told.withColumn(path[0], F.col(path[0]).dropFields(path[1]))
    return told.select(*names, "_added")
