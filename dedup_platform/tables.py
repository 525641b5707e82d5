"""The tables of a stream: names, columns and partition times. Data only; `lakehouse` writes them.

Their names are loaded without what streams are read with: the command line's help tells them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dedup_platform.stream import Aggregate, Stream

RAW_EVENTS = "raw_events"
DUPLICATE_EVENTS = "duplicate_events"
DEDUPLICATED_EVENTS = "deduplicated_events"
SESSION_FRAGMENTS = "session_fragments"
SESSIONS = "sessions"
EVENT_CHANGES = "event_changes"
SESSION_CHANGES = "session_changes"
SESSION_ALIASES = "session_aliases"
AUDIT = "audit"
REJECTED_EVENTS = "rejected_events"
"""Those rows of `raw_events` that are rejected, where they are named like a table."""
SOURCE = "source"
"""Where a stream's records come from, where it is named like a table."""

INPUT_OF = {DEDUPLICATED_EVENTS: RAW_EVENTS, SESSION_FRAGMENTS: DEDUPLICATED_EVENTS, SESSIONS: SESSION_FRAGMENTS}
"""Each planned table and the table that it is built from, in the order of building. `duplicate_events` is written with
`deduplicated_events`. Which of them a stream has, `derived` tells."""

BUILT_FROM = {DUPLICATE_EVENTS: RAW_EVENTS, **INPUT_OF}
"""The same with the table that is written beside another."""

DERIVED = tuple(INPUT_OF)
ALL = (RAW_EVENTS, DUPLICATE_EVENTS, *DERIVED)
"""The tables whose rows lie in cells. Which of them a stream has, `all_of` tells."""
OF_SESSIONS = (SESSION_FRAGMENTS, SESSIONS)
"""The tables that only a stream with `sessions` has."""

FIGURED = (DUPLICATE_EVENTS, DEDUPLICATED_EVENTS)
"""The tables of whose rows more is counted for figures than how many they are."""

FEED_OF = {DEDUPLICATED_EVENTS: EVENT_CHANGES, SESSIONS: SESSION_CHANGES}
"""Each table that consumers follow, and the table of its changes. Which of them a stream has, `feeds_of` tells."""
FOLLOWED = {feed: table for table, feed in FEED_OF.items()}
FOLLOWER_OF = FEED_OF | {SESSION_CHANGES: SESSION_ALIASES}
"""Each table that another one is kept up to date with, and that one: feeds, and what is made of a feed."""
EXPORTED = (*ALL, *FOLLOWER_OF.values(), AUDIT, REJECTED_EVENTS)
"""What can be written to a file."""

COORDINATES = ("source", "source_partition", "source_offset", "source_index")
ARRIVAL_ORDER = ("arrival_time", *COORDINATES)
"""The total order of records (design rule 3): no two records share all five."""

ROW_KEY = {DEDUPLICATED_EVENTS: ("entity_id", *COORDINATES), SESSIONS: ("session_id",)}
"""What tells a row of a table that consumers follow from all its others."""

PARTITION_TIME = {
    RAW_EVENTS: "event_time",
    DUPLICATE_EVENTS: "event_time",
    DEDUPLICATED_EVENTS: "event_time",
    SESSION_FRAGMENTS: "first_event_time",
    SESSIONS: "started_at",
    EVENT_CHANGES: "_commit_timestamp",
    SESSION_CHANGES: "_commit_timestamp",
    AUDIT: "committed_at",
}
"""The column whose day or hour is a row's partition."""

_MOST_DIGITS = 38
"""The largest precision of a decimal, in Iceberg and in Spark."""
_DIGITS_OF_COUNTS = 10
"""No cell, and no session, has as many events as a number of eleven digits."""


@dataclass(frozen=True)
class Column:
    """A column: its name and its type in Spark's short form (`long`, `decimal(38,2)`); a struct holds columns."""

    name: str
    type: str | tuple[Column, ...]


COORDINATE_COLUMNS = (
    Column("source", "string"),
    Column("source_partition", "integer"),
    Column("source_offset", "long"),
    Column("source_index", "integer"),
)
_EVENT = (
    Column("entity_id", "string"),
    Column("event_id", "string"),
    Column("event_time", "timestamp"),
    Column("arrival_time", "timestamp"),
)
COMMIT_COLUMNS = (
    Column("_commit_version", "long"),
    Column("_change_ordinal", "long"),
    Column("_commit_timestamp", "timestamp"),
    Column("_commit_snapshot_id", "long"),
)
"""Which commit of its table a change is of, by names that Spark and Delta Lake use. Within a version, ordinals
rise in the order in which changes are to be applied; there may be gaps between them."""
_CHANGE_TYPE = Column("_change_type", "string")
_WHY = Column("reason", "string")
_LINKS = (Column("merged_into", "string"), Column("split_from", "string"))
_EFFECT = (
    Column("changed_columns", "list<string>"),
    Column("is_db_update", "boolean"),
    Column("is_downstream", "boolean"),
)
_ALIAS = (
    Column("session_id", "string"),
    Column("entity_id", "string"),
    Column("current_id", "string"),
    Column("outcome", "string"),
    Column("last_id", "string"),
    Column("merges", "long"),
    Column("merged_into", "string"),
    Column("reason", "string"),
    Column("retired_at", "timestamp"),
    Column("retired_by_version", "long"),
)
COUNTED = (
    "records_read",
    "rejected",
    "copies",
    "conflicts",
    "cells_checked",
    "cells_unchanged",
    "rows_added",
    "rows_removed",
    "changes",
    "not_downstream",
)
"""What is counted of each commit: see docs/changes.md. Null where it says nothing of a table."""
_AUDIT = (
    Column("committed_at", "timestamp"),
    Column("table", "string"),
    Column("snapshot_id", "long"),
    Column("reason", "string"),
    *(Column(name, "long") for name in COUNTED),
)
_FIRST_ARRIVED = (
    Column("arrival_time", "timestamp"),
    *COORDINATE_COLUMNS,
    Column("session_id", "string"),
    Column("event_time", "timestamp"),
)

