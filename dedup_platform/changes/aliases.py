"""Keeps `session_aliases` up to date with `session_changes`: a fold of the feed, each of its changes once.

How far it has come is in the commit that brings its rows there. So whoever is killed, or never came, is caught up with
by the next one; a table that is lost, or whose feed was made anew, is made of the whole feed once more.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import polars as pl
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from dedup_platform.changes.batches import ORDINAL, VERSION, batches
from dedup_platform.changes.feeds import FeedCommit
from dedup_platform.lake.aliases import AliasPosition, AliasTable, Leaf, Place, place_of_feed
from dedup_platform.lake.durable import sync_written
from dedup_platform.lake.feed_files import Change, feed_files, in_turns
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.table_files import TableFiles, frame_of
from dedup_platform.rules.aliases import folded
from dedup_platform.rules.changes import DELETE, INSERT
from dedup_platform.stream import Stream
from dedup_platform.tables import SESSION_ALIASES, SESSION_CHANGES, SESSIONS, column_names, told_names

FILE_ROWS = 25_000
"""A file has at most so many aliases, unless one entity has more. A late event rewrites one: about a megabyte."""
COMMIT_ROWS = 1_000_000
"""At most so many changes are held in memory, and committed at once."""
_ALL = 2**63 - 1


class Aliases:
    """Brings the aliases of any stream's sessions up to date."""

    def __init__(self, lake: Lakehouse) -> None:
        self._lake = lake

    def follow(self, stream: Stream) -> FeedCommit:
        """Take in all that the feed of sessions tells and the aliases do not know.

        Raises ConflictError if another process does so meanwhile: all that came before is committed.
        """
        nothing = FeedCommit(SESSION_CHANGES, SESSION_ALIASES)
        if self._lake.catalog.load(stream.name, SESSION_CHANGES) is None:
            return nothing
        table = AliasTable(self._lake.catalog, stream)
        position = table.prepare()
        # After the position: a feed as it was before might lack what another process has taken in.
        feed = self._lake.catalog.load_table(stream.name, SESSION_CHANGES)
        goal = place_of_feed(feed)
        if position.place == goal or (position.place is None and not goal.version):
            return nothing
        told = changes_of_ids(self._lake, stream, feed, position.place if position.leads_to(goal) else None)
        return _Fold(stream, table, position, goal).of(told)


def changes_of_ids(lake: Lakehouse, stream: Stream, feed: Table, after: Place | None) -> Iterator[pl.DataFrame]:
    """The changes of a feed of sessions by which ids come and go, after a place in it, in their order.

    All inserts before the first delete are left out if nothing comes before them: whatever they insert is new.
    """
    files = TableFiles.of(feed, lake.catalog.file_properties(feed))
    told = told_names(stream, SESSION_CHANGES)
    names = {"merged_into": told["merged_into"], "reason": told["reason"]}
    others = ["_change_type", VERSION, ORDINAL, "_commit_timestamp", "session_id", "entity_id"]
    done = _change(after)
    version, ordinal = pl.col(VERSION), pl.col(ORDINAL)
    is_new = (version > done[0]) | ((version == done[0]) & (ordinal > done[1]))
    kinds = [DELETE] if after is None else [DELETE, INSERT]
    for group in in_turns(feed_files(feed), done):
        found = frame_of(files.read(group, ["_change_type"]))["_change_type"]
        if found.is_in(kinds).any():
            kinds = [DELETE, INSERT]
            changes = frame_of(files.read(group, [*others, *names.values()])).filter(is_new)
            comes_or_goes = pl.col("_change_type").is_in(kinds)
            yield changes.filter(comes_or_goes).sort(VERSION, ORDINAL).select(*others, **names)


def retired_by(lake: Lakehouse, stream: Stream, table: str, version: int) -> Iterator[pl.DataFrame]:
    """The retirements of sessions up to a version of their feed, as deletes of it; of another table none.

    Of ids that are there again, or were retired again, some are told too. Those that the aliases do not know yet are in
    the feed.
    """
    if table != SESSIONS:
        return
    aliases = AliasTable(lake.catalog, stream)
    position = aliases.prepare()
    feed = lake.catalog.load_table(stream.name, SESSION_CHANGES)
    goes_on = position.leads_to(place_of_feed(feed))
    names = {"retired_by_version": VERSION, "retired_at": "_commit_timestamp"}
    files, columns = aliases.files(), ["session_id", "merged_into", "reason", *names]
    for file in aliases.live() if goes_on else ():
        yield frame_of(files.read([file], columns)).rename(names).filter(pl.col(VERSION) <= version)
    for changes in changes_of_ids(lake, stream, feed, position.place if goes_on else None):
        yield changes.filter((pl.col("_change_type") == DELETE) & (pl.col(VERSION) <= version))


