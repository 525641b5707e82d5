"""Streams whose rows are explained: taken in step by step, published, and decoded again by other stream files."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dedup_platform.explain import ANY_ENTITY, EventAnswer, SessionAnswer
from dedup_platform.explain.event import Event
from dedup_platform.explain.sentences import Words
from dedup_platform.stream import load_stream
from dedup_platform.testing import Record, lay_out, write_batch
from dedup_platform_tests.changes.test_feeds import EVENTS, Followed


class Explained(Followed):
    """A stream that is asked why its rows are as they are."""

    def __init__(self, folder: Path, **rules: Any) -> None:
        super().__init__(folder, **rules)
        self.stream = load_stream(self.stream.origin)

    def take_in(self, *events: Record) -> None:
        """Ingest, repair and publish."""
        super().take_in(*events)
        self.publish()

    def ingest(self, *events: Record) -> None:
        """Take in, and judge nothing."""
        self._files += 1
        write_batch(self.stream, lay_out(events, f"{self._files}.json"))
        self.platform.ingest(EVENTS)

    def event_answer(self, event_id: str, entity: object = ANY_ENTITY, near: int | None = None) -> EventAnswer:
        return self.platform.explained.event(EVENTS, event_id, entity, near)

    def the_event(self, event_id: str, entity: object = ANY_ENTITY, near: int | None = None) -> Event:
        [event] = self.event_answer(event_id, entity, near).events
        return event

    def session_answer(self, session_id: str, near: int | None = None) -> SessionAnswer:
        return self.platform.explained.session(EVENTS, session_id, near=near)

    def words(self, runs: Mapping[int, str] | None = None) -> Words:
        return Words(self.stream, runs or {})

    def decode_again(self, *partitions: int, by: str = "page") -> None:
        """Decode partitions again: events happened when another column says; those without one are none any more."""
        text = self.stream.origin.read_text("utf-8")
        self.stream.origin.write_text(re.sub("event_time: .*", f"event_time: {by}", text), encoding="utf-8")
        self.stream = load_stream(self.stream.origin)
        self.platform.rejected.redecode(EVENTS, partitions)
        self.platform.repair(EVENTS)
        self.remember()
        self.publish()


def verdicts(event: Event) -> list[tuple[Any, ...]]:
    """Of each record, in arrival order: file, line, verdict, and the line of the one that beat it."""
    return [
        (each.coordinates[0], each.coordinates[2], each.verdict, each.winner and (each.winner[0], each.winner[2]))
        for each in event.records
    ]
