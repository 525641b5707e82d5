"""Keeps tables small: compaction, expiry of history, removal of orphans. It changes no row and makes no cell stale.

What may expire is decided here and not by age alone. The lake must go on telling all that the ledger knows (rule 10),
so what is left of a table's history begins with a snapshot whose receipt leads to all receipts before it, and what only
older snapshots proved is said again before they go (`_settle`).
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from dedup_platform import tables
from dedup_platform.errors import ClockBehindError
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.feeds import needed_by_feed, pass_rewrites
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.pins import unpin_dropped
from dedup_platform.lake.snapshots import (
    POSITIONS,
    ancestry,
    head,
    live,
    paired_duplicates,
    pairs,
    summary,
    total_files,
)
from dedup_platform.lake.staged import STAGING
from dedup_platform.ledger import Head, Ledger
from dedup_platform.maintenance import procedures
from dedup_platform.maintenance.checkpoints import Checkpoints
from dedup_platform.maintenance.history import (
    SnapshotHistory,
    cut_history,
    positions_only_of,
    staging_base,
    tagged_snapshots,
    unpublished_snapshots,
)
from dedup_platform.planning.cells import Cell, closes
from dedup_platform.planning.facts import linked_cells
from dedup_platform.recompute.receipts import receipt_of_same_rows
from dedup_platform.retries import retry_on_conflict
from dedup_platform.rules.fingerprints import fingerprint
from dedup_platform.stream import Stream

MANIFESTS = 100
"""More manifests than this are written anew, unless they are full. Writers merge theirs from about so many on, too."""
MANIFEST_BYTES = 8 * 1024**2
"""What Iceberg fills a manifest up to if the table does not say otherwise."""


@dataclass(frozen=True)
class TableExtent:
    """What a table is made of. Bytes are those of its folder: live files, older snapshots' files and orphans."""

    files: int
    """Data files of the newest snapshot."""
    manifests: int
    """Manifests of the newest snapshot."""
    snapshots: int
    bytes: int
    metadata_bytes: int


@dataclass(frozen=True)
class Upkeep:
    """What maintenance did to one table."""

    table: str
    files_compacted: int
    snapshots_expired: int
    orphans_removed: int
    before: TableExtent
    after: TableExtent
    seconds: float
    waits: str | None = None
    """Why the rest was left for later: the clock is behind the newest commit."""


