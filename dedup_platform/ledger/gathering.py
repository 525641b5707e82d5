"""Gathers what the snapshots of one table tell since the last fold: their own manifest entries, and their receipts."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from dedup_platform import tables
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.receipts import AnyReceipt, BuildReceipt, FilesReceipt
from dedup_platform.lake.snapshots import (
    ancestry,
    changes,
    changes_numbering,
    committed_at,
    head,
    live,
    rewrites_only,
    since,
    summary,
)
from dedup_platform.ledger.checkpoints import Content, read_content
from dedup_platform.ledger.facts import Head
from dedup_platform.ledger.fold import FilesTold, Fold, Proof, Told
from dedup_platform.ledger.schema import LOST
from dedup_platform.planning.cells import Cell


class Gathering:
    """What is read of one table; `loaded` are all tables of the stream."""

    def __init__(self, catalog: Catalog, stream: str, name: str, loaded: Mapping[str, Table]) -> None:
        self.catalog = catalog
        self.stream = stream
        self.name = name
        self.loaded = loaded
        self.table = loaded[name]
        self.source = loaded.get(tables.INPUT_OF.get(name, ""))

    def since(self, last: Head | None) -> Fold | None:
        """The facts of all snapshots after the last one that was folded; None if there are no newer ones."""
        snapshots, _ = since(self.table, last.snapshot_id if last else None)
        if not snapshots:
            return None
        fold = Fold(newest_receipt=last.receipt, complete=last.complete) if last else Fold(is_whole=True)
        checkpoint = None if last else self._newest_checkpoint(snapshots)
        if checkpoint:
            _begin_with(fold, checkpoint.content)
        # Not by its parent: PyIceberg takes the parent from a snapshot when it expires it.
        if last is None and (snapshots[0].sequence_number or 0) > 1:
            self._add_lost_history(fold, snapshots.pop(0), checkpoint)
        pairs = self._pairs() if fold.is_whole else None
        for snapshot in snapshots:
            touched, emptied_without_receipt = self._add_changes(fold, snapshot)
            if checkpoint is None or not checkpoint.tells(snapshot):
                self._add_word(fold, snapshot, touched, emptied_without_receipt)
            pair = summary(snapshot, "duplicates-snapshot")
            if pairs is not None and pair and int(pair) not in pairs:
                # The duplicates of these events were rolled back; what was built since then has others.
                fold.told.append(self._nothing_proves(replaces_all=True))
        if self.source:
            fold.told = list(_put_right(fold.told, self.source))
        return fold

    def _pairs(self) -> set[int] | None:
        """Of events, the snapshots of duplicates that they can be paired with."""
        if self.name != tables.DEDUPLICATED_EVENTS:
            return None
        return {snapshot.snapshot_id for snapshot in ancestry(self.loaded[tables.DUPLICATE_EVENTS])}

    def _newest_checkpoint(self, snapshots: Iterable[Snapshot]) -> "_Checkpoint | None":
        """The newest one of which nothing is lost."""
        for snapshot in reversed(list(snapshots)):
            if name := summary(snapshot, "checkpoint"):
                receipt = self.catalog.read_receipt(self.stream, name)
                content = read_content(self.catalog, self.stream, receipt) if receipt else None
                if content:
                    return _Checkpoint(snapshot.sequence_number or 0, content)
        return None

    def _add_changes(self, fold: Fold, snapshot: Snapshot) -> tuple[set[Cell], set[int]]:
        """What a snapshot did to files; returns the cells whose rows it changed, and the buckets that lost some."""
        sequence, at = snapshot.sequence_number or 0, committed_at(snapshot)
        touched: set[Cell] = set()
        emptied_without_receipt: set[int] = set()
        for change in changes(self.table, snapshot):
            if change.cell is None:
                continue
            if rewrites_only(snapshot):
                fold.resize(change)
                continue
            fold.add(change, sequence, at)
            touched.add(change.cell)
            if change.sign < 0:
                emptied_without_receipt.add(change.cell.bucket)
        if changes_numbering(snapshot):
            fold.numbered_at = sequence
        fold.newest_receipt = summary(snapshot, "receipt") or fold.newest_receipt
        return touched, emptied_without_receipt

    def _add_word(self, fold: Fold, snapshot: Snapshot, touched: set[Cell], emptied_without_receipt: set[int]) -> None:
        """What a snapshot's receipt says, and what nothing says."""
        sequence, at = snapshot.sequence_number or 0, committed_at(snapshot)
        name = summary(snapshot, "receipt")
        receipt = self._add_receipt(fold, self.catalog.read_receipt(self.stream, name)) if name else None
        fold.disturb(receipt.disturbed if receipt else (), sequence, at)
        if self.source:
            self._add_unproven(fold, snapshot, receipt, touched)
        elif self.name == tables.RAW_EVENTS and receipt is None and emptied_without_receipt:
            fold.emptied_without_receipt[sequence, at] = frozenset(emptied_without_receipt)
            fold.disturb(touched, sequence, at)

    def _add_unproven(self, fold: Fold, snapshot: Snapshot, receipt: AnyReceipt | None, touched: set[Cell]) -> None:
        """Cells that a commit changed and no receipt names have unknown provenance.

        After a change of the number of buckets without a receipt, all have.
        """
        if changes_numbering(snapshot) and receipt is None:
            fold.told.append(self._nothing_proves(replaces_all=True))
        elif unnamed := touched.difference(receipt.checked if isinstance(receipt, BuildReceipt) else ()):
            # Whoever names no receipt is none of us, and built nothing.
            is_foreign = summary(snapshot, "receipt") is None
            fold.told.append(self._nothing_proves(unnamed, is_foreign=is_foreign))

    def _nothing_proves(
        self, cells: Collection[Cell] = (), *, replaces_all: bool = False, is_foreign: bool = False
    ) -> Proof:
        assert self.source
        return Proof(head(self.source).sequence_number or 0, LOST, cells, replaces_all, is_foreign)

    def _add_receipt(self, fold: Fold, receipt: AnyReceipt | None) -> AnyReceipt | None:
        """What a receipt tells, or that one is lost."""
        fold.complete &= receipt is not None
        if receipt is not None:
            fold.told += _told(receipt)
            # Positions that were derived from raw hold all that lost receipts before them held.
            fold.complete |= _is_derived(receipt)
            if receipt.checkpoint is not None and not fold.complete:
                self._complete(fold, receipt)
        return receipt

    def _complete(self, fold: Fold, receipt: AnyReceipt) -> None:
        """A checkpoint, too, holds all that lost receipts before it held."""
        if content := read_content(self.catalog, self.stream, receipt):
            _begin_with(fold, content)
            fold.complete = True

    def _add_lost_history(self, fold: Fold, oldest: Snapshot, checkpoint: "_Checkpoint | None") -> None:
        """Facts of snapshots that were expired: their live files, and the chain of receipts that outlives them."""
        for change in live(self.table, oldest):
            fold.add(change, change.sequence, committed_at(oldest))
        name = fold.newest_receipt = summary(oldest, "receipt")
        if checkpoint:
            if name and not checkpoint.tells(oldest):
                self._add_receipt(fold, self.catalog.read_receipt(self.stream, name))
            return
        # A compaction or a new column tells nothing of what was read before it.
        fold.complete &= name is not None
        is_told = name is not None or summary(oldest, "positions") is not None
        rewritten: set[Cell] = set()
        disturbed: set[Cell] = set()
        is_same_numbering = True
        for _, receipt in self.catalog.receipts_from(self.stream, name):
            self._add_receipt(fold, receipt)
            is_told &= receipt is not None and not _is_derived(receipt)
            if receipt is None:
                break
            if is_same_numbering:
                rewritten.update(receipt.rewritten)
                disturbed.update(receipt.disturbed)
            is_same_numbering &= not (isinstance(receipt, BuildReceipt) and receipt.buckets is not None)
            if receipt.checkpoint is not None:
                content = read_content(self.catalog, self.stream, receipt)
                fold.complete &= content is not None
                is_told &= content is not None
                if content:
                    fold.told += content.told[::-1]
                    _add_untold(fold, content)
        fold.told.reverse()
        if self.name == tables.RAW_EVENTS and not is_told:
            disturbed |= fold.sizes.keys()
        # A cell that was emptied has no file left to tell when, and one beside rows that went has only older files:
        # take them for newer than anything built from them.
        sequence, at = oldest.sequence_number or 0, committed_at(oldest)
        for cell in rewritten - fold.sizes.keys():
            fold.change_of(cell, sequence, at)
        fold.disturb(disturbed, sequence, at)


