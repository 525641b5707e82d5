"""What a change of a stream file does, in words: old -> new, what it concerns, and the command that comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dedup_platform.cli.output import span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from dedup_platform.platform.file_changes import FileChange, FileChanges
    from dedup_platform.stream import Stream

__all__ = ["changes_value", "print_changes_of_file"]

_LONGEST = 60


def print_changes_of_file(console: Console, stream: Stream, changes: FileChanges) -> None:
    """A line for each key that changed, and one for each thing that can be done about it; nothing if there is none."""
    for line in _lines(stream, changes):
        console.print(f"{stream.name}: {line}", markup=False, soft_wrap=True)


def changes_value(stream: Stream, changes: FileChanges) -> dict[str, Any]:
    """The same for programs."""
    key = stream.partitions.key
    return {
        "changes": [{"key": each.key, "old": each.old, "new": each.new} for each in changes.changes],
        "records_before": changes.records,
        "partitions": [key(each) for each in dict.fromkeys([*changes.partitions[:1], *changes.partitions[-1:]])],
        "stale_cells": len(changes.stale),
        "rejected": {"records": changes.rejected, "tried": changes.trial.tried, "events": changes.trial.events},
    }


def _lines(stream: Stream, changes: FileChanges) -> Iterator[str]:
    yield from (f"the stream file changed: {_told(each)}" for each in changes.changes)
    if changes.stale:
        where = span(stream, (each.cell.partition for each in changes.stale))
        yield f"that makes {len(changes.stale):,} cells stale ({where}); `dedup-platform run` rebuilds them"
    if changes.records:
        yield (
            f"{changes.records:,} records were taken in before, and what became of them stays; "
            f"{_redecode(stream, changes)}"
        )
    if changes.rejected:
        yield f"{changes.rejected:,} records are rejected{_rejected(stream, changes)}"


def _redecode(stream: Stream, changes: FileChanges) -> str:
    if not changes.partitions:
        return "none of them is an event"
    first, last = (stream.partitions.key(changes.partitions[at]) for at in (0, -1))
    command = f"`dedup-platform redecode {stream.name} --partitions {first}..{last}`"
    return f"{command} and a run make events of them as they would be today"


def _rejected(stream: Stream, changes: FileChanges) -> str:
    replay = f"`dedup-platform rejected replay {stream.name}`"
    why = f"`dedup-platform rejected list {stream.name}` tells why"
    trial = changes.trial
    if trial.events:
        of = "" if trial.tried == changes.rejected else f" of the first {trial.tried:,}"
        return f", and {trial.events:,}{of} would be events by now: {replay} takes them in"
    return f". {why}; once the stream file fits them, {replay} takes them in"


def _told(change: FileChange) -> str:
    return f"{change.key}: {_short(change.old)} -> {_short(change.new)}"


def _short(text: str | None) -> str:
    if text is None:
        return "nothing"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
