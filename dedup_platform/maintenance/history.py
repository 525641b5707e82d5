"""Main's history of a table: where it is cut, and what must stay behind the cut."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from dedup_platform.lake.snapshots import (
    POSITIONS,
    ancestry,
    committed_at,
    positions_receipt,
    summary,
)
from dedup_platform.stream import Maintenance as Rules


@dataclass(frozen=True)
class SnapshotHistory:
    """A table's snapshots, newest first: those that stay without a gap, and those of the older ones that go."""

    kept: Sequence[Snapshot]
    expired: Sequence[Snapshot]


def cut_history(
    snapshots: Sequence[Snapshot],
    rules: Rules,
    now: datetime,
    *,
    needed: Collection[int] = (),
    tagged: Collection[int] = (),
    receipts: bool = True,
) -> SnapshotHistory:
    """Cut a history (newest first, no gap) behind the oldest snapshot that must stay.

    That is the oldest one which is needed, which is one of the newest few, or which was still the newest one not so
    long ago. With `receipts` the oldest one that stays tells what was read, so that all positions remain known. A tag
    keeps its own snapshot, and none of those that are newer.
    """
    oldest = min(rules.min_snapshots, len(snapshots)) - 1
    for place, snapshot in enumerate(snapshots):
        # A reader may have pinned it until the next one was committed, however old it was by then.
        young = place > 0 and now - committed_at(snapshots[place - 1]) <= rules.snapshot_age
        if young or snapshot.snapshot_id in needed:
            oldest = max(oldest, place)
    ends = [place for place, snapshot in enumerate(snapshots) if not receipts or _tells_positions(snapshot)]
    # Where a tag holds the next older one, history does not end here.
    ends = [place for place in ends if place + 1 == len(snapshots) or snapshots[place + 1].snapshot_id not in tagged]
    oldest = min((place for place in ends if place >= oldest), default=len(snapshots) - 1)
    expired = [snapshot for snapshot in snapshots[oldest + 1 :] if snapshot.snapshot_id not in tagged]
    return SnapshotHistory(snapshots[: oldest + 1], expired)


def _tells_positions(snapshot: Snapshot) -> bool:
    """Whether all that was read, or built, up to a snapshot is known from it."""
    return summary(snapshot, "receipt") is not None or summary(snapshot, POSITIONS) is not None


def positions_only_of(table: Table, expired: Collection[int]) -> set[str]:
    """The receipts of positions that only these snapshots name."""
    gone, kept = (
        {positions_receipt(each) for each in table.snapshots() if (each.snapshot_id in expired) is is_gone}
        for is_gone in (True, False)
    )
    return {name for name in gone - kept if name}


def staging_base(table: Table, branch: str) -> Iterator[int]:
    """Where a staged branch is, and where it began if something was staged on it."""
    if staged := table.snapshot_by_name(branch):
        yield staged.snapshot_id
        if staged.parent_snapshot_id is not None:
            yield staged.parent_snapshot_id


def tagged_snapshots(table: Table) -> set[int]:
    """The snapshots of all tags and branches, whoever made them."""
    return {at.snapshot_id for at in table.refs().values()}


def unpublished_snapshots(table: Table, rules: Rules, now: datetime) -> Iterator[Snapshot]:
    """Old snapshots in no branch: what was staged and never published, or rolled back."""
    reachable: set[int] = set()
    for at in table.refs().values():
        # There may be many tags, each with the same history behind it.
        new = takewhile(lambda each: each.snapshot_id not in reachable, ancestry(table, at.snapshot_id))
        reachable.update([each.snapshot_id for each in new])
    for snapshot in table.snapshots():
        if snapshot.snapshot_id not in reachable and now - committed_at(snapshot) > rules.snapshot_age:
            yield snapshot
