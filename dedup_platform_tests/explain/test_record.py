"""Why records are as they are, by their coordinates."""

import json

from dedup_platform.explain.plain import record_value
from dedup_platform.explain.record import RecordAnswer
from dedup_platform.explain.record_words import told_of_record
from dedup_platform_tests.changes.test_feeds import EVENTS, TEN
from dedup_platform_tests.explain.histories import Explained


def ask(explained: Explained, source: str, offset: int, partition: int = 0) -> RecordAnswer:
    return explained.platform.explained.record(EVENTS, (source, partition, offset, 0))


def told(explained: Explained, answer: RecordAnswer) -> str:
    words = told_of_record(answer, explained.words())
    return "\n".join([words.sentence, *(line for step in words.steps for line in step)])


def test_a_record_is_of_an_event(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0), explained.event("b", 1))
    explained.take_in(explained.event("a", 0))
    answer = ask(explained, "2.json", 0)
    assert answer.event == explained.the_event("a")
    assert told(explained, answer).startswith("Record 0 of 2.json is of event a of e: copy.")
    value = json.loads(json.dumps(record_value(answer, told_of_record(answer, explained.words()), explained.words())))
    assert (value["found"], value["rejection_reason"], len(value["event"]["records"])) == (True, None, 2)


def test_a_record_that_was_rejected(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0), explained.event("b", 0, page=TEN.isoformat()))
    explained.decode_again(explained.stream.partitions.ordinal(TEN))
    answer = ask(explained, "1.json", 0)
    assert answer.event is None
    assert answer.delivered is not None
    assert answer.delivered.reason == "redecoded"
    text = told(explained, answer)
    assert text.startswith("Record 0 of 1.json is no event: it was rejected (unreadable_event_time).")
    assert "dedup-platform rejected show events 1.json 0\n" in text


def test_a_record_that_never_came(explained: Explained) -> None:
    assert told(explained, ask(explained, "1.json", 0)).startswith("There is no record 0 of 1.json in events.")
    explained.take_in(explained.event("a", 0))
    for other in (ask(explained, "1.json", 1), ask(explained, "1.json", 0, 1), ask(explained, "2.json", 0)):
        assert other.arrival_time is None
    assert ask(explained, "2.json", 0).read == {"raw_events": 1}
