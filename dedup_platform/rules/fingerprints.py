"""The fingerprint of what decides a derived table's rows: its settings and the version of its rule (rule 10)."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from dedup_platform import tables
from dedup_platform.stream import Stream
from dedup_platform.tables import Column

DEDUPLICATION_VERSION = 1
FRAGMENTS_VERSION = 1
SESSIONS_VERSION = 1
"""Of the rules of this package that make each table's rows. Raised whenever the same settings and the same input give
other rows: every cell that an older version built is stale then."""
LARGE_SUMS_VERSION = 2
"""Of the rule for sums that overflow their type (2: null). In the fingerprints of streams with such sums only, so that
no other stream is rebuilt for it."""


def fingerprint(stream: Stream, table: str) -> str:
    """A text that differs whenever the same input could give other rows."""
    deciding = json.dumps(_deciding(stream, table), sort_keys=True, default=str)
    return hashlib.sha256(deciding.encode()).hexdigest()[:16]


def _deciding(stream: Stream, table: str) -> list[object]:
    decided = _without(tables.columns(stream, table), tables.ADDED_LATER.get(table, ()))
    columns = [f"{column.name} {column.type}" for column in decided]
    if table == tables.DEDUPLICATED_EVENTS:
        return [DEDUPLICATION_VERSION, columns, stream.deduplicate.key, stream.deduplicate.window]
    aggregates: dict[str, object] = {name: str(each) for name, each in stream.aggregates.items()}
    aggregates |= {name: (aggregates[name], LARGE_SUMS_VERSION) for name in tables.large_sums(stream)}
    return {
        tables.SESSION_FRAGMENTS: [
            FRAGMENTS_VERSION,
            columns,
            stream.deduplicate.key,
            stream.session_timeout,
            aggregates,
        ],
        tables.SESSIONS: [SESSIONS_VERSION, columns, stream.session_timeout, aggregates],
    }[table]


def _without(columns: Sequence[Column], path: Sequence[str]) -> tuple[Column, ...]:
    """Some columns without the one that these names lead to."""
    return tuple(
        column if isinstance(column.type, str) else replace(column, type=_without(column.type, path[1:]))
        for column in columns
        if [column.name] != list(path)
    )
