"""What each table and each column holds, in a sentence: Iceberg's comments, and what people are shown elsewhere.

They decide no row, so they are in no fingerprint, and nothing is stale when one is worded anew.
"""

from collections.abc import Iterator

from dedup_platform import tables
from dedup_platform.stream import Stream
from dedup_platform.tables import Column

__all__ = ["TABLE_COMMENTS", "column_comments"]

TABLE_COMMENTS = {
    tables.RAW_EVENTS: "Every delivered record, exactly once, with its payload and, where it is no event, the reason.",
    tables.DUPLICATE_EVENTS: "The records that an earlier arrival of the same event beats, and which record that is.",
    tables.DEDUPLICATED_EVENTS: "One record of every event: the one that arrived first.",
    tables.SESSION_FRAGMENTS: "The sessions of each partition, seen alone.",
    tables.SESSIONS: "Whole sessions, in the partition where they start, under ids that late events do not change.",
    tables.EVENT_CHANGES: "What every commit of deduplicated_events changed, as versions that consumers follow.",
    tables.SESSION_CHANGES: "What every commit of sessions changed, as versions that consumers follow.",
    tables.SESSION_ALIASES: "Every session_id that is no more, and the session that has its events now.",
    tables.AUDIT: "What each commit came to: records, copies, cells left as they were, changes that matter to none.",
}

_COMMENTS = {
    "entity_id": "Who or what the event is of: sessions are of one entity. Null if the record names none.",
    "event_id": "The event's own id. Records with the same key are copies of one event.",
    "event_time": "When the event happened, UTC.",
    "arrival_time": "When the source first had the record, UTC.",
    "payload": "The record's bytes as they were delivered; null once they were dropped.",
    "payload_context": "What decoding the payload again takes besides it, as JSON; of a damaged file what is wrong.",
    "source": "The file's path below the source's root, or the topic.",
    "source_partition": "The file's generation, one more each time it was accepted anew; or the topic's partition.",
    "source_offset": "The record's number in the file, from 0; or its offset in the topic's partition.",
    "source_index": "The event's place in a record that holds several, from 0.",
    "rejection_reason": "Why the record is no event; null if it is one.",
    "kind": "copy, or conflict if a typed column differs from that of the record that beat this one.",
    "winner_source": "source of the earliest record that beats this one.",
    "winner_source_partition": "source_partition of the earliest record that beats this one.",
    "winner_source_offset": "source_offset of the earliest record that beats this one.",
    "winner_source_index": "source_index of the earliest record that beats this one.",
    "first_event_time": "When the first event happened, UTC.",
    "last_event_time": "When the last event happened, UTC.",
    "event_count": "How many events there are.",
    "first_arrived": "The event that arrived first: it gives the session its id.",
    "session_id": "The session's id, made of its entity and of its event that arrived first.",
    "started_at": "When the session's first event happened, UTC.",
    "ended_at": "When the session's last event happened, UTC.",
    "first_arrived_at": "When the event arrived that arrived first, UTC.",
    "first_arrived_event_time": "When the event happened that arrived first, UTC; null in rows of earlier versions.",
    "_change_type": "insert, update_preimage, update_postimage or delete.",
    "_commit_version": "The number of the commit that changed the row: 1, 2, 3, without gaps.",
    "_change_ordinal": "The order in which changes of a version are to be applied; it may have gaps.",
    "_commit_timestamp": "When the commit was made, UTC.",
    "_commit_snapshot_id": "The snapshot that the commit made.",
    "reason": "Why the row changed: new, corrected, erased, moved, grown, shrunk, merged or split.",
    "merged_into": "Of an id that is no more: the session that has its first event now; null if none has.",
    "split_from": "Of a new id: the session that had its events before.",
    "changed_columns": "Of an update: the columns that differ.",
    "is_db_update": "Whether a stored column changed.",
    "is_downstream": "Whether a column changed that publish.downstream names; inserts and deletes always.",
}
_OF_TABLE: dict[str, dict[str, str]] = {
    tables.SESSION_ALIASES: {
        "session_id": "The id that is no more.",
        "entity_id": "The entity of its session.",
        "current_id": "The session that has its events now, over all merges since; null if there is none.",
        "outcome": "What became of it in the end: merged into current_id, split, or erased.",
        "last_id": "The last session that it was merged into; itself if into none.",
        "merges": "How many merges lead from it to last_id.",
        "reason": "Why the id is no more, as session_changes says.",
        "retired_at": "When the commit was made that took the id away, UTC.",
        "retired_by_version": "The version of session_changes that took the id away.",
    },
    tables.AUDIT: {
        "committed_at": "When the commit was made, UTC.",
        "table": "The table that was committed to.",
        "snapshot_id": "The snapshot that the commit made.",
        "reason": "Why the commit was made.",
        "records_read": "Records that were taken in.",
        "rejected": "Those of them that are no events.",
        "copies": "How many more copies there are than before.",
        "conflicts": "How many more conflicts there are than before.",
        "cells_checked": "Cells that were recomputed.",
        "cells_unchanged": "Those of them that came out as they were, and were not written.",
        "rows_added": "Rows that came, those that were replaced among them.",
        "rows_removed": "Rows that went, those that were replaced among them.",
        "changes": "Changes that a feed tells of the commit.",
        "not_downstream": "Those of them in columns that publish.downstream does not name.",
    },
}
_OF_FIRST_ARRIVED = {"session_id": "The id of a session whose event arrived first is this one."}


def column_comments(stream: Stream, table: str) -> dict[str, str]:
    """What each column of a table holds, by its name; fields of a struct are named `struct.field`."""
    followed = tables.FOLLOWED.get(table)
    told = {column: name for name, column in tables.told_names(stream, table).items()} if followed else {}
    known = _COMMENTS | _OF_TABLE.get(table, {}) | _of_stream(stream, followed or table)
    known |= {column: _COMMENTS[name] for column, name in told.items()}
    of_fields = _COMMENTS | _OF_FIRST_ARRIVED
    found = {
        path: (of_fields if "." in path else known).get(name) for path, name in _paths(tables.columns(stream, table))
    }
    return {path: text for path, text in found.items() if text}


def _of_stream(stream: Stream, table: str) -> dict[str, str]:
    """Of the columns that the stream file names: attributes of events, aggregates of sessions."""
    if table in tables.OF_SESSIONS:
        aggregates = stream.aggregates.items()
        return {name: f"{each.function} of {each.attribute} over the events." for name, each in aggregates}
    if table in tables.ALL:
        return {name: f"The attribute {name} of the stream file." for name in stream.attributes}
    return {}


def _paths(columns: tuple[Column, ...], above: str = "") -> Iterator[tuple[str, str]]:
    for column in columns:
        path = f"{above}{column.name}"
        yield path, column.name
        if not isinstance(column.type, str):
            yield from _paths(column.type, f"{path}.")
