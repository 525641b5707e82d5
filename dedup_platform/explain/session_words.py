"""What is told of a session: a sentence, then where its id comes from, its events, its earlier ids and its changes."""

from collections.abc import Iterator, Sequence

from dedup_platform.explain.history import RowChange
from dedup_platform.explain.sentences import (
    Step,
    Told,
    Words,
    looked_into,
    many,
    moment,
    printable,
    quoted,
    stale_tables,
)
from dedup_platform.explain.session import Session, SessionAnswer, SessionEvent

EVENTS_SHOWN = 20
CHANGES_SHOWN = 20


def told_of_session(answer: SessionAnswer, words: Words) -> Told:
    """A sentence and steps."""
    if words.stream.sessions is None:
        return Told(f"{words.stream.name} has no sessions: its stream file names none.", ())
    steps: list[Step] = []
    if answer.session:
        steps += _session(answer.session, words)
        steps += _earlier(answer)
    steps += _changes(answer.changes, answer.session_id, words)
    if answer.session and answer.changes_now:
        steps += _changes(answer.changes_now, answer.session.session_id, words)
    if not answer.session and not answer.changes:
        steps += _advice(words)
    if answer.is_feed_behind:
        steps.append(["session_changes does not tell the newest commits yet: `dedup-platform publish` has it do so."])
    return Told(_sentence(answer, words), (*steps, *stale_tables(answer.stale), [looked_into(answer.read)]))


def _sentence(answer: SessionAnswer, words: Words) -> str:
    name = printable(answer.session_id)
    if answer.became:
        last = answer.became[-1]
        went = f"Session {name} was merged in version {answer.became[0].version}, {moment(answer.became[0].at)}"
        if answer.session is None:
            return f"{went}; {last.merged_into}, which it became, is no session any more."
        return f"{went}: it is session {last.merged_into} now. {_about(answer.session)}"
    if answer.session:
        return _about(answer.session)
    if answer.changes:
        last_change = answer.changes[-1]
        heirs = f" into {', '.join(answer.split_into)}" if answer.split_into else ""
        return f"Session {name} is no more since version {last_change.version}: {last_change.reason}{heirs}."
    return f"No session of {words.stream.name} has or had the id {name}."


def _about(session: Session) -> str:
    times = f"{moment(session.started_at)} to {moment(session.ended_at)}"
    count = many(session.event_count, "event")
    return f"Session {session.session_id} of {printable(session.entity_id)} has {count}, {times}."


def _session(session: Session, words: Words) -> Iterator[Step]:
    first = session.first_arrived
    if first:
        yield [
            f"Its id comes from the event that arrived first: {_event(first)} ({words.record(first.coordinates)}), "
            f"at {moment(first.arrival_time)}.",
        ]
    yield _bounds(session, words)
    if len(session.events) != session.event_count:
        found = many(len(session.events), "event")
        yield [f"deduplicated_events has {found} there now: the session has not taken in all that changed."]
    yield [f"Its {many(len(session.events), 'event')} by time:", *_events(session.events, words)]
    yield [
        *([f"Written by {words.commit(session.commit)}."] if session.commit else []),
        *(f"Its events by {words.commit(each)}." for each in session.event_commits),
    ]
    if session.events:
        place = f"--entity {quoted(session.entity_id)} --at {words.partition(session.started_at)}"
        event = quoted(session.events[0].event_id)
        yield ["Of one of them:", f"dedup-platform explain event {words.stream.name} {event} {place}"]


def _bounds(session: Session, words: Words) -> Step:
    near = session.events_near
    if near:
        names = ", ".join(f"{_event(each)} at {moment(each.event_time)}" for each in near[:EVENTS_SHOWN])
        return [f"Within the timeout of {words.timeout} there are events that it has not taken in yet: {names}."]
    return [f"No other event of the entity is within the timeout of {words.timeout}, before it or after it."]


def _events(events: Sequence[SessionEvent], words: Words) -> Iterator[str]:
    for each in events[:EVENTS_SHOWN]:
        copies = f", {many(each.duplicates, 'duplicate')}" if each.duplicates else ""
        yield f"{moment(each.event_time)} {_event(each)}, {words.record(each.coordinates)}{copies}"
    if len(events) > EVENTS_SHOWN:
        yield f"and {len(events) - EVENTS_SHOWN:,} more"


def _event(event: SessionEvent) -> str:
    return printable(event.event_id)


def _earlier(answer: SessionAnswer) -> Iterator[Step]:
    if answer.earlier:
        told = (
            f"{each.session_id} into {each.merged_into}, version {each.version}, {moment(each.at)}"
            for each in answer.earlier
        )
        yield ["Ids that were merged into it:", *told]


def _changes(changes: Sequence[RowChange], session_id: str, words: Words) -> Iterator[Step]:
    if changes:
        left_out = len(changes) - CHANGES_SHOWN
        more = [f"({left_out:,} earlier ones)"] if left_out > 0 else []
        shown = (_change(each, words) for each in changes[-CHANGES_SHOWN:])
        yield [f"How {session_id} changed:", *more, *shown]


def _change(change: RowChange, words: Words) -> str:
    row, run = change.row, words.run(change)
    about = f"{many(row['event_count'], 'event')}, {moment(row['started_at'])} to {moment(row['ended_at'])}"
    links = {"merged into": change.merged_into, "split from": change.split_from}
    linked = "".join(f", {what} {other}" for what, other in links.items() if other)
    by = f"snapshot {change.snapshot_id}" + (f", run {run}" if run else "")
    return f"version {change.version}, {moment(change.at)}: {change.kind}, {change.reason}{linked}; {about}; {by}"


def _advice(words: Words) -> Iterator[Step]:
    yield ["An id is 32 hexadecimal digits, as column session_id has it."]
    yield [f"An event leads to its session: `dedup-platform explain event {words.stream.name} ID --entity ENTITY`."]
