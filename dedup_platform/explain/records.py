"""All records of one key, wherever they lie within the window of each other, and what was decided about each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from dedup_platform import tables
from dedup_platform.explain.commits import TableCommit, commits_of
from dedup_platform.explain.conditions import all_of, equal, in_partitions
from dedup_platform.explain.view import FILE, View, Views
from dedup_platform.planning.cells import closes
from dedup_platform.planning.moments import in_microseconds, microseconds
from dedup_platform.stream import Stream

Coordinates = tuple[str, int, int, int]
"""`source`, `source_partition`, `source_offset` and `source_index`."""
Verdict = Literal["kept", "copy", "conflict", "waiting", "gone"]
"""`waiting`: it is in `raw_events` and not judged yet. `gone`: it is judged, and is no event of this key any more."""
Row = dict[str, Any]

_WINNER = tuple(f"winner_{name}" for name in tables.COORDINATES)
_TIMES = ("event_time", "arrival_time")


@dataclass(frozen=True)
class JudgedRecord:
    """One record, what was decided about it, and by which commits."""

    coordinates: Coordinates
    event_time: datetime
    arrival_time: datetime
    partition: int
    """The ordinal of its partition."""
    verdict: Verdict
    late_by: timedelta | None
    """How long after its partition closed it arrived; None if before."""
    winner: Coordinates | None = None
    """Of a duplicate: the record that beat it."""
    decided_by: str | None = None
    """Of a duplicate: the first column of the arrival order in which it comes after that record."""
    differs: tuple[str, ...] = ()
    """Of a conflict: the columns in which it differs from that record."""
    values: Mapping[str, Any] | None = None
    """Its typed columns, as `raw_events` has them."""
    delivered: TableCommit | None = None
    """The commit that wrote the row of `raw_events`."""
    judged: TableCommit | None = None
    """The commit that wrote the row of `deduplicated_events` or `duplicate_events`."""

    @property
    def arrival_order(self) -> tuple[Any, ...]:
        """Its place among all records."""
        return self.arrival_time, *self.coordinates


def records_of(views: Views, key: Mapping[str, Any], times: Iterable[datetime]) -> list[JudgedRecord]:
    """The records of a key in arrival order: those near these times, those near them, and so on.

    Near is what lies in a partition that the window reaches: what is further away neither beats nor is beaten.
    """
    stream, seen = views.stream, set[int]()
    found: dict[str, dict[Coordinates, Row]] = {}
    wanted = _reached(stream, times)
    while new := wanted - seen:
        seen |= new
        for name, row in _rows(views, key, new):
            found.setdefault(name, {})[coordinates_of(row)] = row
            wanted |= _reached(stream, [row["event_time"]])
    return sorted(_judged(views, found), key=lambda each: each.arrival_order)


def coordinates_of(row: Mapping[str, Any], names: Sequence[str] = tables.COORDINATES) -> Coordinates:
    """The coordinates that a row has."""
    source, partition, offset, index = (row[name] for name in names)
    return source, partition, offset, index


def narrowest(stream: Stream) -> str:
    """The column of the key by which records are looked for."""
    key = stream.deduplicate.key
    return "event_id" if "event_id" in key else key[-1]


def _reached(stream: Stream, times: Iterable[datetime]) -> set[int]:
    """The partitions in which a record can lie that is at most the window away from one of these times."""
    length, window = in_microseconds(stream.partitions.length), in_microseconds(stream.deduplicate.window)
    moments = map(microseconds, times)
    return {
        partition
        for moment in moments
        for partition in range((moment - window) // length, (moment + window) // length + 1)
    }


def _rows(views: Views, key: Mapping[str, Any], partitions: set[int]) -> Iterator[tuple[str, Row]]:
    stream = views.stream
    where = all_of(equal(key), in_partitions(stream, "event_time", partitions))
    typed = ["entity_id", "event_id", *_TIMES, *stream.attributes, *tables.COORDINATES]
    narrow = [*_TIMES, *tables.COORDINATES]
    columns = {
        tables.RAW_EVENTS: typed,
        tables.DEDUPLICATED_EVENTS: narrow,
        tables.DUPLICATE_EVENTS: [*narrow, "kind", *_WINNER],
    }
    for name, names in columns.items():
        if view := views.of(name):
            for row in view.rows(where, names, narrowest(stream)).iter_rows(named=True):
                yield name, row


def _judged(views: Views, found: Mapping[str, Mapping[Coordinates, Row]]) -> Iterator[JudgedRecord]:
    names = (tables.RAW_EVENTS, tables.DEDUPLICATED_EVENTS, tables.DUPLICATE_EVENTS)
    raw, kept, beaten = (found.get(name, {}) for name in names)
    wrote = {name: _wrote(views.of(name), found.get(name, {})) for name in names}
    for place in {**raw, **kept, **beaten}:
        table = tables.DEDUPLICATED_EVENTS if place in kept else tables.DUPLICATE_EVENTS
        verdict = kept.get(place) or beaten.get(place)
        row: Row = raw.get(place) or verdict or {}
        winner = coordinates_of(beaten[place], _WINNER) if place in beaten and place not in kept else None
        yield JudgedRecord(
            coordinates=place,
            event_time=row["event_time"],
            arrival_time=row["arrival_time"],
            partition=views.stream.partitions.ordinal(row["event_time"]),
            verdict=_verdict(place, raw, kept, beaten),
            late_by=_late_by(views.stream, row),
            winner=winner,
            decided_by=_decided_by(row, raw.get(winner)) if winner else None,
            differs=_differing(views.stream, row, raw.get(winner)) if winner else (),
            values=_values(views.stream, raw.get(place)),
            delivered=wrote[tables.RAW_EVENTS].get(place),
            judged=wrote[table].get(place),
        )


def _wrote(view: View | None, rows: Mapping[Coordinates, Row]) -> dict[Coordinates, TableCommit]:
    if view is None or not rows:
        return {}
    commits = commits_of(view, rows.values())
    return {place: commits[row[FILE]] for place, row in rows.items()}


def _verdict(
    place: Coordinates,
    raw: Mapping[Coordinates, Row],
    kept: Mapping[Coordinates, Row],
    beaten: Mapping[Coordinates, Row],
) -> Verdict:
    if place not in raw:
        return "gone"
    if place in kept:
        return "kept"
    if place in beaten:
        return "conflict" if beaten[place]["kind"] == "conflict" else "copy"
    return "waiting"


def _late_by(stream: Stream, row: Row) -> timedelta | None:
    ordinal = stream.partitions.ordinal(row["event_time"])
    late = row["arrival_time"] - closes(ordinal, stream.partitions.length, stream.late.grace)
    return late if late > timedelta(0) else None


def _decided_by(loser: Row, winner: Row | None) -> str | None:
    return next((name for name in tables.ARRIVAL_ORDER if winner and loser[name] != winner[name]), None)


def _differing(stream: Stream, loser: Row, winner: Row | None) -> tuple[str, ...]:
    typed = ("entity_id", "event_id", "event_time", *stream.attributes)
    return tuple(name for name in typed if winner and _is_other(loser.get(name), winner.get(name)))


def _is_other(one: Any, other: Any) -> bool:
    # NaN is the same as NaN here, as it is for the rule.
    return bool(one != other and not (one != one and other != other))


def _values(stream: Stream, row: Row | None) -> dict[str, Any] | None:
    typed = ("entity_id", "event_id", *stream.attributes)
    return {name: row[name] for name in typed if name in row} if row else None