ADDED_LATER = {SESSION_FRAGMENTS: ("first_arrived", "event_time"), SESSIONS: ("first_arrived_event_time",)}
"""The column of each of these tables, by the names that lead to it, that tables of earlier versions lack. It is in no
fingerprint: cells that were built without it are not stale for that, and have null in it."""


def derived(stream: Stream) -> tuple[str, ...]:
    """The planned tables of a stream, in the order of building."""
    return tuple(table for table in DERIVED if stream.sessions or table not in OF_SESSIONS)


def all_of(stream: Stream) -> tuple[str, ...]:
    """The tables of a stream whose rows lie in cells, in the order of building."""
    return (RAW_EVENTS, DUPLICATE_EVENTS, *derived(stream))


def feeds_of(stream: Stream) -> dict[str, str]:
    """The tables of a stream that consumers follow, and the table of the changes of each."""
    return {table: feed for table, feed in FEED_OF.items() if table in derived(stream)}


def followers_of(stream: Stream) -> dict[str, str]:
    """The tables of a stream that another one is kept up to date with, and that one."""
    return {table: FOLLOWER_OF[table] for table in FOLLOWER_OF if stream.sessions or table == DEDUPLICATED_EVENTS}


def followers(table: str) -> Iterator[str]:
    """What follows a table, what follows that, and so on."""
    while table in FOLLOWER_OF:
        table = FOLLOWER_OF[table]
        yield table


def columns(stream: Stream, table: str) -> tuple[Column, ...]:
    """The columns of a table of this stream, in order."""
    if table == SESSION_ALIASES:
        return _ALIAS
    if table == AUDIT:
        return _AUDIT
    if table in FOLLOWED:
        return (_CHANGE_TYPE, *COMMIT_COLUMNS, *columns(stream, FOLLOWED[table]), *told_columns(stream, table))
    attributes = tuple(Column(name, attribute.type) for name, attribute in stream.attributes.items())
    aggregates = tuple(Column(name, aggregate_type(stream, aggregate)) for name, aggregate in stream.aggregates.items())
    event = (*_EVENT, *attributes)
    return {
        RAW_EVENTS: (
            *event,
            Column("payload", "binary"),
            Column("payload_context", "string"),
            *COORDINATE_COLUMNS,
            Column("rejection_reason", "string"),
        ),
        DEDUPLICATED_EVENTS: (*event, *COORDINATE_COLUMNS),
        DUPLICATE_EVENTS: (
            *event,
            *COORDINATE_COLUMNS,
            Column("kind", "string"),
            *(Column(f"winner_{column.name}", column.type) for column in COORDINATE_COLUMNS),
        ),
        SESSION_FRAGMENTS: (
            Column("entity_id", "string"),
            Column("first_event_time", "timestamp"),
            Column("last_event_time", "timestamp"),
            Column("event_count", "long"),
            Column("first_arrived", _FIRST_ARRIVED),
            *aggregates,
        ),
        SESSIONS: (
            Column("session_id", "string"),
            Column("entity_id", "string"),
            Column("started_at", "timestamp"),
            Column("ended_at", "timestamp"),
            Column("event_count", "long"),
            Column("first_arrived_at", "timestamp"),
            Column("first_arrived_event_time", "timestamp"),
            *aggregates,
        ),
    }[table]


def told_columns(stream: Stream, feed: str) -> tuple[Column, ...]:
    """What a feed tells of each change besides the row: why it came, what it is linked to and what it matters for.

    Where the stream has a column of that name already, ours has an underscore in front.
    """
    taken = {column.name for column in columns(stream, FOLLOWED[feed])}
    told = (_WHY, *(_LINKS if feed == SESSION_CHANGES else ()), *_EFFECT)
    return tuple(Column(f"_{column.name}", column.type) if column.name in taken else column for column in told)


def told_names(stream: Stream, feed: str) -> dict[str, str]:
    """What a feed tells of each change besides the row: our name of it -> its column."""
    return {column.name.removeprefix("_"): column.name for column in told_columns(stream, feed)}


def aggregate_type(stream: Stream, aggregate: Aggregate) -> str:
    """The type of an aggregate's column. Sums are decimals, so that they do not depend on the order (rule 7)."""
    from dedup_platform.stream import decimal_of

    attribute = stream.attributes[aggregate.attribute].type
    if aggregate.function == "count":
        return "long"
    if aggregate.function == "sum":
        _, scale = decimal_of(attribute) or (0, 0)
        return f"decimal({_MOST_DIGITS},{scale})"
    return attribute


def large_sums(stream: Stream) -> dict[str, Decimal]:
    """The sums that can reach the largest number of their type, by name, and that number.

    What reaches or passes it, or its negative, has overflowed: null in `sessions`, and in `session_fragments`
    that number itself, so that whoever joins fragments knows.
    """
    from dedup_platform.stream import decimal_of

    found = {}
    for name, aggregate in stream.aggregates.items():
        precision, scale = decimal_of(stream.attributes[aggregate.attribute].type) or (0, 0)
        if aggregate.function == "sum" and precision + _DIGITS_OF_COUNTS > _MOST_DIGITS:
            found[name] = Decimal((0, (9,) * _MOST_DIGITS, -scale))
    return found


def column_names(stream: Stream, table: str) -> list[str]:
    """The names of a table's columns, in order."""
    return [column.name for column in columns(stream, table)]
