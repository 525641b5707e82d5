"""A platform's tables against the oracle: row for row, with the first differences in words."""

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from dedup_platform import tables
from dedup_platform.stream import Stream
from dedup_platform.tables import ADDED_LATER
from dedup_platform.testing.oracle import Expected, Identity, Rules, Session, identity, oracle
from dedup_platform.testing.records import Record

if TYPE_CHECKING:
    from dedup_platform.platform import Platform

Row = Mapping[str, Any]
COORDINATES = ("source", "source_partition", "source_offset", "source_index")
NAN = "NaN"
SHOWN = 5


def row_texts(rows: Iterable[Row]) -> list[str]:
    """Each row as JSON, sorted: the same rows give the same texts."""
    return sorted(json.dumps(row, default=str, sort_keys=True, ensure_ascii=False) for row in rows)


def digest(texts: Iterable[str]) -> str:
    """SHA-256 of `row_texts`, by which rows are told to be the same as those of another time."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


class SessionIds:
    """Remembers which id each identity had, over all states of a stream: one id each, for ever (rule 5)."""

    def __init__(self) -> None:
        self.of_identity: dict[Identity, str] = {}
        self.of_id: dict[str, Identity] = {}

    def differences(self, found: Iterable[tuple[Identity, str]]) -> list[str]:
        """What contradicts the ids seen before; new ones are remembered."""
        wrong = []
        for key, session_id in found:
            if self.of_identity.setdefault(key, session_id) != session_id:
                wrong.append(f"session id: {key} was {self.of_identity[key]}, is {session_id}")
            if self.of_id.setdefault(session_id, key) != key:
                wrong.append(f"session id: {session_id} belongs to {self.of_id[session_id]} and to {key}")
        return wrong


def differences(platform: "Platform", stream: Stream, records: Sequence[Record], ids: SessionIds) -> list[str]:
    """How the stream's derived tables differ from what the oracle says of these records; empty if they do not."""
    return table_differences(stream, published_rows(platform, stream.name), records, ids)


def published_rows(platform: "Platform", name: str) -> dict[str, list[Row]]:
    """Table -> its rows as readers see them now, read without Spark; empty before there are tables."""
    catalog, lake, stream = platform.lake.catalog, platform.lake, platform.stream(name)
    names = tables.all_of(stream)
    if not all(catalog.load(name, table) for table in names):
        return {}
    scans = {each: catalog.load_table(name, each).scan(snapshot_id=lake.current(stream, each)) for each in names}
    return {table: scan.to_arrow().to_pylist() for table, scan in scans.items()}


def table_differences(
    stream: Stream,
    found: Mapping[str, Sequence[Row]],
    records: Sequence[Record],
    ids: SessionIds,
    *,
    is_upgraded: bool = False,
) -> list[str]:
    """How these rows of the derived tables differ from what the oracle says of these records.

    Of tables that an earlier version began (`is_upgraded`), null in a column that it did not know is no difference.
    """
    rules = Rules.of(stream)
    expected = oracle(records, rules)
    wrong = ids.differences(identified(expected, rules, found)) if stream.sessions else []
    for table, rows in expected_tables(stream, records, expected).items():
        if is_upgraded:
            rows = _as_known(rows, found[table], table)
        lines = row_differences(map(comparable, found[table]), map(comparable, rows), key_columns(table))
        wrong += [f"{table}: {line}" for line in lines]
    return wrong


def expected_tables(stream: Stream, records: Iterable[Record], expected: Expected) -> dict[str, list[Row]]:
    """The rows of every derived table of the stream, without session ids."""
    by_coordinate = {each.coordinate: each for each in records}
    names = tuple(stream.attributes)
    rows: dict[str, list[Row]] = {
        "deduplicated_events": [event_row(each, names) for each in expected.deduplicated],
        "duplicate_events": [
            {**event_row(by_coordinate[loser], names), "kind": kind, **coordinate_row(winner, "winner_")}
            for loser, (winner, kind) in expected.duplicates.items()
        ],
        "session_fragments": [fragment_row(each) for rows in expected.fragments.values() for each in rows],
        "sessions": [session_row(each) for each in expected.sessions],
    }
    return {table: found for table, found in rows.items() if table in tables.all_of(stream)}


