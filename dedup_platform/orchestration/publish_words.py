"""What was published, in words for people. Without Dagster: commands say them, too, and are to start quickly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dedup_platform import tables

if TYPE_CHECKING:
    from dedup_platform.changes import FeedCommit, Published


def sentence(done: FeedCommit) -> str:
    """What was published, for people: `session_changes: versions 4 to 6, 3 delete, 12 insert`."""
    if done.left:
        return f"{done.feed}: {done.left}"
    if not done.first_version:
        return f"{done.feed}: nothing new"
    is_one = done.first_version == done.last_version
    versions = f"version {done.last_version}" if is_one else f"versions {done.first_version} to {done.last_version}"
    return ", ".join([f"{done.feed}: {versions}", *(f"{n:,} {kind}" for kind, n in sorted(done.changes.items()))])


def told(done: Published) -> str:
    """What a sink got, for people: `copy: version 7, 3 delete, 12 insert; 2 suppressed, 1 refused`."""
    if done.left:
        return f"{done.sink}: {done.left}"
    said = ", ".join(
        [f"{done.sink}: version {done.version}", *(f"{n:,} {kind}" for kind, n in sorted(done.sent.items()))]
    )
    others = {"suppressed": done.suppressed, "forced": done.forced, "refused": done.refused}
    besides = ", ".join(f"{number:,} {what}" for what, number in others.items() if number)
    return f"{said}; {besides}" if besides else said


def saved(counts: Mapping[str, int]) -> str:
    """What deduplication came to, for people, stage by stage."""
    given = {name: f"{counts.get(name, 0):,}" for name in tables.COUNTED}
    return (
        "{records_read} records read, {rejected} of them rejected; {copies} copies and {conflicts} conflicts beaten; "
        "{cells_unchanged} of {cells_checked} checked cells left as they were; {not_downstream} of {changes} changes "
        "matter to nobody downstream"
    ).format(**given)
