"""Gathers what the snapshots of one table tell since the last fold: their own manifest entries, and their receipts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from dedup_platform import tables
from dedup_platform.catalog import (
    Catalog,
    ancestry,
    changes,
    changes_numbering,
    committed_at,
    live,
    rewrites_only,
    since,
    summary,
)
from dedup_platform.lateness import Cell
from dedup_platform.ledger.facts import Head
from dedup_platform.ledger.fold import LOST, Fold

Receipt = dict[str, Any]


class Gathering:
    """What is read of one table; `source` is its input, if it has one."""

    def __init__(self, catalog: Catalog, stream: str, name: str, table: Table, source: Table | None) -> None:
        self.catalog = catalog
        self.stream = stream
        self.name = name
        self.table = table
        self.source = source

    def since(self, last: Head | None) -> Fold | None:
        """The facts of all snapshots after the last one that was folded; None if there are no newer ones."""
        snapshots, _ = since(self.table, last.snapshot_id if last else None)
        if not snapshots:
            return None
        fold = Fold(newest_receipt=last.receipt, complete=last.complete) if last else Fold(is_whole=True)
        if last is None and snapshots[0].parent_snapshot_id is not None:
            self._add_lost_history(fold, snapshots.pop(0))
        for snapshot in snapshots:
            self._add_snapshot(fold, snapshot)
        if self.source:
            _put_right(fold.receipts, self.source, tables.INPUT_OF[self.name])
        return fold

    def _add_snapshot(self, fold: Fold, snapshot: Snapshot) -> None:
        sequence, at = snapshot.sequence_number or 0, committed_at(snapshot)
        touched: set[Cell] = set()
        robbed: set[int] = set()
        for change in changes(self.table, snapshot):
            if change.cell is None:
                continue
            if rewrites_only(snapshot):
                fold.resize(change)
                continue
            fold.add(change, sequence, at)
            touched.add(change.cell)
            if change.sign < 0:
                robbed.add(change.cell.bucket)
        receipt: Receipt | None = None
        if name := summary(snapshot, "receipt"):
            fold.newest_receipt = name
            receipt = self._add_receipt(fold, name)
        fold.disturb(_cells(receipt, "disturbed"), sequence, at)
        fold.is_renumbered |= changes_numbering(snapshot)
        if self.source:
            self._add_unproven(fold, snapshot, receipt, touched)
        elif self.name == tables.RAW_EVENTS and receipt is None and robbed:
            fold.robbed[sequence, at] = frozenset(robbed)

    def _add_unproven(self, fold: Fold, snapshot: Snapshot, receipt: Receipt | None, touched: set[Cell]) -> None:
        """Nothing proves cells that a commit changed and did not name, nor any cell whose numbering it alone told."""
        if changes_numbering(snapshot) and receipt is None:
            fold.receipts.append(self._nothing_proves(()) | {"buckets": None})
        elif unnamed := touched - _cells(receipt, "checked"):
            fold.receipts.append(self._nothing_proves(unnamed))

    def _nothing_proves(self, cells: Iterable[Cell]) -> Receipt:
        source = {tables.INPUT_OF[self.name]: {"snapshot": None, "sequence": 0}}
        return {"built_from": source, "fingerprint": LOST, "checked": sorted(cells)}

    def _add_receipt(self, fold: Fold, name: str) -> Receipt | None:
        receipt = self.catalog.read_receipt(self.stream, name)
        fold.complete &= receipt is not None
        if receipt is not None:
            fold.receipts.append(receipt)
            # Positions that were derived from raw hold all that lost receipts before them held.
            fold.complete |= bool(receipt.get("derived"))
        return receipt

    def _add_lost_history(self, fold: Fold, oldest: Snapshot) -> None:
        """Facts of snapshots that were expired: their live files, and the chain of receipts that outlives them."""
        for change in live(self.table, oldest):
            fold.add(change, change.sequence, committed_at(oldest))
        name = fold.newest_receipt = summary(oldest, "receipt")
        # A compaction or a new column tells nothing of what was read before it.
        fold.complete &= name is not None
        is_told = name is not None or summary(oldest, "positions") is not None
        rewritten: set[Cell] = set()
        disturbed: set[Cell] = set()
        is_same_numbering = True
        while name:
            receipt = self._add_receipt(fold, name)
            is_told &= receipt is not None and not receipt.get("derived")
            if is_same_numbering:
                rewritten |= _cells(receipt, "rewritten")
                disturbed |= _cells(receipt, "disturbed")
            is_same_numbering &= "buckets" not in (receipt or {})
            name = receipt["previous"] if receipt else None
        fold.receipts.reverse()
        if self.name == tables.RAW_EVENTS and not is_told:
            disturbed |= fold.sizes.keys()
        # A cell that was emptied has no file left to tell when, and one beside rows that went has only older files:
        # take them for newer than anything built from them.
        sequence, at = oldest.sequence_number or 0, committed_at(oldest)
        for cell in rewritten - fold.sizes.keys():
            fold.add_news(cell, sequence, at)
        fold.disturb(disturbed, sequence, at)


def _put_right(receipts: Iterable[Receipt], source: Table, name: str) -> None:
    """Let receipts say what holds of the input as it is now.

    Cells are outdated that were built from a snapshot of the input that was taken back; one that merely expired was
    not. A change of the number of buckets knows nothing that came to the input after the input's own change.
    """
    history = {snapshot.snapshot_id: snapshot.sequence_number or 0 for snapshot in ancestry(source)}
    numberings = [snapshot.sequence_number or 0 for snapshot in ancestry(source) if changes_numbering(snapshot)]
    oldest = min(history.values())
    for receipt in receipts:
        built = receipt["built_from"][name]
        if built["snapshot"] not in history and built["sequence"] >= oldest:
            receipt["fingerprint"], built["sequence"] = LOST, 0
        elif "buckets" in receipt:
            known = [sequence for sequence in numberings if sequence <= built["sequence"]]
            built["sequence"] = max(known, default=built["sequence"])


def _cells(receipt: Mapping[str, Any] | None, what: str) -> set[Cell]:
    found: Sequence[Sequence[int]] = receipt.get(what, ()) if receipt else ()
    return {Cell(*place) for place in found}
