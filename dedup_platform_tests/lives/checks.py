"""What must hold at every published snapshot, whatever happened before it (docs/semantics.md)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise

from dedup_platform import tables
from dedup_platform.planning.cells import Cell
from dedup_platform.planning.moments import EPOCH
from dedup_platform.planning.planner import TablePlan
from dedup_platform.stream import Stream
from dedup_platform.tables import COORDINATES, DEDUPLICATED_EVENTS, DUPLICATE_EVENTS, SESSION_FRAGMENTS, SESSIONS
from dedup_platform.testing.judge import as_record
from dedup_platform.testing.oracle import Rules, oracle, sessionize
from dedup_platform_tests.lives.state import Row, Rows, State

Shown = tuple[object, ...]


class Checks:
    """Looks at one state after the other; remembers what each bucket's sessions may be while something waits."""

    def __init__(self, timeouts: Sequence[timedelta]) -> None:
        self._timeouts = timeouts
        self._possible: dict[int, list[list[Shown]]] = {}
        self._buckets: frozenset[int] = frozenset()
        self._is_off = False

    def of(
        self, stream: Stream, state: State, plans: Sequence[TablePlan] | None, *, has_receipts: bool = True
    ) -> list[str]:
        """What is wrong, a line each. Without plans (no writer may work now) what needs none is looked at.

        `has_receipts`: none was ever lost, so it is known by which rules cells were built.
        """
        if state.buckets != self._buckets:
            self._possible, self._buckets = {}, state.buckets
        wrong = [*_repeated(state), *(_sessions_apart(state) if stream.sessions else ())]
        if plans is not None:
            stale = {plan.table: {each.cell for each in plan.stale} for plan in plans}
            wrong += _events(stream, state, stale[DEDUPLICATED_EVENTS])
            others = {plan.table: {each.cell for each in plan.stale if each.reason == "settings"} for plan in plans}
            of_other_rules = others if has_receipts else stale
            wrong += _judged_apart(stream, state, of_other_rules[DEDUPLICATED_EVENTS])
            if not stream.sessions:
                self._is_off = True
            else:
                wrong += _fragments(stream, state, stale[SESSION_FRAGMENTS])
                mixed = {cell.bucket for cell in others[SESSION_FRAGMENTS]}
                wrong += self._sessions(stream, state, stale[SESSIONS], mixed)
        return wrong

    def _sessions(self, stream: Stream, state: State, stale: set[Cell], mixed: set[int]) -> Iterator[str]:
        """Each bucket's sessions are those of its fragments: as they are, or while something waits as they were.

        Of buckets whose fragments are of other rules (`mixed`) nothing is said: within a partition nobody joins those.
        """
        waiting = {cell.bucket for cell in stale}
        found, fragments = _by_bucket(state.rows[SESSIONS]), _by_bucket(state.rows[SESSION_FRAGMENTS])
        if self._is_off:
            # Another number of buckets may have come meanwhile, with nothing repaired before it.
            self._is_off, self._possible = False, {bucket: [_shown(rows)] for bucket, rows in found.items()}
        for bucket in found.keys() | fragments.keys() | self._possible.keys():
            rows, inside = _shown(found.get(bucket, ())), fragments.get(bucket, ())
            if bucket in mixed:
                self._possible[bucket] = [rows]
                continue
            possible = [_stitched(inside, stream.session_timeout)]
            if bucket in waiting:
                # A run at work goes on under the rules that it began with.
                others = (_stitched(inside, timeout) for timeout in self._timeouts)
                possible = [*self._possible.get(bucket, [[]]), *possible, *others]
            self._possible[bucket] = possible
            if rows not in self._possible[bucket]:
                yield f"sessions of bucket {bucket}: {rows}, but of its fragments {self._possible[bucket]}"


def _repeated(state: State) -> Iterator[str]:
    raw = [*state.all(tables.RAW_EVENTS), *state.rejected]
    judged = [*state.all(DEDUPLICATED_EVENTS), *state.all(DUPLICATE_EVENTS)]
    for name, rows in (("raw_events", raw), ("events and duplicates", judged)):
        yield from (f"{name}: {n} rows of {place}" for place, n in Counter(map(_place, rows)).items() if n > 1)


def _sessions_apart(state: State) -> Iterator[str]:
    """No event is in two sessions: those of an entity do not overlap, and each has its id for itself."""
    ids = Counter(row["session_id"] for row in state.all(SESSIONS))
    yield from (f"sessions: {n} with the id {each}" for each, n in ids.items() if n > 1)
    by_entity = defaultdict(list)
    for row in state.all(SESSIONS):
        by_entity[row["entity_id"]].append((row["started_at"], row["ended_at"]))
    for entity, spans in by_entity.items():
        for before, after in pairwise(sorted(spans)):
            if after[0] <= before[1]:
                yield f"sessions of {entity} overlap: {before} and {after}"


