"""Which session has the events of one that was retired: a fold of the changes of sessions.

A `session_id` is retired by the version that deletes it, and back with the version that inserts it again. Each is
merged into a session that is there at that time and may be retired later, and so on: an alias follows all of these
merges, so that one look-up finds their end.
"""

import polars as pl

from dedup_platform.rules.changes import DELETE
from dedup_platform.stream import Stream
from dedup_platform.tables import SESSION_ALIASES, column_names

MERGED = "merged"
_LINK = ("session_id", "entity_id", "merged_into", "reason", "retired_at", "retired_by_version")
"""What is told of the retirement itself; all else follows."""


def folded(aliases: pl.DataFrame, changes: pl.DataFrame, stream: Stream) -> pl.DataFrame:
    """The aliases (columns of `session_aliases`) after some changes of sessions, sorted by entity.

    All aliases of each entity must be given. Of the changes, in their order, these columns count: `_change_type`
    (deletes and inserts only), `session_id`, `entity_id`, `merged_into`, `reason`, `_commit_timestamp` and
    `_commit_version`.
    """
    newest = changes.unique("session_id", keep="last")
    retired = newest.filter(pl.col("_change_type") == DELETE).select(
        "session_id",
        "entity_id",
        "merged_into",
        "reason",
        retired_at="_commit_timestamp",
        retired_by_version="_commit_version",
    )
    kept = aliases.select(_LINK).join(newest, on="session_id", how="anti")
    found = _ended(pl.concat([kept, retired]))
    return found.select(column_names(stream, SESSION_ALIASES)).sort("entity_id", "session_id")


def _ended(links: pl.DataFrame) -> pl.DataFrame:
    """Retired sessions with the end of their merges: `last_id`, `merges`, `outcome` and `current_id`.

    A session that is not retired is there. Merges that lead back to where they began have no end: then all are null.
    """
    last = pl.coalesce("merged_into", "session_id")
    paths = links.select("session_id", last_id=last, merges=pl.col("merged_into").is_not_null().cast(pl.Int64))
    # Each round doubles the merges that are followed.
    for _ in range(len(links).bit_length() + 1):
        further = _twice_as_far(paths)
        if further.equals(paths):
            break
        paths = further
    ends = links.select(last_id="session_id", _reason="reason", _goes_on=pl.col("merged_into").is_not_null())
    found = links.join(paths, on="session_id").join(ends, on="last_id", how="left")
    has_end = pl.col("_goes_on").fill_null(value=False).not_()
    is_there = pl.col("_goes_on").is_null()
    return found.with_columns(
        last_id=pl.when(has_end).then("last_id"),
        merges=pl.when(has_end).then("merges"),
        outcome=pl.when(is_there).then(pl.lit(MERGED)).when(has_end).then("_reason"),
        current_id=pl.when(is_there).then("last_id"),
    )


def _twice_as_far(paths: pl.DataFrame) -> pl.DataFrame:
    onward = paths.select(last_id="session_id", _last="last_id", _merges="merges")
    return paths.join(onward, on="last_id", how="left", maintain_order="left").select(
        "session_id",
        last_id=pl.coalesce("_last", "last_id"),
        merges=pl.col("merges") + pl.col("_merges").fill_null(0),
    )
