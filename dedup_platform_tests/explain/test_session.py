"""Why sessions are as they are: merges, splits, moves, and ids that are no more."""

import pytest

from dedup_platform.explain.session import SessionAnswer
from dedup_platform.explain.session_words import told_of_session
from dedup_platform_tests.changes.test_feeds import EVENTS, MINUTE, TEN
from dedup_platform_tests.explain.histories import Explained


def text_of(answer: SessionAnswer, explained: Explained) -> str:
    words = told_of_session(answer, explained.words())
    return "\n".join([words.sentence, *(line for step in words.steps for line in step)])


def ids(explained: Explained) -> list[str]:
    """Of all sessions, by their start."""
    return [row["session_id"] for row in sorted(explained.sessions(), key=lambda row: row["started_at"])]


def test_a_session_its_events_and_its_changes(explained: Explained) -> None:
    explained.take_in(explained.event("b", 10), explained.event("b", 11))
    explained.take_in(explained.event("a", 0))
    [name] = ids(explained)
    answer = explained.session_answer(name)
    assert answer.session is not None
    assert [(each.event_id, each.duplicates) for each in answer.session.events] == [("a", 0), ("b", 1)]
    assert answer.session.first_arrived == answer.session.events[1]
    assert [(each.version, each.kind, each.reason) for each in answer.changes] == [
        (1, "insert", "new"),
        (2, "update", "grown"),
    ]
    assert answer.session.commit is not None
    assert answer.session.commit.snapshot_id == answer.changes[-1].snapshot_id
    assert answer.session.aggregates["pages"] == 0
    text = text_of(answer, explained)
    assert text.startswith(f"Session {name} of e has 2 events, 2024-01-02 10:00:00 to 2024-01-02 10:10:00.")
    assert "the event that arrived first: b (record 0 of 1.json)" in text
    assert "No other event of the entity is within the timeout of 30m" in text


def test_a_late_bridge_merges_and_the_retired_id_leads_to_the_other(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0), explained.event("b", 50), explained.event("c", 100))
    first, second, third = ids(explained)
    explained.take_in(explained.event("bc", 75))
    explained.take_in(explained.event("ab", 25))
    assert ids(explained) == [first]
    answer = explained.session_answer(first)
    assert [(each.session_id, each.merged_into, each.version) for each in answer.earlier] == [
        (third, second, 2),
        (second, first, 3),
    ]
    retired = explained.session_answer(third)
    assert [each.merged_into for each in retired.became] == [second, first]
    assert retired.session == answer.session
    assert [each.reason for each in retired.changes] == ["new", "merged"]
    assert [each.reason for each in retired.changes_now] == ["new", "merged"]
    text = text_of(retired, explained)
    assert text.startswith(f"Session {third} was merged in version 2, ")
    assert f"it is session {first} now. Session {first} of e has 5 events" in text


def test_a_session_that_was_split_names_its_heirs(explained: Explained) -> None:
    pages = {name: (TEN + minutes * MINUTE).isoformat() for name, minutes in (("a", 0), ("c", 40))}
    explained.take_in(
        explained.event("b", 20), explained.event("a", 0, page=pages["a"]), explained.event("c", 40, page=pages["c"])
    )
    [before] = ids(explained)
    explained.decode_again(explained.stream.partitions.ordinal(TEN))
    answer = explained.session_answer(before)
    assert answer.session is None
    assert sorted(answer.split_into) == sorted(ids(explained))
    assert text_of(answer, explained).startswith(f"Session {before} is no more since version 2: split into ")
    heir = explained.session_answer(ids(explained)[1])
    assert heir.changes[0].split_from == before
    assert f"split from {before}" in text_of(heir, explained)


def test_a_session_that_moved_over_midnight_is_found_wherever_it_was(explained: Explained) -> None:
    explained.take_in(explained.event("a", 14 * 60 + 5))
    explained.take_in(explained.event("b", 14 * 60 - 5))
    [name] = ids(explained)
    day = explained.stream.partitions.ordinal(TEN)
    answers = [explained.session_answer(name, near) for near in (day, day + 1, None)]
    assert [each.session for each in answers] == [answers[0].session] * 3
    assert [each.reason for each in answers[0].changes] == ["new", "moved"]
    assert answers[0].session is not None
    assert [each.event_id for each in answers[0].session.events] == ["b", "a"]


def test_a_session_whose_events_are_gone(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0), explained.event("b", 300, page=(TEN + 300 * MINUTE).isoformat()))
    gone = ids(explained)[0]
    explained.decode_again(explained.stream.partitions.ordinal(TEN))
    answer = explained.session_answer(gone)
    assert (answer.session, answer.became) == (None, ())
    assert text_of(answer, explained).startswith(f"Session {gone} is no more since version 2: erased.")


def test_what_a_session_has_not_taken_in_yet(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0))
    [name] = ids(explained)
    explained.ingest(explained.event("b", 10), explained.event("c", -10))
    platform = explained.platform
    platform.recompute_stale(EVENTS, "deduplicated_events")
    platform.publish_changes(EVENTS)
    answer = explained.session_answer(name)
    assert answer.session is not None
    assert [each.event_id for each in answer.session.events_near] == ["c", "b"]
    assert answer.stale["session_fragments"] == 1
    assert "events that it has not taken in yet: c at 2024-01-02 09:50:00, b at" in text_of(answer, explained)


def test_a_feed_that_is_behind_is_said_to_be(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0))
    explained.ingest(explained.event("b", 100))
    explained.platform.repair(EVENTS)
    answer = explained.session_answer(ids(explained)[1])
    assert (answer.changes, answer.is_feed_behind) == ((), True)
    assert answer.session is not None
    assert "session_changes does not tell the newest commits yet" in text_of(answer, explained)
    assert not explained.session_answer("x" * 32).session


def test_an_id_that_no_session_had(explained: Explained) -> None:
    text = text_of(explained.session_answer("no such\x1b[31m id"), explained)
    assert text.startswith("No session of events has or had the id no such\\x1b[31m id.")
    explained.take_in(explained.event("a", 0))
    assert "explain event events ID --entity ENTITY" in text_of(explained.session_answer("nothing"), explained)


def test_many_events_and_changes_are_cut_short(explained: Explained, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EVENTS_SHOWN", "CHANGES_SHOWN"):
        monkeypatch.setattr(f"dedup_platform.explain.session_words.{name}", 2)
    for number in range(4):
        explained.take_in(explained.event(f"{number}", 10 * number))
    [name] = ids(explained)
    text = text_of(explained.session_answer(name), explained)
    assert "and 2 more" in text
    assert "(2 earlier ones)" in text


def test_a_stream_that_has_no_sessions_any_more(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0))
    [name] = ids(explained)
    explained.stream = explained.stream.model_copy(update={"sessions": None})
    assert text_of(explained.session_answer(name), explained) == "events has no sessions: its stream file names none."
    explained.ingest(explained.event("b", 1), explained.event("b", 2))
    explained.platform.repair(EVENTS)
    event = explained.the_event("b")
    assert ([each.verdict for each in event.records], event.sessions) == (["kept", "conflict"], ())
    assert explained.session_answer(name).stale.keys() == {"deduplicated_events"}
