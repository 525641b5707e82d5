"""The commits behind rows: which one wrote the file that a row is in, when, why and from what."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from dedup_platform.explain.view import FILE, View
from dedup_platform.lake.snapshots import committed_at, rewrites_only, summary


@dataclass(frozen=True)
class TableCommit:
    """A commit of a table, as far as its snapshot is known yet."""

    table: str
    snapshot_id: int
    at: datetime | None = None
    """When it was made; None if the snapshot has expired, and then the rest is not known either."""
    reason: str | None = None
    """Of a recomputation why; of `raw_events` None for an ingest."""
    built_from: str | None = None
    """`raw_events@123`."""
    is_rewrite: bool = False
    """Whether it put the same rows into other files, as upkeep does."""
    published_with: int | None = None
    """Of duplicates: the first snapshot of `deduplicated_events` that names this one."""


def commit(view: View, snapshot_id: int) -> TableCommit:
    """What is known of a commit of this table."""
    snapshot, published_with = view.table.snapshot_by_id(snapshot_id), view.published_with.get(snapshot_id)
    if snapshot is None:
        return TableCommit(view.name, snapshot_id, published_with=published_with)
    return TableCommit(
        view.name,
        snapshot_id,
        committed_at(snapshot),
        summary(snapshot, "reason"),
        summary(snapshot, "built-from"),
        rewrites_only(snapshot),
        published_with,
    )


def commits_of(view: View, rows: Iterable[dict[str, object]]) -> dict[str, TableCommit]:
    """The commit that wrote each of the files that rows were found in, by the file's path."""
    added = view.commits({str(row[FILE]) for row in rows})
    known = {snapshot_id: commit(view, snapshot_id) for snapshot_id in set(added.values())}
    return {path: known[snapshot_id] for path, snapshot_id in added.items()}
