"""How an ingest or a sink fares and when it is tried again. Pure: what was known + what happened + now -> what is so.

    normal ──may pass──> retrying ──max_attempts──> open ─┐
       │                                            ↑     │ cool-down: one probe, and the next cool-down is longer
       │                                            └─────┘
       └──cannot pass by itself──> failing: probed like open, and tried at once when stream file or positions changed

Whatever the state, a success leads back to normal.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

State = Literal["normal", "retrying", "failing", "open"]
Kind = Literal["transient", "lasting", "held"]
"""`transient` may pass by itself; `lasting` needs somebody to change something; `held` is a batch that waits for it."""


@dataclass(frozen=True)
class BreakerPolicy:
    """How often and how long to wait; all from the stream file."""

    max_attempts: int = 3
    backoff: timedelta = timedelta(seconds=1)
    max_backoff: timedelta = timedelta(minutes=5)
    cool_down: timedelta = timedelta(minutes=5)
    max_cool_down: timedelta = timedelta(hours=1)

    @property
    def longest_pause(self) -> timedelta:
        """No next try is further ahead than this."""
        return max(self.max_backoff, self.cool_down, self.max_cool_down)


@dataclass(frozen=True)
class Failure:
    """A try that failed: why, in words, and on what input."""

    kind: Kind
    reason: str
    evidence: str
    """A hash of the stream file and the positions: another one resets the breaker."""
    batch: str | None = None
    """What a person accepts to let a held batch pass."""


@dataclass(frozen=True)
class Circuit:
    """The state of one ingest or sink. `next_try` is None where nothing is waited for."""

    state: State = "normal"
    reason: str = ""
    attempts: int = 0
    """Failures in a row."""
    opened: int = 0
    """How often in a row it opened: each time the cool-down is longer."""
    since: datetime | None = None
    """The first of these failures."""
    next_try: datetime | None = None
    evidence: str = ""
    batch: str | None = None


NORMAL = Circuit()
_SECONDS = "%Y-%m-%d %H:%M:%S"


def failed(before: Circuit, failure: Failure, policy: BreakerPolicy, now: datetime, jitter: float) -> Circuit:
    """The state after one more failure; `jitter`, from 0 to 1, spreads the tries of streams that failed together."""
    if failure.evidence != before.evidence:
        # The stream file or the positions are others than at the last failure: count anew.
        before = NORMAL
    attempts = before.attempts + 1
    opens = failure.kind != "transient" or before.state in ("open", "failing") or attempts >= policy.max_attempts
    opened = before.opened + 1 if opens else 0
    return Circuit(
        state=_state(failure.kind, opens),
        reason=failure.reason,
        attempts=attempts,
        opened=opened,
        since=before.since or now,
        next_try=None if failure.kind == "held" else now + _pause(attempts, opened, policy, jitter),
        evidence=failure.evidence,
        batch=failure.batch,
    )


def is_due(circuit: Circuit, evidence: str, now: datetime) -> bool:
    """Whether to try by oneself: all is well, somebody acted since, or the time has come. Held batches need an act."""
    if circuit.state == "normal" or circuit.evidence != evidence:
        return True
    return circuit.next_try is not None and circuit.next_try <= now


def believed(circuit: Circuit, policy: BreakerPolicy, now: datetime) -> Circuit:
    """The state, with its next try put to now if only a clock that was far ahead can have told it.

    Twice the longest pause is believed, so that clocks which differ a little do not make every try due at once.
    """
    if circuit.next_try is None or circuit.next_try <= now + 2 * policy.longest_pause:
        return circuit
    return replace(circuit, next_try=now)


def doubled(first: timedelta, times: int, most: timedelta) -> timedelta:
    """A pause that was doubled so many times, but is never longer than `most`."""
    return min(first * 2 ** min(times, 16), most)


def sentence(circuit: Circuit, what: str = "the ingest") -> str:
    """What a person needs to know to act."""
    if circuit.state == "normal":
        return f"{what} is normal"
    tries = "1 try" if circuit.attempts == 1 else f"{circuit.attempts} tries"
    failed = f"{what} is {circuit.state}: {tries} since {circuit.since:{_SECONDS}} UTC failed, the last one with"
    then = "it waits for a person"
    if circuit.next_try:
        then = f"the next try is after {circuit.next_try:{_SECONDS}} UTC, and a run started by hand tries now"
    return f"{failed}: {circuit.reason}; {then}"


def _state(kind: Kind, opens: bool) -> State:
    if kind != "transient":
        return "failing"
    return "open" if opens else "retrying"


def _pause(attempts: int, opened: int, policy: BreakerPolicy, jitter: float) -> timedelta:
    if opened:
        return doubled(policy.cool_down, opened - 1, max(policy.cool_down, policy.max_cool_down))
    # Half of it always passes, so that no try follows at once.
    return doubled(policy.backoff, attempts - 1, policy.max_backoff) * (0.5 + jitter / 2)
