"""The fingerprint of what decides a derived table's rows: its settings and its stage's version (rule 10)."""

import hashlib
import json

from dedup_platform import tables
from dedup_platform.stages import deduplicated, fragments, sessions
from dedup_platform.stages.aggregates import LARGE_SUMS_VERSION
from dedup_platform.stream import Stream


def fingerprint(stream: Stream, table: str) -> str:
    """A text that differs whenever the same input could give other rows."""
    deciding = json.dumps(_deciding(stream, table), sort_keys=True, default=str)
    return hashlib.sha256(deciding.encode()).hexdigest()[:16]


def _deciding(stream: Stream, table: str) -> list[object]:
    columns = [f"{column.name} {column.type}" for column in tables.columns(stream, table)]
    aggregates: dict[str, object] = {name: str(each) for name, each in stream.sessions.aggregates.items()}
    # What decides them changed once, and the rows of streams without any did not.
    aggregates |= {name: (aggregates[name], LARGE_SUMS_VERSION) for name in tables.large_sums(stream)}
    return {
        tables.DEDUPLICATED_EVENTS: [deduplicated.VERSION, columns, stream.deduplicate.key, stream.deduplicate.window],
        tables.SESSION_FRAGMENTS: [
            fragments.VERSION,
            columns,
            stream.deduplicate.key,
            stream.sessions.timeout,
            aggregates,
        ],
        tables.SESSIONS: [sessions.VERSION, columns, stream.sessions.timeout, aggregates],
    }[table]
