"""The door to explanations: why an event or a session is as it is."""

from collections.abc import Mapping
from dataclasses import replace

from dedup_platform import tables
from dedup_platform.explain import ANY_ENTITY, EventAnswer, RecordAnswer, SessionAnswer
from dedup_platform.explain.event import explain_event
from dedup_platform.explain.record import explain_record
from dedup_platform.explain.records import Coordinates
from dedup_platform.explain.session import explain_session
from dedup_platform.explain.view import Views
from dedup_platform.lake.feeds import is_behind
from dedup_platform.planning.facts import Facts
from dedup_platform.platform.context import Context
from dedup_platform.rules.fingerprints import fingerprint
from dedup_platform.stream import Stream


class Explanations:
    """Explains rows of a platform's streams, from metadata and the cells concerned. No Spark."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def event(self, stream: str, event_id: str, entity: object = ANY_ENTITY, near: int | None = None) -> EventAnswer:
        """What is known of an event: its records, which one is kept and why, and the session that it is in.

        `entity` may be None for none; `near` is the ordinal of the partition to look in first.
        """
        definition = self._context.stream(stream)
        facts = self._facts(definition)
        pending = frozenset(facts[tables.DEDUPLICATED_EVENTS].changes) if facts else frozenset()
        answer = explain_event(Views(self._context.lake, definition), event_id, entity, near, pending)
        return replace(answer, stale=_stale(facts))

    def session(
        self, stream: str, session_id: str, entity: object = ANY_ENTITY, near: int | None = None
    ) -> SessionAnswer:
        """What is known of a session: its events, its earlier ids and its changes; of a retired one, what it became.

        `near` is the ordinal of the partition to look in first, in which the session starts.
        """
        definition, lake = self._context.stream(stream), self._context.lake
        facts = self._facts(definition)
        answer = explain_session(Views(lake, definition), session_id, entity, near)
        return replace(
            answer,
            stale=_stale(facts),
            is_feed_behind=definition.sessions is not None and is_behind(lake.catalog, definition, tables.SESSIONS),
        )

    def record(self, stream: str, coordinates: Coordinates) -> RecordAnswer:
        """What is known of a record: the event that it is of, or why it is none."""
        definition = self._context.stream(stream)
        facts = self._facts(definition)
        return replace(explain_record(Views(self._context.lake, definition), coordinates), stale=_stale(facts))

    def _facts(self, stream: Stream) -> dict[str, Facts]:
        """What the ledger knows of each derived table; nothing before anything was taken in.

        It is asked before the tables are looked at: what is judged in between is found among the judged.
        """
        ledger = self._context.ledger
        if not ledger.sync(stream.name):
            return {}
        return {table: ledger.facts(stream, table, fingerprint(stream, table)) for table in tables.derived(stream)}


def _stale(facts: Mapping[str, Facts]) -> dict[str, int]:
    return {table: len(found.pending) for table, found in facts.items()}
