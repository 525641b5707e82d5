"""What the planner's words mean, for people."""

from collections.abc import Iterable, Iterator

CELL = "a cell is what one partition holds of one bucket of entities; it is rebuilt as a whole"
_REASONS = {
    "open": "new events of a partition that is still open",
    "late": "events that arrived after their partition had closed",
    "linked": "neighbours of what changed, which share an event's key or a session with it",
    "settings": "rules of the stream file, or of this version, that are others than before",
    "full": "whole partitions, because somebody asked for them",
}
"""Why cells are rebuilt."""


def because(reason: str) -> str:
    """`late+linked` as a part of a sentence; what is no reason of the planner's as it is."""
    return " and ".join(_REASONS.get(each, each) for each in reason.split("+"))


def explained(reasons: Iterable[str]) -> Iterator[str]:
    """A line for each of these reasons."""
    return (f"{reason}: {_REASONS[reason]}" for reason in dict.fromkeys(reasons) if reason in _REASONS)