def _events(stream: Stream, state: State, stale: set[Cell]) -> Iterator[str]:
    """Cells that are not called stale hold what the rules make of raw as it is now."""
    expected = oracle(state.records, Rules.of(stream))
    kept = {each.coordinate for each in expected.deduplicated}
    raw, events, duplicates = (state.rows[t] for t in (tables.RAW_EVENTS, DEDUPLICATED_EVENTS, DUPLICATE_EVENTS))
    for cell in (raw.keys() | events.keys() | duplicates.keys()) - stale:
        places = {_place(row) for row in raw.get(cell, ())}
        found = {_place(row) for row in events.get(cell, ())}
        beaten = {_place(row): tuple(row[f"winner_{name}"] for name in COORDINATES) for row in duplicates.get(cell, ())}
        if found != places & kept:
            yield f"events of {cell}: {found}, expected {places & kept}"
        verdicts = {place: winner for place, (winner, _) in expected.duplicates.items() if place in places}
        if beaten != verdicts:
            yield f"duplicates of {cell}: {beaten}, expected {verdicts}"


def _judged_apart(stream: Stream, state: State, mixed: set[Cell]) -> Iterator[str]:
    """Records that are copies of each other are judged by one commit, stale or not.

    Nothing is said of cells that are of other rules (`mixed`): those judge others to be copies.
    """
    events = [row for cell, rows in state.rows[DEDUPLICATED_EVENTS].items() if cell not in mixed for row in rows]
    of_key = defaultdict(list)
    for row in events:
        of_key[tuple(row[name] for name in stream.deduplicate.key)].append(row)
    for rows in of_key.values():
        for before, after in pairwise(sorted(rows, key=lambda row: row["event_time"])):
            if after["event_time"] - before["event_time"] <= stream.deduplicate.window:
                yield f"two events are copies: {_place(before)} and {_place(after)}"
    judged = {_place(row) for table in (DEDUPLICATED_EVENTS, DUPLICATE_EVENTS) for row in state.all(table)}
    for cell, rows in state.rows[DUPLICATE_EVENTS].items():
        for row in rows:
            winner = tuple(row[f"winner_{name}"] for name in COORDINATES)
            if cell not in mixed and winner not in judged:
                yield f"{_place(row)} is a duplicate of {winner}, which is nowhere"


def _fragments(stream: Stream, state: State, stale: set[Cell]) -> Iterator[str]:
    """Cells that are not called stale hold the fragments of the events that are published."""
    events, fragments = state.rows[DEDUPLICATED_EVENTS], state.rows[SESSION_FRAGMENTS]
    for cell in (events.keys() | fragments.keys()) - stale:
        made = sessionize(map(as_record, events.get(cell, ())), Rules.of(stream))
        expected = sorted((each.entity_id, each.started_at, each.ended_at, len(each.events)) for each in made)
        columns = ("entity_id", "first_event_time", "last_event_time", "event_count")
        found = sorted(tuple(row[name] for name in columns) for row in fragments.get(cell, ()))
        if found != expected:
            yield f"fragments of {cell}: {found}, expected {expected}"


def _stitched(fragments: Iterable[Row], timeout: timedelta) -> list[Shown]:
    """The sessions of these fragments, as `_shown` shows sessions."""
    found: list[list[Row]] = []
    for row in sorted(fragments, key=lambda each: (each["entity_id"], each["first_event_time"])):
        last = found[-1][-1] if found else None
        near = last and row["first_event_time"] - last["last_event_time"] <= timeout
        if last and near and last["entity_id"] == row["entity_id"]:
            found[-1].append(row)
        else:
            found.append([row])
    return sorted(_session(chain) for chain in found)


def _session(chain: Sequence[Row]) -> Shown:
    first = min((row["first_arrived"] for row in chain), key=lambda it: tuple(it[n] for n in tables.ARRIVAL_ORDER))
    span = (chain[0]["first_event_time"], chain[-1]["last_event_time"])
    count = sum(row["event_count"] for row in chain)
    return (chain[0]["entity_id"], *span, count, first["session_id"], first["event_time"])


def _shown(sessions: Iterable[Row]) -> list[Shown]:
    columns = ("entity_id", "started_at", "ended_at", "event_count", "session_id", "first_arrived_event_time")
    return sorted(tuple(row[name] for name in columns) for row in sessions)


def _by_bucket(rows: Rows) -> Mapping[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for cell, inside in rows.items():
        found[cell.bucket] += inside
    return found


def _place(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in COORDINATES)


def misplaced(stream: Stream, state: State) -> Iterator[str]:
    """Rows that lie in another partition's cell than their time says."""
    for table, cells in state.rows.items():
        for cell, rows in cells.items():
            for row in rows:
                if (row[tables.PARTITION_TIME[table]] - EPOCH) // stream.partitions.length != cell.partition:
                    yield f"{table}: a row of another partition lies in {cell}"
