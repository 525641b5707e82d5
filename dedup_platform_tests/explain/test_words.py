"""How things are called, for people and for programs."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from dedup_platform.explain.commits import TableCommit
from dedup_platform.explain.event_words import told_of_event
from dedup_platform.explain.plain import event_value, session_value
from dedup_platform.explain.sentences import Words, moment, printable, quoted, span
from dedup_platform.explain.session_words import told_of_session
from dedup_platform.stream import Stream
from dedup_platform.testing import utc
from dedup_platform_tests.changes.test_feeds import Followed
from dedup_platform_tests.explain.histories import Explained


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0ms"),
        (timedelta(milliseconds=250), "250ms"),
        (timedelta(seconds=1), "1s"),
        (timedelta(minutes=5, seconds=3), "5m 3s"),
        (timedelta(days=1, hours=23, minutes=59), "1d 23h"),
        (timedelta(days=2, seconds=5), "2d 5s"),
    ],
)
def test_spans(duration: timedelta, text: str) -> None:
    assert span(duration) == text


def test_times_have_microseconds_where_there_are_some() -> None:
    assert moment(utc("2024-01-02T03:04:05")) == "2024-01-02 03:04:05"
    assert moment(utc("2024-01-02T03:04:05.000006")) == "2024-01-02 03:04:05.000006"


def test_what_is_no_printable_character_is_escaped() -> None:
    assert printable("a\x1b[31m\n\u202eb") == "a\\x1b[31m\\n\\u202eb"


@pytest.mark.parametrize(
    ("word", "text"),
    [("plain-1", "plain-1"), ("two words", "'two words'"), ("it's", "'it'\\''s'"), ("-x", "'-x'"), ("a\n", "$'a\\n'")],
)
def test_words_of_a_command_line_can_be_pasted(word: str, text: str) -> None:
    assert quoted(word) == text


def test_records_of_topics_and_later_generations(explained: Explained) -> None:
    words = explained.words()
    assert words.record(("a.json", 2, 7, 0)) == "record 7 of a.json (generation 2)"
    topic = {"kind": "kafka", "brokers": "127.0.0.1:9092", "topic": "clicks", "format": "json"}
    told = explained.stream.model_dump(mode="json") | {"source": topic}
    told["fields"]["arrival_time"] = {"kafka_append_time": True}
    of_topic = Words(Stream.model_validate(told), {})
    assert of_topic.record(("clicks", 3, 7, 0)) == "offset 7 of partition 3 of clicks"
    assert of_topic.record(("clicks", 3, 7, 2)) == "offset 7 of partition 3 of clicks, place 2"


def test_a_compaction_is_told_from_a_recomputation(explained: Explained) -> None:
    commit = TableCommit("sessions", 7, utc("2024-01-02T03:04:05"), None, None, is_rewrite=True)
    assert explained.words({7: "r1"}).commit(commit) == (
        "sessions snapshot 7 (2024-01-02 03:04:05, the same rows in other files, run r1)"
    )


def test_an_event_for_programs(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0, amount="1.50"), explained.event("a", 5))
    answer, words = explained.event_answer("a"), explained.words({})
    value = json.loads(json.dumps(event_value(answer, told_of_event(answer, words), words)))
    assert value.keys() == {"found", "sentence", "stream", "event_id", "events", "others", "changes", "read", "stale"}
    kept, conflict = value["events"][0]["records"]
    assert kept.keys() == {
        *("coordinates", "event_time", "arrival_time", "partition", "verdict", "late_seconds", "winner", "decided_by"),
        *("differs", "values", "delivered", "judged"),
    }
    assert kept["coordinates"] == {
        "source": "1.json",
        "source_partition": 0,
        "source_offset": 0,
        "source_index": 0,
    }
    assert (kept["event_time"], kept["partition"]) == ("2024-01-02T10:00:00+00:00", "2024-01-02")
    assert kept["values"]["amount"] == "1.50"
    assert kept["judged"].keys() == {
        *("table", "snapshot_id", "at", "reason", "built_from", "is_rewrite", "published_with", "run_id"),
    }
    assert kept["judged"]["snapshot_id"].isdecimal()
    assert conflict["winner"] == kept["coordinates"]
    assert conflict["late_seconds"] == pytest.approx(kept["late_seconds"] + 60)


def test_what_is_no_number_of_json_is_null(tmp_path: Path) -> None:
    explained = Explained(tmp_path, attributes={"share": "double"}, aggregates={})
    Followed.take_in(explained, explained.event("a", 0, share="NaN"), explained.event("a", 0, share="NaN"))
    answer, words = explained.event_answer("a"), explained.words()
    _, copy = answer.events[0].records
    assert (copy.verdict, copy.differs) == ("copy", ())
    value = event_value(answer, told_of_event(answer, words), words)
    assert json.loads(json.dumps(value, allow_nan=False))["events"][0]["records"][0]["values"]["share"] is None


def test_a_session_for_programs(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0))
    explained.take_in(explained.event("b", 10))
    [row] = explained.sessions()
    answer = explained.session_answer(row["session_id"])
    words = explained.words({change.snapshot_id: "r1" for change in answer.changes})
    value = json.loads(json.dumps(session_value(answer, told_of_session(answer, words), words)))
    assert value.keys() == {
        *("found", "sentence", "stream", "session_id", "became", "session", "earlier", "changes", "changes_now"),
        *("split_into", "read", "stale", "is_feed_behind"),
    }
    assert value["session"]["first_arrived"]["event_id"] == "a"
    assert [each["run_id"] for each in value["changes"]] == ["r1", "r1"]
    assert value["changes"][1]["changed_columns"] == ["ended_at", "event_count"]
    assert (value["session"]["event_count"], len(value["session"]["events"])) == (2, 2)