class _Fold:
    """A fold of changes into the table, from where it is to a goal."""

    def __init__(self, stream: Stream, table: AliasTable, position: AliasPosition, goal: Place) -> None:
        self._table, self._position, self._goal = table, position, goal
        self._stream, self._files = stream, table.files()
        self._told = FeedCommit(SESSION_CHANGES, SESSION_ALIASES)

    def of(self, changes: Iterator[pl.DataFrame]) -> FeedCommit:
        """Commit all of these changes, some at once, and how far they reach."""
        for cut in batches(changes, COMMIT_ROWS):
            version, ordinal = cut.changes[[VERSION, ORDINAL]].row(-1)
            self._commit(cut.changes, Place(self._goal.feed, version, None if cut.is_whole else ordinal))
        if self._position.place != self._goal:
            self._commit(None, self._goal)
        return self._told

    def _commit(self, changes: pl.DataFrame | None, place: Place) -> None:
        live, goes_on = self._table.live(), self._position.leads_to(self._goal)
        removed, added = ([] if goes_on else live), list[DataFile]()
        counts = Counter[str]()
        shares = () if changes is None else _shares(self._table.leaves(live if goes_on else []), changes)
        for leaf, part in shares:
            if self._matters(leaf, part):
                before = self._read(leaf, column_names(self._stream, SESSION_ALIASES))
                after = folded(before, part, self._stream)
                removed += leaf.files
                added += [self._files.write_at((), piece.to_arrow()) for piece in _pieces(after)]
                counts += _counts(before["session_id"], after["session_id"])
        sync_written()
        was = self._position.place if goes_on else None
        self._position = self._table.replace(self._position, removed, added, place)
        first = self._told.first_version or (was.version + (was.ordinal is None) if was else 1)
        self._told = FeedCommit(
            SESSION_CHANGES,
            SESSION_ALIASES,
            min(first, place.version),
            place.version,
            self._told.changes + counts,
            self._told.bytes_written + sum(file.file_size_in_bytes for file in added),
        )

    def _matters(self, leaf: Leaf, changes: pl.DataFrame) -> bool:
        """Whether some session is retired, or one that was retired is there again."""
        if (changes["_change_type"] == DELETE).any():
            return True
        return self._read(leaf, ["session_id"])["session_id"].is_in(changes["session_id"].implode()).any()

    def _read(self, leaf: Leaf, names: list[str]) -> pl.DataFrame:
        return frame_of(self._files.read(leaf.files, names))


def _shares(found: list[Leaf], changes: pl.DataFrame) -> Iterator[tuple[Leaf, pl.DataFrame]]:
    """The leaves that own changed entities, each with the changes of its entities."""
    in_order = changes.sort("entity_id", maintain_order=True)
    firsts = pl.Series([leaf.first for leaf in found[1:]], dtype=pl.String)
    places = in_order["entity_id"].search_sorted(firsts, side="left")
    for leaf, (begin, end) in zip(found, pairwise([0, *places, len(in_order)]), strict=True):
        if begin < end:
            yield leaf, in_order[begin:end]


def _pieces(aliases: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Aliases, sorted by entity, in pieces of about the same size; no entity is in two."""
    size = -(-len(aliases) // max(1, -(-len(aliases) // FILE_ROWS)))
    piece = pl.col("_row").min().over("entity_id") // size
    numbered = aliases.with_row_index("_row").with_columns(_piece=piece).drop("_row")
    yield from numbered.partition_by("_piece", maintain_order=True, include_key=False)


def _counts(before: pl.Series, after: pl.Series) -> Counter[str]:
    one, other = set(before), set(after)
    return Counter(retired=len(other - one), returned=len(one - other))


def _change(place: Place | None) -> Change:
    if place is None:
        return (0, _ALL)
    return (place.version, _ALL if place.ordinal is None else place.ordinal)
