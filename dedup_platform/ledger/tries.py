"""The tries of what may fail, by a stream's `retries`: what is known of them outlives the process."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from random import random

from dedup_platform.ledger.health import Health
from dedup_platform.planning import circuit_breaker
from dedup_platform.planning.circuit_breaker import NORMAL, BreakerPolicy, Circuit, Failure
from dedup_platform.stream import Retries


@dataclass(frozen=True)
class Tries:
    """Those of one thing: an ingest, or a sink."""

    known: Health
    of: str
    """What it is known by."""
    retries: Retries
    clock: Callable[[], datetime]

    def circuit(self) -> Circuit:
        """How it fares."""
        return circuit_breaker.believed(self.known.of(self.of), self._policy, self.clock())

    def is_due(self, circuit: Circuit, evidence: str) -> bool:
        """Whether to try by oneself, where this is known of it."""
        return circuit_breaker.is_due(circuit, evidence, self.clock())

    def note_failure(self, failure: Failure) -> None:
        """Count a try that failed."""
        now, jitter = self.clock(), random()
        self.known.change(self.of, lambda before: circuit_breaker.failed(before, failure, self._policy, now, jitter))

    def note_success(self) -> None:
        """All is well."""
        self.known.change(self.of, lambda _: NORMAL)

    def pause(self) -> float:
        """Seconds until the next try of what is retrying."""
        now = self.clock()
        return max(0.0, ((self.circuit().next_try or now) - now).total_seconds())

    @property
    def _policy(self) -> BreakerPolicy:
        return BreakerPolicy(**self.retries.model_dump())
