"""The door to the sinks of the streams: how far each has come, how it fares, and when it is tried again."""

from collections.abc import Callable
from threading import Thread

from dedup_platform.changes import Published, SinkAttempts
from dedup_platform.changes.reading import newest_position
from dedup_platform.errors import DedupPlatformError, SinkError
from dedup_platform.lake.schema import field_numbers
from dedup_platform.ledger import Health
from dedup_platform.planning.circuit_breaker import Circuit
from dedup_platform.platform.context import Context
from dedup_platform.platform.status import SinkStatus
from dedup_platform.sinks import Looks, SinkState, open_sink
from dedup_platform.sinks.opening import target_of
from dedup_platform.stream import KafkaSink, Stream

LOOK_SECONDS = 5.0
"""Whoever wants to know how far sinks have come waits so long for all of them together."""


class Sinks:
    """The sinks of a platform's streams, each by the names of its stream and of itself."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._attempts = SinkAttempts(Health(lambda: context.ledger.engine), lambda: context.clock())

    def health(self, stream: str, sink: str) -> Circuit:
        """How a sink fares, and when it is tried again."""
        return self._attempts.health(self._context.stream(stream), sink)

    def is_due(self, stream: str, sink: str) -> bool:
        """Whether a sink is to be written to by whoever does so by itself."""
        return self._attempts.is_due(self._context.stream(stream), sink)

    def note_lost_run(self, stream: str, sink: str, what: str) -> None:
        """Count a run as failed that could not say so itself, because its process died or never began."""
        self._attempts.note(self._context.stream(stream), sink, what)

    def publish(self, stream: str, sink: str, write: Callable[[Published], None]) -> Published:
        """What `write` does to a sink, whatever its state, and tried again as the stream's `retries` say."""
        return self._attempts.publish(self._context.stream(stream), sink, write)

    def schema(self, stream: str, sink: str) -> str | None:
        """The schema of a sink's messages, of Avro or of Protobuf; None where they have none."""
        definition = self._context.stream(stream)
        said = definition.publish.sinks[sink]
        numbers = field_numbers(self._context.lake.catalog.load(stream, said.follows))
        if not isinstance(said, KafkaSink):
            return None
        # Loaded only by streams with such a sink, as its libraries are.
        from dedup_platform.sinks.encodings import schema_text

        return schema_text(target_of(definition, sink, numbers), said)

    def status(self, stream: str) -> tuple[SinkStatus, ...]:
        """How far each sink of a stream has come. Asks their stores, at once, and waits no longer than is bearable."""
        definition = self._context.stream(stream)
        looks = {name: _Look(definition, name, self._context) for name in definition.publish.sinks}
        for look in looks.values():
            look.start()
        left = LOOK_SECONDS
        for look in looks.values():
            look.join(left)
            # One that does not answer takes all of the time.
            left = 0.0 if look.is_alive() else left
        return tuple(self._status(definition, name, look) for name, look in looks.items())

    def _status(self, stream: Stream, name: str, look: "_Look") -> SinkStatus:
        follows = stream.publish.sinks[name].follows
        newest = newest_position(self._context.lake.catalog, stream, follows)
        state, health = look.state or SinkState(), self.health(stream.name, name)
        at = state.position
        is_known = at is not None and newest is not None and at.feed == newest.feed
        return SinkStatus(
            sink=name,
            kind=stream.publish.sinks[name].kind,
            follows=follows,
            version=at.version if at else None,
            is_beginning=look.state is not None and newest is not None and (not is_known or _is_partial(state)),
            behind=newest.version - at.version if is_known and at and newest else None,
            refused=len(state.refused),
            totals=state.totals,
            moved_at=state.moved_at,
            trouble=look.trouble,
            health=health,
        )


class _Look(Thread):
    """Asks one store. A thread that nobody waits for for ever: some clients cannot be told to give up."""

    def __init__(self, stream: Stream, name: str, context: Context) -> None:
        super().__init__(daemon=True)
        self._stream, self._name, self._context = stream, name, context
        self.state: SinkState | None = None
        self.trouble: str | None = "does not answer"

    def run(self) -> None:
        try:
            sink = open_sink(self._stream, self._name, self._context.settings)
            try:
                if isinstance(sink, Looks):
                    self.state, self.trouble = sink.look(), None
                else:
                    self.trouble = "cannot be asked without taking it over: it has no `look`"
            finally:
                sink.close()
        except SinkError as error:
            self.trouble = error.reason
        except DedupPlatformError as error:
            self.trouble = str(error)
        except Exception as error:
            self.trouble = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _is_partial(state: SinkState) -> bool:
    return state.position is not None and state.position.snapshot_id is not None
