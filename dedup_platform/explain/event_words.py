"""What is told of an event: a sentence, then a step for each record, session and change."""

from collections import Counter
from collections.abc import Iterator

from dedup_platform import tables
from dedup_platform.explain.event import Event, EventAnswer
from dedup_platform.explain.history import RowChange
from dedup_platform.explain.records import JudgedRecord
from dedup_platform.explain.sentences import (
    Step,
    Told,
    Words,
    capitalized,
    entity,
    looked_into,
    many,
    moment,
    printable,
    quoted,
    span,
    stale_tables,
)

VERDICTS = {
    "kept": "kept",
    "copy": "copy",
    "conflict": "conflict",
    "waiting": "not judged yet",
    "gone": "no event any more",
}


def told_of_event(answer: EventAnswer, words: Words) -> Told:
    """A sentence and steps."""
    if not answer.events:
        return _told_of_none(answer, words)
    steps = [step for event in answer.events for step in steps_of_event(event, words)]
    steps += _others(answer, words)
    first = " ".join(_sentence(event, words) for event in answer.events)
    return Told(first, (*steps, *stale_tables(answer.stale), [looked_into(answer.read)]))


def _sentence(event: Event, words: Words) -> str:
    verdicts = Counter(each.verdict for each in event.records)
    told = ", ".join(f"{count:,} {VERDICTS[verdict]}" for verdict, count in verdicts.items())
    return f"Event {words.event(event.key)} was delivered in {many(len(event.records), 'record')}: {told}."


def steps_of_event(event: Event, words: Words) -> Iterator[Step]:
    """A step for each record, session and change of an event."""
    sessions = {each.coordinates: each for each in event.sessions}
    for record in event.records:
        yield [*_record(record, event, words)]
    for place, session in sessions.items():
        times = f"{moment(session.started_at)} to {moment(session.ended_at)}"
        yield [
            f"Session {session.session_id} has {words.record(place)}: {times}, {many(session.event_count, 'event')}.",
            f"dedup-platform explain session {words.stream.name} {session.session_id}",
        ]
    if event.key["entity_id"] is None and any(each.verdict == "kept" for each in event.records):
        yield ["It has no entity, so it is in no session."]
    yield from (_change(each, words) for each in event.changes)


def _record(record: JudgedRecord, event: Event, words: Words) -> Iterator[str]:
    yield f"{capitalized(words.record(record.coordinates))}: {VERDICTS[record.verdict]}."
    late = "in time"
    if record.late_by:
        late = f"late by {span(record.late_by)}, as partition {words.partition(record.event_time)} was closed"
    yield f"It happened {moment(record.event_time)} and arrived {moment(record.arrival_time)}, {late}."
    yield from _why(record, event, words)
    if record.delivered:
        yield f"Delivered by {words.commit(record.delivered)}."
    if record.judged:
        yield f"Decided by {words.commit(record.judged)}."


def _why(record: JudgedRecord, event: Event, words: Words) -> Iterator[str]:
    key = ", ".join(words.stream.deduplicate.key)
    if record.verdict == "kept":
        yield f"No record of the same {key} at most {words.window} away from it arrived before it."
    elif record.verdict == "waiting":
        yield "It is in raw_events, and the next run decides about it: `dedup-platform run`."
    elif record.verdict == "gone":
        yield "raw_events has it no longer with this key: it was decoded again, and the next run takes it out."
    if record.winner:
        yield from _beaten(record, event, words)


def _beaten(record: JudgedRecord, event: Event, words: Words) -> Iterator[str]:
    assert record.winner
    winner = next((each for each in event.records if each.coordinates == record.winner), None)
    name = words.record(record.winner)
    if winner is None:
        yield f"It was beaten by {name}, which is no record of this key any more."
        return
    apart = abs(record.event_time - winner.event_time)
    place = f"lies {span(apart)} away, within the window of {words.window}" if apart else "happened at the same time"
    earlier = (
        f"arrived {span(record.arrival_time - winner.arrival_time)} before it"
        if record.decided_by == "arrival_time"
        else f"arrived at the same moment, and whose {record.decided_by} comes first"
    )
    yield f"Beaten by {name}, which {earlier} and {place}."
    if winner.winner:
        yield "That one is a duplicate itself: a chain longer than the window; only what nothing beats is kept."
    if record.differs:
        yield f"It differs from that one in {', '.join(record.differs)}."


def _change(change: RowChange, words: Words) -> Step:
    place = (change.row[name] for name in tables.COORDINATES)
    name = words.record(tuple(place))
    what = {"insert": "came", "delete": "went", "update": "changed"}[change.kind]
    columns = f" ({', '.join(change.changed_columns)})" if change.changed_columns else ""
    run = words.run(change)
    return [
        f"Version {change.version} of event_changes, {moment(change.at)}: {name} {what}{columns}, {change.reason}.",
        f"Snapshot {change.snapshot_id}" + (f", run {run}." if run else "."),
    ]


def _others(answer: EventAnswer, words: Words) -> Iterator[Step]:
    if answer.others:
        names = [words.event(key) for key in answer.others[:_LISTED]]
        more = f" and {len(answer.others) - _LISTED:,} more" if len(answer.others) > _LISTED else ""
        yield [
            f"{many(len(answer.others), 'more event')} have this id: {'; '.join(names)}{more}.",
            "Name the entity: `--entity ENTITY`.",
        ]


_LISTED = 5


def _told_of_none(answer: EventAnswer, words: Words) -> Told:
    event = printable(answer.event_id)
    whose = f" of {entity(answer.entity)}" if isinstance(answer.entity, str | None) else ""
    last = answer.changes[-1] if answer.changes else None
    if last is not None and last.kind == "delete":
        first = f"Event {event}{whose} is no event any more, since version {last.version} of event_changes."
    else:
        first = f"There is no event {event}{whose} in {words.stream.name}."
    steps = [_change(each, words) for each in answer.changes]
    steps += [
        [
            "Its record may be rejected: `dedup-platform rejected list "
            + words.stream.name
            + "` shows what is, and why."
        ],
        ["It may not be taken in yet: `dedup-platform status` shows what waits, `dedup-platform run` takes it in."],
    ]
    if whose:
        again = f"dedup-platform explain event {words.stream.name} {quoted(answer.event_id)}"
        steps.append(["Another entity may have it:", again])
    return Told(first, (*steps, *stale_tables(answer.stale), [looked_into(answer.read)]))
