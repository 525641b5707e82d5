"""Tries of ingests: each notes how it went, and what it may know of earlier ones decides about the next."""

import hashlib
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime

from dedup_platform.errors import (
    ConservationError,
    DedupPlatformError,
    HeldBatchError,
    IncompatibleChangeError,
    LostRecordsError,
    NewerVersionError,
    SettingsError,
    StreamFileError,
    UnreachableError,
)
from dedup_platform.ingest.ingest import Ingest
from dedup_platform.ingest.pending import Waiting
from dedup_platform.lake.commits import Commit
from dedup_platform.ledger import Health, Tries
from dedup_platform.planning.circuit_breaker import NORMAL, Circuit, Failure, Kind
from dedup_platform.retries import retry_while
from dedup_platform.stream import Stream

_LOG = logging.getLogger(__name__)
LASTING = (
    ConservationError,
    IncompatibleChangeError,
    LostRecordsError,
    NewerVersionError,
    SettingsError,
    StreamFileError,
)
"""Failures that trying again does not mend: somebody must change something first. All others may pass by themselves."""


class Attempts:
    """What becomes of the tries of each stream's ingest."""

    def __init__(self, ingest: Ingest, health: Health, clock: Callable[[], datetime]) -> None:
        self._ingest = ingest
        self._health = health
        self._clock = clock

    def health(self, stream: Stream) -> Circuit:
        """How the ingest fares."""
        return self._tries(stream).circuit()

    def ingest(self, stream: Stream, batches: Callable[[], Iterable[Commit]], patient: bool) -> list[Commit]:
        """The commits of all batches. `patient` tries again, after pauses, for as long as the ingest is retrying."""
        commits: list[Commit] = []
        tries = retry_while(lambda error: patient and self._may_pass(stream, error), self._tries(stream).pause)
        tries(self._ingest_once, stream, batches, commits)
        return commits

    def look(self, stream: Stream, ask: Callable[[], Waiting]) -> Waiting | None:
        """What the source answers; None while nothing should be tried, and if the platform fails to ask it.

        A source where nothing waits has nothing left to fail: the ingest is normal.
        """
        known = self.health(stream)
        if known != NORMAL and not self._tries(stream).is_due(known, self._evidence(stream)):
            return None
        try:
            waiting = ask()
        except UnreachableError:
            raise
        except Exception as error:
            if not isinstance(error, DedupPlatformError):
                _LOG.warning("%s: its source could not be asked", stream.name, exc_info=error)
            self.note(stream, _kind(error), reason_of(error))
            return None
        if not waiting.items:
            self._note_success(stream)
        return waiting

    def note(self, stream: Stream, kind: Kind, reason: str, batch: str | None = None) -> None:
        """Count a try that failed."""
        self._tries(stream).note_failure(Failure(kind, reason, self._evidence(stream), batch))

    def _ingest_once(self, stream: Stream, batches: Callable[[], Iterable[Commit]], commits: list[Commit]) -> None:
        try:
            for commit in batches():
                commits.append(commit)
                self._note_success(stream)
        except UnreachableError:
            # The health lies in what does not answer, too.
            raise
        except Exception as error:
            batch = error.batch if isinstance(error, HeldBatchError) else None
            self.note(stream, _kind(error), reason_of(error), batch)
            raise
        except BaseException as interruption:
            # Whoever stops it must see what they raised, whether or not it can be noted.
            with suppress(UnreachableError):
                self.note(stream, "transient", f"it was interrupted ({type(interruption).__name__})")
            raise
        self._note_success(stream)

    def _may_pass(self, stream: Stream, error: BaseException) -> bool:
        return isinstance(error, Exception) and self.health(stream).state == "retrying"

    def _note_success(self, stream: Stream) -> None:
        self._tries(stream).note_success()

    def _tries(self, stream: Stream) -> Tries:
        return Tries(self._health, stream.name, stream.retries, self._clock)

    def _evidence(self, stream: Stream) -> str:
        """Another text as soon as the stream file changed, or more was read or accepted."""
        return hashlib.sha256((stream.model_dump_json() + self._change_token(stream)).encode()).hexdigest()

    def _change_token(self, stream: Stream) -> str:
        try:
            return self._ingest.change_token(stream)
        except UnreachableError:
            raise
        except Exception:
            # What makes the tables' facts unreadable is what failed; once they can be read, this is another text.
            return ""


def _kind(error: Exception) -> Kind:
    if isinstance(error, HeldBatchError):
        return "held"
    return "lasting" if isinstance(error, LASTING) else "transient"


def reason_of(error: Exception) -> str:
    """All that the platform says, the first line of what anybody else says: Spark's errors go on for pages."""
    if isinstance(error, DedupPlatformError):
        return str(error)
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
