"""The table `session_aliases`: files that follow one another by entity, replaced by compare-and-set with its position.

Its files are the leaves of a tree: each owns the entities from its first one up to the first of the next, and all rows
of an entity lie together. So whoever changes some entities reads and replaces the files that own them, and no others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import StringType

from dedup_platform import tables
from dedup_platform.errors import ConflictError
from dedup_platform.lake.append_only import MAIN
from dedup_platform.lake.beside import TableBeside, add_missing_columns, create_beside
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.feeds import feed_position
from dedup_platform.lake.overwrite import CompareAndSet
from dedup_platform.lake.publishing import prefixed, retry_commit
from dedup_platform.lake.receipts import SummaryValues
from dedup_platform.lake.snapshots import ancestry, head, summary
from dedup_platform.stream import Stream


@dataclass(frozen=True)
class Place:
    """How far somebody has come in a feed."""

    feed: str
    """The feed's own id: one that was made anew counts its versions anew."""
    version: int
    """The last version."""
    ordinal: int | None = None
    """The last change of that version; None if it is whole."""


@dataclass(frozen=True)
class AliasPosition:
    """Where the table is."""

    base: int
    """Its newest snapshot: whoever goes on from here commits only if it still is."""
    place: Place | None
    """None before the first, and where no snapshot is left that says it."""

    def leads_to(self, newest: Place) -> bool:
        """Whether a feed that is there by now goes on from here; else it was made anew, or taken back."""
        return self.place is not None and self.place.feed == newest.feed and self.place.version <= newest.version


@dataclass
class Leaf:
    """Files that own the entities from `first` up to the first one of the next leaf; the first leaf owns all before."""

    first: str = ""
    last: str | None = ""
    """No entity in them comes after it; None if that is not known."""
    files: list[DataFile] = field(default_factory=list)


class AliasTable(TableBeside):
    """The aliases of one stream's sessions."""

    def __init__(self, catalog: Catalog, stream: Stream) -> None:
        super().__init__(catalog, stream, tables.SESSION_ALIASES)

    def prepare(self) -> AliasPosition:
        """Create the table if it is not there; returns how far it has come."""
        if self.catalog.load(self.stream.name, self.name) is None:
            create_beside(self.catalog, self.stream, self.name, PartitionSpec())
        add_missing_columns(self.catalog, self.stream, self.name)
        return alias_position(self.load())

    def leaves(self, files: Iterable[DataFile]) -> list[Leaf]:
        """Files of it by the entities that they own, in their order, one leaf at least.

        Those whose bounds overlap are one leaf.
        """
        entity = self.load().schema().find_field("entity_id").field_id
        found: list[Leaf] = []
        for leaf in sorted((_leaf(file, entity) for file in files), key=lambda leaf: leaf.first):
            if found and (found[-1].last is None or leaf.first <= found[-1].last):
                found[-1].files += leaf.files
                found[-1].last = _later(found[-1].last, leaf.last)
            else:
                found.append(leaf)
        return found or [Leaf()]

    @retry_commit
    def replace(
        self, position: AliasPosition, removed: Sequence[DataFile], added: Sequence[DataFile], place: Place
    ) -> AliasPosition:
        """Put files in place of others, after which the table has come to this place; returns where it is.

        Raises ConflictError if it is no longer at this position: somebody else went on from there.
        """
        table = self.load()
        if head(table).snapshot_id != position.base:
            raise ConflictError(
                f"{self.stream.name}.{self.name}: another process brought it up to date first; nothing "
                "was written. Run again."
            )
        with table.transaction() as transaction, CompareAndSet(transaction, MAIN, prefixed(_told(place))) as write:
            for file in removed:
                write.delete_data_file(file)
            for file in added:
                write.append_data_file(file)
        return AliasPosition(write.snapshot_id, place)


def alias_position(table: Table) -> AliasPosition:
    """How far the table has come."""
    places = (place for snapshot in ancestry(table) if (place := _place(snapshot)))
    return AliasPosition(head(table).snapshot_id, next(places, None))


def place_of_feed(feed: Table) -> Place:
    """Where somebody is who has got all that a feed tells."""
    return Place(str(feed.metadata.table_uuid), feed_position(feed).version)


def is_alias_behind(catalog: Catalog, stream: Stream) -> bool:
    """Whether the feed of sessions tells more than the aliases know."""
    aliases, feed = (catalog.load(stream.name, name) for name in (tables.SESSION_ALIASES, tables.SESSION_CHANGES))
    if feed is None:
        return False
    newest = place_of_feed(feed)
    place = alias_position(aliases).place if aliases else None
    return newest.version > 0 if place is None else newest != place


def _leaf(file: DataFile, entity: int) -> Leaf:
    first, last = (_bound(bounds, entity) for bounds in (file.lower_bounds, file.upper_bounds))
    return Leaf(first or "", last, [file])


def _later(one: str | None, other: str | None) -> str | None:
    return None if one is None or other is None else max(one, other)


def _told(place: Place) -> SummaryValues:
    told: SummaryValues = {"feed": place.feed, "version": str(place.version)}
    return told if place.ordinal is None else told | {"ordinal": str(place.ordinal)}


def _place(snapshot: Snapshot) -> Place | None:
    feed, ordinal = summary(snapshot, "feed"), summary(snapshot, "ordinal")
    if feed is None:
        return None
    return Place(feed, int(summary(snapshot, "version") or 0), None if ordinal is None else int(ordinal))


def _bound(bounds: dict[int, bytes] | None, field: int) -> str | None:
    value = (bounds or {}).get(field)
    return None if value is None else str(from_bytes(StringType(), value))
