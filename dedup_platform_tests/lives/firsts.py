"""Where the first-arrived event of every retired session is, worked out from records and events alone (rule 5)."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from hashlib import sha256

from dedup_platform.planning.moments import EPOCH
from dedup_platform.stream import Stream
from dedup_platform.tables import DEDUPLICATED_EVENTS, SESSIONS
from dedup_platform.testing.judge import as_record
from dedup_platform.testing.oracle import Rules, Session, group, identity, sessionize
from dedup_platform.testing.records import Record
from dedup_platform_tests.lives.state import Row, State

MICROSECOND = timedelta(microseconds=1)


class FirstEvents:
    """Remembers every record by the id that a session has which it is the first event of, and which session held it."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self._holders: dict[int, dict[str, str]] = {}
        """Snapshot of the sessions -> id of an event, as above -> session."""

    def remember(self, stream: Stream, state: State, snapshot: int) -> None:
        """The records that there are, and the events of each session at this snapshot, as far as they are known."""
        rules = Rules.of(stream)
        self._records |= {session_id(each, rules): each for each in state.records if each.entity_id is not None}
        if snapshot not in self._holders:
            self._holders[snapshot] = _holders(state, rules)

    def of(self, sessions: Iterable[Row], changes: Sequence[Row]) -> Iterator[str]:
        """What is wrong with `merged_into` of these changes, a line each; `sessions` are those after them."""
        by_entity = group(sessions, lambda row: row["entity_id"])
        for change in changes:
            if change["_change_type"] != "delete":
                continue
            name, told = change["session_id"], change["merged_into"]
            first = self._records[name]
            heirs = [row["session_id"] for row in by_entity[change["entity_id"]] if _holds(row, first)]
            if [told] != (heirs or [None]):
                yield f"{name} is merged into {told}, but its first event is in {heirs}"
            holder = self._holders.get(change["_commit_snapshot_id"], {}).get(name)
            if holder and holder != told:
                yield f"{name} is merged into {told}, but {holder} holds its first event"


def session_id(event: Record, rules: Rules) -> str:
    """The id of a session whose first-arrived event this is."""
    values = (
        (value - EPOCH) // MICROSECOND if isinstance(value, datetime) else value for value in identity(event, rules)
    )
    text = "".join("-" if value is None else f"{len(str(value))}:{value}" for value in values)
    return sha256(text.encode()).hexdigest()[:32]


def _holds(session: Row, first: Record) -> bool:
    """Whether a session with another id can hold an event: it spans its time, and has one that arrived no later."""
    spans = session["started_at"] <= first.event_time <= session["ended_at"]
    return bool(spans and session["first_arrived_at"] <= first.arrival_time)


def _holders(state: State, rules: Rules) -> dict[str, str]:
    """Id of each event -> the session that holds it, of entities whose sessions are those of the events as they are."""
    found: dict[str, str] = {}
    columns = ("session_id", "started_at", "ended_at", "event_count")
    there = {
        entity: {tuple(row[name] for name in columns) for row in rows}
        for entity, rows in group(state.all(SESSIONS), lambda row: row["entity_id"]).items()
    }
    made = group(sessionize(map(as_record, state.all(DEDUPLICATED_EVENTS)), rules), lambda each: each.entity_id)
    for entity, sessions in made.items():
        if there.get(entity) == {_shown(each, rules) for each in sessions}:
            for each in sessions:
                found |= dict.fromkeys((session_id(event, rules) for event in each.events), _shown(each, rules)[0])
    return found


def _shown(session: Session, rules: Rules) -> tuple[str, datetime, datetime, int]:
    name = session_id(session.first_arrived, rules)
    return name, session.started_at, session.ended_at, len(session.events)