class Maintenance:
    """The upkeep of the tables of any stream. Downstream tables go first: they say what they were built from."""

    def __init__(self, lake: Lakehouse, ledger: Ledger) -> None:
        self.lake = lake
        self.ledger = ledger
        self._checkpoints = Checkpoints(lake, ledger)

    def maintain(self, stream: Stream, table: str, now: datetime) -> Upkeep:
        """Look after one table. Whoever wins a race against another writer, nothing is lost; the loser tries again."""
        started = time.monotonic()
        before = extent(self.lake.catalog, stream, table)
        expired, compacted, waits = 0, 0, None
        try:
            # History first: it is as it was when the proofs of the table downstream were renewed.
            expired = retry_on_conflict(self._expire)(stream, table, now)
            compacted = self._compact(stream, table, now)
            self._rewrite_manifests(stream, table)
        except ClockBehindError as error:
            waits = str(error)
        if table in tables.INPUT_OF:
            retry_on_conflict(self._renew_proofs)(stream, table, now)
        elif table == tables.RAW_EVENTS and self._checkpoints.is_due(stream, table):
            retry_on_conflict(self._checkpoints.commit_positions)(stream)
        orphans = procedures.remove_orphans(self.lake, stream, table, stream.maintenance.orphan_age)
        if table == tables.RAW_EVENTS:
            # Last of all tables, and for all of them.
            orphans += self._checkpoints.remove_superfluous(stream, stream.maintenance.orphan_age)
        after = extent(self.lake.catalog, stream, table)
        return Upkeep(table, compacted, expired, orphans, before, after, time.monotonic() - started, waits)

    def _compact(self, stream: Stream, table: str, now: datetime) -> int:
        """Put together the small files of closed partitions, some partitions at a time; returns how many there were."""
        self.ledger.sync(stream.name)
        sizes = self.ledger.sizes(stream.name, table)
        many = {cell.partition for cell, size in sizes.items() if size.files >= procedures.SMALL_FILES}
        length, grace = stream.partitions.length, stream.late.grace
        closed = [each for each in sorted(many) if closes(each, length, grace) <= now]
        most = stream.late.max_partitions_per_run
        in_cells = sum(size.files for size in sizes.values())
        rejected = total_files(self.lake.catalog.load_table(stream.name, table)) - in_cells >= procedures.SMALL_FILES
        chunks = [closed[first : first + most] for first in range(0, len(closed), most)] or ([[]] if rejected else [])
        return sum(
            retry_on_conflict(procedures.compact_files)(
                self.lake, stream, table, chunk, rejected=rejected and number == 0
            )
            for number, chunk in enumerate(chunks)
        )

    def _rewrite_manifests(self, stream: Stream, table: str) -> None:
        loaded = self.lake.catalog.load_table(stream.name, table)
        manifests = head(loaded).manifests(loaded.io)
        full = int(loaded.properties.get("commit.manifest.target-size-bytes", MANIFEST_BYTES))
        if len(manifests) > MANIFESTS + sum(each.manifest_length for each in manifests) // full:
            retry_on_conflict(procedures.rewrite_manifests)(self.lake, stream, table)

    def _expire(self, stream: Stream, table: str, now: datetime) -> int:
        """Expire what nobody needs any more; returns how many snapshots."""
        retry_on_conflict(pass_rewrites)(self.lake.catalog, stream, table)
        unpin_dropped(self.lake.catalog, stream, table)
        heads = self.ledger.sync(stream.name)
        loaded = self.lake.catalog.load_table(stream.name, table)
        history = self._history(stream, table, heads, now)
        expired = {snapshot.snapshot_id for snapshot in unpublished_snapshots(loaded, stream.maintenance, now)}
        # Rolled back or not, a feed tells what became of the rows that it told last.
        expired -= needed_by_feed(self.lake.catalog, stream, table)
        if table == tables.DUPLICATE_EVENTS:
            # Rolled back or not, events that are read are read with these.
            expired -= self._paired(stream)
        # Kept for the next time: snapshots that the consumer has not processed, and those that record a rollback or a
        # foreign write, until that is repaired: a snapshot older than all history counts as expired.
        consumer = next((each for each in tables.derived(stream) if tables.INPUT_OF[each] == table), None)
        is_lost = any(self.ledger.is_lost(stream.name, each) for each in (table, consumer) if each)
        if not is_lost and not (consumer and self._unproven(stream, consumer, history)):
            expired |= {snapshot.snapshot_id for snapshot in history.expired}
        if expired:
            procedures.expire_snapshots(self.lake, stream, table, expired)
            for name in positions_only_of(loaded, expired):
                self.lake.catalog.delete_receipt(stream.name, name)
        return len(expired)

    def _history(self, stream: Stream, table: str, heads: Mapping[str, Head], now: datetime) -> "SnapshotHistory":
        """Main's history as far as the ledger has folded it, cut where nobody needs what is older."""
        loaded = self.lake.catalog.load_table(stream.name, table)
        snapshots = list(ancestry(loaded, heads[table].snapshot_id))
        needed = {base for name in loaded.refs() if name.startswith(STAGING) for base in staging_base(loaded, name)}
        if table == tables.RAW_EVENTS:
            # The newest snapshot with positions says where the reading of topics goes on.
            with_positions = (
                snapshot.snapshot_id for snapshot in snapshots if summary(snapshot, POSITIONS) is not None
            )
            needed |= set(islice(with_positions, 1))
        if table == tables.DEDUPLICATED_EVENTS:
            needed |= {events for events, _ in list(pairs(loaded))[:1]}
        if table == tables.DUPLICATE_EVENTS:
            # Whoever reads events of any snapshot that is left finds the duplicates that belong to them.
            needed |= self._paired(stream)
        needed |= needed_by_feed(self.lake.catalog, stream, table)
        return cut_history(
            snapshots,
            stream.maintenance,
            now,
            needed=needed,
            tagged=tagged_snapshots(loaded),
            receipts=table != tables.DUPLICATE_EVENTS,
        )

    def _paired(self, stream: Stream) -> set[int]:
        """The snapshots of duplicates that belong to those of events."""
        events, duplicates = (
            self.lake.catalog.load_table(stream.name, name)
            for name in (tables.DEDUPLICATED_EVENTS, tables.DUPLICATE_EVENTS)
        )
        paired = {pair for _, pair in pairs(events)}
        if paired_duplicates(events, list(ancestry(events))[-1].snapshot_id) is None:
            # Events from before the first pair, with which there are no duplicates yet.
            paired.add(list(ancestry(duplicates))[-1].snapshot_id)
        return paired

    def _renew_proofs(self, stream: Stream, table: str, now: datetime) -> None:
        """Say of cells for which nothing new waits that they are built from the input as it is now.

        Only of those whose proof goes when the input's history expires. Where there are many receipts, the same commit
        is a checkpoint.
        """
        heads = self.ledger.sync(stream.name)
        cells = self._unproven(stream, table, self._history(stream, tables.INPUT_OF[table], heads, now))
        if cells:
            # What is near something new has not seen it yet: its history stays until it has.
            facts = self.ledger.facts(stream, table, fingerprint(stream, table))
            linked = {each for cell in facts.changes for each in linked_cells(cell, facts, facts.reach)}
            cells -= linked | facts.disturbed
        is_due = self._checkpoints.is_due(stream, table)
        if cells or is_due:
            self._commit_built(stream, table, heads, cells, is_due)

    def _unproven(self, stream: Stream, table: str, source: "SnapshotHistory") -> set[Cell]:
        """The cells that a ledger which is rebuilt from this history of the input would wrongly take for stale.

        The files that are left tell when a cell last changed, and some tell too late a time: a compacted file bears the
        sequence number of its compaction, and of an emptied cell there is none.
        """
        if not source.expired:
            return set()
        name, oldest = tables.INPUT_OF[table], source.kept[-1]
        newest: dict[Cell, int] = {}
        for file in live(self.lake.catalog.load_table(stream.name, name), oldest):
            if file.cell is not None:
                newest[file.cell] = max(file.sequence, newest.get(file.cell, 0))
        emptied = oldest.sequence_number or 0
        facts = self.ledger.facts(stream, table, fingerprint(stream, table))
        built = self.ledger.built(stream.name, table)
        settled = built.keys() - facts.changes.keys() - facts.outdated
        return {cell for cell in settled if newest.get(cell, emptied) > built[cell]}

    def _commit_built(
        self, stream: Stream, table: str, heads: Mapping[str, Head], cells: Collection[Cell], is_checkpoint: bool
    ) -> None:
        settings = fingerprint(stream, table)
        receipt = receipt_of_same_rows(self.lake.catalog, stream.name, table, heads, settings, "maintenance", cells)
        properties = receipt.properties()
        if is_checkpoint:
            parts = self._checkpoints.write_parts(stream, table)
            receipt = receipt.model_copy(update={"checkpoint": parts, "previous": None})
            properties["checkpoint"] = receipt.name
        if table == tables.DEDUPLICATED_EVENTS and (pair := self._pair(stream)):
            properties["duplicates-snapshot"] = str(pair)
        staged = self.lake.stage_nothing(stream, table, heads[table].snapshot_id, properties)
        self.lake.catalog.write_receipt(stream.name, receipt)
        self.lake.publish(staged)
        self.ledger.sync(stream.name)

    def _pair(self, stream: Stream) -> int | None:
        return paired_duplicates(self.lake.catalog.load_table(stream.name, tables.DEDUPLICATED_EVENTS))


def extent(catalog: Catalog, stream: Stream, table: str) -> TableExtent:
    """What a table is made of now."""
    loaded = catalog.load_table(stream.name, table)
    stored = catalog.stored_files(stream.name, table)
    return TableExtent(
        files=total_files(loaded),
        manifests=len(head(loaded).manifests(loaded.io)),
        snapshots=len(loaded.snapshots()),
        bytes=sum(file.size for file in stored),
        metadata_bytes=sum(file.size for file in stored if "/metadata/" in file.path),
    )