@dataclass(frozen=True)
class _Checkpoint:
    """One that was read whole, and the sequence number of the snapshot that names it."""

    sequence: int
    content: Content

    def tells(self, snapshot: Snapshot) -> bool:
        """Whether it holds what the receipt of this snapshot says."""
        return (snapshot.sequence_number or 0) < self.sequence


def _begin_with(fold: Fold, content: Content) -> None:
    fold.told[:0] = content.told
    _add_untold(fold, content)


def _add_untold(fold: Fold, content: Content) -> None:
    for each in content.untold:
        fold.change_of(each.cell, each.sequence, each.at).disturbed |= each.disturbed


def _told(receipt: AnyReceipt) -> Iterator[Told]:
    """What the facts take from a receipt, besides what it says of the table's own cells."""
    if isinstance(receipt, BuildReceipt):
        yield Proof.of(receipt)
    elif isinstance(receipt, FilesReceipt):
        yield FilesTold(receipt.files, receipt.accepted)


def _is_derived(receipt: AnyReceipt) -> bool:
    return isinstance(receipt, FilesReceipt) and receipt.derived


def _put_right(told: Iterable[Told], source: Table) -> Iterator[Told]:
    """What receipts say, as it holds of the input as it is now.

    Cells are outdated that were built from a snapshot of the input that was rolled back; one that merely expired was
    not. A change of the number of buckets knows nothing that came to the input after the input's own change.
    """
    history = {snapshot.sequence_number or 0 for snapshot in ancestry(source)}
    numberings = [snapshot.sequence_number or 0 for snapshot in ancestry(source) if changes_numbering(snapshot)]
    oldest = min(history)
    for each in told:
        # A snapshot has its sequence number for itself, and a checkpoint knows nothing else of it.
        if isinstance(each, Proof) and each.input_sequence not in history and each.input_sequence >= oldest:
            yield replace(each, fingerprint=LOST, input_sequence=max(history))
        elif isinstance(each, Proof) and each.replaces_all:
            known = [sequence for sequence in numberings if sequence <= each.input_sequence]
            yield replace(each, input_sequence=max(known, default=each.input_sequence))
        else:
            yield each