def _as_known(expected: Iterable[Row], found: Iterable[Row], table: str) -> list[Row]:
    """The expected rows, with null in the column that was added later wherever it is null in the row found."""
    key, path = key_columns(table), ADDED_LATER.get(table, ())
    unknown = {tuple(row[name] for name in key) for row in found if path and _value(row, path) is None}
    return [_with_null(row, path) if tuple(row[name] for name in key) in unknown else row for row in expected]


def _value(row: Row, path: Sequence[str]) -> Any:
    return reduce(lambda struct, name: struct[name], path, row)


def _with_null(row: Row, path: Sequence[str]) -> Row:
    return {**row, path[0]: _with_null(row[path[0]], path[1:]) if path[1:] else None}


def event_row(event: Record, attributes: Iterable[str]) -> Row:
    return {
        "entity_id": event.entity_id,
        "event_id": event.event_id,
        "event_time": event.event_time,
        "arrival_time": event.arrival_time,
        **{name: event.attributes.get(name) for name in attributes},
        **coordinate_row(event.coordinate),
    }


def coordinate_row(coordinate: Sequence[Any], prefix: str = "") -> Row:
    return {f"{prefix}{name}": value for name, value in zip(COORDINATES, coordinate, strict=True)}


def fragment_row(fragment: Session) -> Row:
    first = fragment.first_arrived
    return {
        "entity_id": fragment.entity_id,
        "first_event_time": fragment.started_at,
        "last_event_time": fragment.ended_at,
        "event_count": len(fragment.events),
        "first_arrived": {
            "arrival_time": first.arrival_time,
            **coordinate_row(first.coordinate),
            "event_time": first.event_time,
        },
        **fragment.aggregates,
    }


def session_row(session: Session) -> Row:
    return {
        "entity_id": session.entity_id,
        "started_at": session.started_at,
        "ended_at": session.ended_at,
        "event_count": len(session.events),
        "first_arrived_at": session.first_arrived.arrival_time,
        "first_arrived_event_time": session.first_arrived.event_time,
        **session.aggregates,
    }


def identified(expected: Expected, rules: Rules, found: Mapping[str, Sequence[Row]]) -> list[tuple[Identity, str]]:
    """Each session id in the tables with the identity that the oracle gives to its session or fragment."""
    sessions = {(each.entity_id, each.started_at): each.identity for each in expected.sessions}
    first = {each.coordinate: identity(each, rules) for each in expected.deduplicated}
    pairs = [(sessions.get((row["entity_id"], row["started_at"])), row["session_id"]) for row in found["sessions"]]
    for row in found["session_fragments"]:
        struct = row["first_arrived"]
        pairs.append((first.get(tuple(struct[name] for name in COORDINATES)), struct["session_id"]))
    return [(key, session_id) for key, session_id in pairs if key is not None]


def comparable(row: Row) -> Row:
    """The row without its session id, which only `SessionIds` can judge, and with a NaN that is equal to others."""
    return {name: _comparable(value) for name, value in row.items() if name != "session_id"}


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return comparable(value)
    return NAN if isinstance(value, float) and math.isnan(value) else value


def key_columns(table: str) -> tuple[str, ...]:
    return {"sessions": ("entity_id", "started_at"), "session_fragments": ("entity_id", "first_event_time")}.get(
        table, COORDINATES
    )


def row_differences(found: Iterable[Row], expected: Iterable[Row], key: Sequence[str]) -> list[str]:
    """Missing and unexpected rows, and the columns that differ in rows with the same key; at most `SHOWN` lines."""
    found_rows, expected_rows = by_key(found, key), by_key(expected, key)
    lines = []
    for each in sorted({*found_rows, *expected_rows}, key=repr):
        have, want = found_rows[each], expected_rows[each]
        if have != want:
            lines.append(f"{' '.join(map(str, each))}: {row_difference(have, want)}")
    more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return lines[:SHOWN] + more


def by_key(rows: Iterable[Row], key: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in key)].append(row)
    return groups


def row_difference(found: Sequence[Row], expected: Sequence[Row]) -> str:
    if len(found) != 1 or len(expected) != 1:
        return f"{len(found)} rows, expected {len(expected)}"
    have, want = found[0], expected[0]
    return "; ".join(
        f"{name} is {have.get(name, 'absent')}, expected {want.get(name, 'absent')}"
        for name in sorted({*have, *want})
        if have.get(name, "absent") != want.get(name, "absent")
    )
