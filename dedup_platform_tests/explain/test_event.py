"""Why events are as they are: hand-made histories, and what is told of them."""

from datetime import timedelta
from pathlib import Path

import pytest

from dedup_platform.errors import UnknownStreamError
from dedup_platform.explain.event_words import told_of_event
from dedup_platform.lake.snapshots import head
from dedup_platform.tables import DEDUPLICATED_EVENTS, DUPLICATE_EVENTS, RAW_EVENTS
from dedup_platform_tests.changes.test_feeds import ARRIVED, EVENTS, TEN
from dedup_platform_tests.explain.histories import Explained, verdicts

FAR = 58 * 60
"""Minutes: further away than the window, in a partition that was not closed when it arrived."""


def told(explained: Explained, event_id: str, **asked: object) -> str:
    answer = explained.event_answer(event_id, **asked)  # type: ignore[arg-type]
    words = told_of_event(answer, explained.words())
    return "\n".join([words.sentence, *(line for step in words.steps for line in step)])


def test_a_copy_and_a_conflict_name_the_record_that_beat_them(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0, page="x"), explained.event("b", 1))
    explained.take_in(explained.event("a", 0, page="x"), explained.event("a", 5, page="y"))
    event = explained.the_event("a")
    assert verdicts(event) == [
        ("1.json", 0, "kept", None),
        ("2.json", 0, "copy", ("1.json", 0)),
        ("2.json", 1, "conflict", ("1.json", 0)),
    ]
    assert [each.differs for each in event.records] == [(), (), ("event_time", "page")]
    assert [each.decided_by for each in event.records] == [None, "arrival_time", "arrival_time"]
    text = told(explained, "a")
    assert text.startswith("Event a of e was delivered in 3 records: 1 kept, 1 copy, 1 conflict.")
    assert "Beaten by record 0 of 1.json, which arrived 2m before it and happened at the same time." in text
    assert "which arrived 3m before it and lies 5m away, within the window of 1d." in text
    assert "It differs from that one in event_time, page." in text


def test_what_arrived_at_the_same_moment_is_told_apart_by_its_place(explained: Explained) -> None:
    first, other = explained.event("a", 0), explained.event("a", 0)
    explained.take_in(first, other.__class__(**{**vars(other), "arrival_time": first.arrival_time}))
    assert [each.decided_by for each in explained.the_event("a").records] == [None, "source_offset"]
    assert "arrived at the same moment, and whose source_offset comes first" in told(explained, "a")


def test_a_chain_longer_than_the_window_is_followed_to_its_ends(explained: Explained) -> None:
    explained.take_in(*(explained.event("a", 20 * 60 * step) for step in range(4)), explained.event("z", 0))
    event = explained.the_event("a", near=explained.stream.partitions.ordinal(TEN))
    assert verdicts(event) == [
        ("1.json", 0, "kept", None),
        ("1.json", 1, "conflict", ("1.json", 0)),
        ("1.json", 2, "conflict", ("1.json", 1)),
        ("1.json", 3, "conflict", ("1.json", 2)),
    ]
    assert "That one is a duplicate itself" in told(explained, "a")


def test_records_of_one_key_far_apart_are_one_answer(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0), explained.event("a", FAR))
    assert [each.verdict for each in explained.the_event("a").records] == ["kept", "kept"]
    assert len(explained.the_event("a").sessions) == 2


def test_where_the_partition_is_named_others_are_not_looked_into(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0), explained.event("a", FAR))
    near = explained.stream.partitions.ordinal(TEN)
    assert len(explained.the_event("a", near=near).records) == 1
    assert len(explained.the_event("a", near=near - 5).records) == 2, "it is nowhere near, so it is looked for"


def test_how_late_a_record_was(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0), explained.event("b", FAR))
    late, in_time = (explained.the_event(name).records[0] for name in "ab")
    assert late.late_by == ARRIVED + timedelta(minutes=1) - (TEN + timedelta(hours=14) + explained.stream.late.grace)
    assert in_time.late_by is None
    assert "late by 1d 23h, as partition 2024-01-02 was closed" in told(explained, "a")


def test_the_session_of_an_event_may_begin_the_day_before(explained: Explained) -> None:
    explained.take_in(explained.event("a", 14 * 60 - 5), explained.event("b", 14 * 60 + 5))
    [session] = explained.the_event("b").sessions
    assert (session.started_at, session.event_count) == (TEN + timedelta(minutes=14 * 60 - 5), 2)
    assert f"dedup-platform explain session events {session.session_id}" in told(explained, "b")


def test_an_id_that_entities_share_is_explained_for_some_and_listed_for_the_others(explained: Explained) -> None:
    explained.take_in(*(explained.event("1", number, f"e{number}") for number in range(6)))
    answer = explained.event_answer("1")
    assert [event.key["entity_id"] for event in answer.events] == ["e0", "e1", "e2"]
    assert [key["entity_id"] for key in answer.others] == ["e3", "e4", "e5"]
    assert "3 more events have this id: 1 of e3; 1 of e4; 1 of e5." in told(explained, "1")
    assert explained.the_event("1", "e5").key == {"entity_id": "e5", "event_id": "1"}


def test_an_event_without_an_entity(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0, None), explained.event("a", 0, None), explained.event("a", 0))
    event = explained.the_event("a", None)
    assert [each.verdict for each in event.records] == ["kept", "copy"]
    assert event.sessions == ()
    assert "It has no entity, so it is in no session." in told(explained, "a", entity=None)
    assert len(explained.event_answer("a").events) == 2


