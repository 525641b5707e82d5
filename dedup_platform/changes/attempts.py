"""Tries of sinks: each notes how it went, and what it may know of earlier ones decides about the next."""

import hashlib
from collections.abc import Callable
from datetime import datetime

from dedup_platform.changes.publisher import Published
from dedup_platform.errors import ClaimLostError, DedupPlatformError, SinkError, SinkTakenError, UnreachableError
from dedup_platform.ledger import Health, Tries
from dedup_platform.planning.circuit_breaker import NORMAL, Circuit, Failure
from dedup_platform.retries import retry_while
from dedup_platform.stream import Stream


class SinkAttempts:
    """What becomes of the tries of each sink."""

    def __init__(self, health: Health, clock: Callable[[], datetime]) -> None:
        self._health = health
        self._clock = clock

    def health(self, stream: Stream, sink: str) -> Circuit:
        """How a sink fares."""
        return self._tries(stream, sink).circuit()

    def is_due(self, stream: Stream, sink: str) -> bool:
        """Whether a sink is to be written to by whoever does so by itself."""
        known = self.health(stream, sink)
        return known == NORMAL or self._tries(stream, sink).is_due(known, _evidence(stream))

    def publish(self, stream: Stream, sink: str, write: Callable[[Published], None]) -> Published:
        """What `write` does to a sink, tried again, after pauses, until the circuit opens.

        Raises what the last try raised. A try that moved the position before it failed begins a new count.
        """
        told, tries = Published(sink), self._tries(stream, sink)
        retry_while(lambda error: _may_pass(error, tries), tries.pause)(self._once, stream, told, tries, write)
        return told

    def note(self, stream: Stream, sink: str, reason: str) -> None:
        """Count a try that could not say so itself, because its process died."""
        self._tries(stream, sink).note_failure(Failure("transient", reason, _evidence(stream)))

    def _once(self, stream: Stream, told: Published, tries: Tries, write: Callable[[Published], None]) -> None:
        before = told.moves
        try:
            write(told)
        except (ClaimLostError, SinkTakenError, UnreachableError):
            # Another process writes to it, or what would be noted cannot be.
            raise
        except Exception as error:
            if told.moves > before:
                tries.note_success()
            tries.note_failure(_failure(error, stream))
            raise
        tries.note_success()

    def _tries(self, stream: Stream, sink: str) -> Tries:
        return Tries(self._health, f"{stream.name}/{sink}", stream.retries, self._clock)


def _may_pass(error: BaseException, tries: Tries) -> bool:
    if not isinstance(error, Exception) or isinstance(error, ClaimLostError | SinkTakenError | UnreachableError):
        return False
    return tries.circuit().state == "retrying"


def _failure(error: Exception, stream: Stream) -> Failure:
    if isinstance(error, SinkError):
        return Failure("lasting" if error.lasting else "transient", error.reason, _evidence(stream))
    is_ours = isinstance(error, DedupPlatformError)
    reason = str(error) if is_ours else f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    return Failure("transient", reason, _evidence(stream))


def _evidence(stream: Stream) -> str:
    """Another text as soon as the stream file changed."""
    return hashlib.sha256(stream.model_dump_json().encode()).hexdigest()
