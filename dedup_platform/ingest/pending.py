"""What an ingest would take in now."""

from dataclasses import dataclass
from datetime import datetime

CHANGED = "changed after it was read"


@dataclass(frozen=True)
class Waiting:
    """What an ingest would read now, and what it would leave alone and why."""

    items: tuple[str, ...]
    """Paths of files, or ranges of offsets of a topic's partitions."""
    amount: str
    """How much that is, in words: `3 files`, `1,204 messages`."""
    reasons: tuple[tuple[str, str], ...]
    """Path and reason of what is left for later or for a person to decide."""
    watermark: str
    """The same input gives the same watermark; empty if nothing waits."""
    since: datetime | None = None
    """Since when the first of the items has waited; None where nothing does, or the source does not tell."""
    bytes: int | None = None
    """How much that is in files, as they are stored; None of a topic."""

    @property
    def changed(self) -> tuple[str, ...]:
        """Paths of files that changed after they were read."""
        return tuple(path for path, reason in self.reasons if reason.startswith(CHANGED))