def test_a_record_that_is_not_judged_yet(explained: Explained) -> None:
    explained.take_in(explained.event("b", 0))
    explained.ingest(explained.event("a", 0))
    assert verdicts(explained.the_event("a")) == [("2.json", 0, "waiting", None)]
    assert verdicts(explained.the_event("a", "e", explained.stream.partitions.ordinal(TEN)))[0][2] == "waiting"
    assert explained.event_answer("a", "f").events == ()
    text = told(explained, "a")
    assert "1 not judged yet" in text
    assert "1 cell of deduplicated_events are stale" in text


def test_a_copy_that_arrived_earlier_took_over(explained: Explained) -> None:
    early = explained.event("a", 0)
    explained.take_in(explained.event("a", 0))
    explained.take_in(early)
    event = explained.the_event("a")
    assert verdicts(event) == [("2.json", 0, "kept", None), ("1.json", 0, "copy", ("2.json", 0))]
    assert [(each.version, each.kind, each.reason) for each in event.changes] == [
        (2, "delete", "corrected"),
        (2, "insert", "corrected"),
    ]
    assert "record 0 of 1.json went, corrected." in told(explained, "a")


def test_a_record_that_was_decoded_again_moved(explained: Explained) -> None:
    at = TEN + timedelta(days=1)
    explained.take_in(explained.event("a", 0, page=at.isoformat()))
    explained.decode_again(explained.stream.partitions.ordinal(TEN))
    event = explained.the_event("a")
    assert [(each.event_time, each.verdict) for each in event.records] == [(at, "kept")]
    assert event.records[0].delivered is not None
    assert event.records[0].delivered.reason == "redecoded"
    assert [each.reason for each in event.changes] == ["moved"]


def test_an_event_that_is_none_any_more_is_told_from_the_feed(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0), explained.event("b", 0, page=TEN.isoformat()))
    explained.decode_again(explained.stream.partitions.ordinal(TEN))
    answer = explained.event_answer("a")
    assert answer.events == ()
    assert [(each.kind, each.reason) for each in answer.changes] == [("delete", "erased")]
    assert told(explained, "a").startswith("Event a is no event any more, since version 2 of event_changes.")


def test_what_was_decoded_again_and_not_judged_since_is_gone(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0), explained.event("b", 0, page=TEN.isoformat()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dedup_platform.platform.Platform.repair", lambda *_: [])
        explained.decode_again(explained.stream.partitions.ordinal(TEN))
    assert verdicts(explained.the_event("a")) == [("1.json", 0, "gone", None)]
    assert "raw_events has it no longer with this key" in told(explained, "a")


def test_no_such_event_says_what_to_look_at_next(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0))
    text = told(explained, "nothing\n", entity="f")
    assert text.startswith("There is no event nothing\\n of f in events.")
    assert "`dedup-platform rejected list events`" in text
    assert "explain event events $'nothing\\n'" in text


def test_before_anything_was_taken_in_there_is_no_event(explained: Explained) -> None:
    assert told(explained, "a").startswith("There is no event a in events.")
    assert "Data files looked into: none." in told(explained, "a")


def test_an_unknown_stream_is_refused(explained: Explained) -> None:
    with pytest.raises(UnknownStreamError):
        explained.platform.explained.event("other", "a")


def test_the_commits_behind_a_record(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0), explained.event("a", 1))
    catalog = explained.platform.lake.catalog
    heads = {
        name: head(catalog.load_table(EVENTS, name)).snapshot_id
        for name in (RAW_EVENTS, DEDUPLICATED_EVENTS, DUPLICATE_EVENTS)
    }
    kept, copy = explained.the_event("a").records
    assert kept.delivered is not None
    assert kept.judged is not None
    assert copy.judged is not None
    assert (kept.delivered.snapshot_id, kept.judged.snapshot_id) == (heads[RAW_EVENTS], heads[DEDUPLICATED_EVENTS])
    assert kept.judged.built_from == f"raw_events@{heads[RAW_EVENTS]}"
    assert (copy.judged.snapshot_id, copy.judged.published_with) == (
        heads[DUPLICATE_EVENTS],
        heads[DEDUPLICATED_EVENTS],
    )
    told_run = told_of_event(explained.event_answer("a"), explained.words({heads[DEDUPLICATED_EVENTS]: "r1"}))
    assert sum("run r1" in line for step in told_run.steps for line in step) == 2


def test_a_commit_that_has_expired_is_named_all_the_same(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0))
    loaded = explained.platform.lake.catalog.load_table(EVENTS, RAW_EVENTS)
    explained.take_in(explained.event("b", FAR))
    gone = head(loaded).snapshot_id
    explained.platform.lake.catalog.load_table(EVENTS, RAW_EVENTS).maintenance.expire_snapshots().by_ids(
        [gone]
    ).commit()
    delivered = explained.the_event("a").records[0].delivered
    assert delivered is not None
    assert delivered.at is None
    assert "which has expired" in told(explained, "a")


def test_the_key_may_have_other_columns(tmp_path: Path) -> None:
    explained = Explained(tmp_path, key=("entity_id", "page"), buckets=2)
    explained.take_in(explained.event("a", 0, page="x"), explained.event("b", 1, page="x"), explained.event("a", 2))
    answer = explained.event_answer("a")
    assert [event.key for event in answer.events] == [
        {"entity_id": "e", "page": "x"},
        {"entity_id": "e", "page": None},
    ]
    assert [each.verdict for each in answer.events[0].records] == ["kept", "conflict"]
