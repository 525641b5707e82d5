"""Another number of buckets for a stream that exists: every table is copied partition by partition, then swapped.

Readers see the old layout until they see the new one, with the same rows. Nothing may be stale at the first swap, so
that "built" can be said of all new cells at once. Tables are swapped one after another, raw first: from then on, until
all are, whoever would write is refused (`Lakehouse.buckets`). Whatever kills it, the same command goes on where it was,
and can always finish: what cannot be said to be built then is built anew.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Snapshot

from dedup_platform import tables
from dedup_platform.errors import ConflictError, ConservationError, IncompatibleChangeError
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.layout import Files, Layout
from dedup_platform.lake.receipts import BuildReceipt, Input, SummaryValues
from dedup_platform.lake.snapshots import ancestry, bucket_count, changes_numbering, head, paired_duplicates
from dedup_platform.lake.table_files import buckets_of
from dedup_platform.ledger import LOST, Head, Ledger
from dedup_platform.planning.cells import NO_ENTITY, Cell
from dedup_platform.recompute.chunks import Chunk
from dedup_platform.recompute.receipts import receipt_of_same_rows
from dedup_platform.recompute.tasks import CellResult, Store, run_tasks
from dedup_platform.rules.fingerprints import fingerprint
from dedup_platform.stream import Stream

OnProgress = Callable[[str, int, int], None]
"""Is told of each step: the table, how many of its partitions are copied, and how many there are."""


@dataclass(frozen=True)
class Copying:
    """The rows of some cells of one partition, in files of other cells of it."""

    table: str
    columns: tuple[str, ...]
    buckets: int

    def __call__(self, chunk: Chunk, store: Store) -> Iterator[CellResult]:
        """A new file for each new cell that rows of the chunk lie in."""
        files = [file for found in chunk.cells.values() for file in found]
        rows = store.read(self.table, files, self.columns)
        rows = rows.with_columns(_bucket=buckets_of(rows["entity_id"], self.buckets))
        partition = next(iter(chunk.cells)).partition
        for [bucket], inside in rows.partition_by(
            "_bucket", as_dict=True, include_key=False, maintain_order=True
        ).items():
            cell = Cell(partition, bucket)
            yield CellResult(cell, self.table, True, store.tables[self.table].write(cell, inside.to_arrow()))


class Rebucketing:
    """Changes the number of buckets of any stream's tables."""

    def __init__(self, lake: Lakehouse, ledger: Ledger) -> None:
        self.lake = lake
        self.ledger = ledger

    def change(self, stream: Stream, buckets: int, repair: Callable[[], Any], tell: OnProgress) -> bool:
        """Give all tables so many buckets; returns whether any had another number.

        `repair` is called first, unless a change was begun: then nobody else may write. Raises ConflictError if another
        writer got in between, after which it can be called again: nothing that was copied is lost.
        """
        if len(set(self._numbers(stream).values())) == 1:
            repair()
        # Only now: meanwhile somebody else may have begun such a change, or finished one.
        numbers = self._numbers(stream)
        waiting = [table for table, number in numbers.items() if number != buckets]
        is_begun = len(set(numbers.values())) > 1
        if is_begun and tables.RAW_EVENTS in waiting:
            raise IncompatibleChangeError(_other_change(stream, numbers[tables.RAW_EVENTS]))
        layouts = {table: Layout(self.lake, stream, table, buckets) for table in waiting}
        copies = {table: self._copy(stream, layout, tell) for table, layout in layouts.items()}
        heads = self.ledger.sync(stream.name)
        moved = [table for table, (base, _, _) in copies.items() if heads[table].snapshot_id != base]
        if moved or (waiting and not is_begun and self._is_stale(stream)):
            raise ConflictError(f"{stream.name}: another writer committed while its tables were copied. Run again.")
        for table in waiting:
            self._swap(stream, layouts[table], *copies[table])
        return bool(waiting)

    def _copy(self, stream: Stream, layout: Layout, tell: OnProgress) -> tuple[int, Files, Files]:
        """Copy what is not copied yet, some partitions at a time: main's snapshot, its files, and their copies."""
        while True:
            base, old = layout.now()
            sources, copies = layout.copied()
            now, then = _paths(old), _paths(sources)
            partitions, copied = now.keys(), {cell.partition for cell in copies}
            # Where main's files are other ones by now, what was copied is outdated.
            done = {each for each in copied if now.get(each) == then.get(each)}
            outdated = [file for cell, files in copies.items() if cell.partition not in done for file in files]
            tell(layout.table, len(partitions & done), len(partitions))
            todo = sorted(partitions - done)[: stream.late.max_partitions_per_run]
            if not todo and not outdated:
                return base, old, copies
            # A kept copy is of the snapshot that was read last, so what changed since goes first, in the same commit.
            again = sorted(copied & partitions - done)
            layout.keep(base, outdated, self._copies_of(stream, layout, old, sorted({*again, *todo})))

    def _copies_of(self, stream: Stream, layout: Layout, old: Files, partitions: Sequence[int]) -> list[DataFile]:
        wanted = set(partitions)
        chosen = {cell: files for cell, files in old.items() if cell.partition in wanted}
        step = Copying(layout.table, tuple(tables.column_names(stream, layout.table)), layout.buckets)
        chunks = list(_chunks(chosen, layout.buckets))
        written = run_tasks(self.lake.spark(), chunks, step, {layout.table: layout.files}).written
        copies = [each.file for each in written if each.file]
        before = sum(file.record_count for files in chosen.values() for file in files)
        after = sum(file.record_count for file in copies)
        if before != after:
            raise ConservationError(f"{stream.name}.{layout.table}: {before} rows, but copies of {after}.")
        return copies

    def _swap(self, stream: Stream, layout: Layout, base: int, old: Files, copies: Files) -> None:
        heads = self.ledger.sync(stream.name)
        receipt = self._receipt(stream, layout, heads, copies)
        properties: SummaryValues = {"reason": "buckets"}
        if receipt:
            properties = receipt.properties()
            self.lake.catalog.write_receipt(stream.name, receipt)
        if layout.table == tables.DEDUPLICATED_EVENTS and (pair := self._pair(stream, heads)):
            properties["duplicates-snapshot"] = str(pair)
        self.lake.publish(layout.stage(base, _all(old), _all(copies), properties))
        layout.forget()
        self.ledger.sync(stream.name)

    def _receipt(self, stream: Stream, layout: Layout, heads: Mapping[str, Head], copies: Files) -> BuildReceipt | None:
        """Says of every new cell that it is built from its input as that was swapped, and that the old cells are gone.

        What came to the input since then waits. Where not all old cells were built alike, or not from all there was,
        nothing tells which of the new ones are: all are to be built anew.
        """
        table = layout.table
        if table not in tables.INPUT_OF:
            return None
        source = tables.INPUT_OF[table]
        # All cells of the input, too: of some of them nothing came out.
        cells = {*copies, *self._cells(stream, source)}
        swapped = self._swapped(stream, source)
        is_paired = table != tables.DEDUPLICATED_EVENTS or not self.lake.unpaired_cells(stream)
        settings = self.ledger.built_alike(stream.name, table, swapped.sequence_number or 0) if is_paired else None
        receipt = receipt_of_same_rows(self.lake.catalog, stream.name, table, heads, settings or LOST, "buckets", cells)
        read = Input(snapshot=swapped.snapshot_id, sequence=swapped.sequence_number or 0)
        return receipt.model_copy(update={"built_from": {source: read}, "buckets": layout.buckets})

    def _swapped(self, stream: Stream, table: str) -> Snapshot:
        """The snapshot by which a table got its number of buckets; its newest one if that expired."""
        loaded = self.lake.catalog.load_table(stream.name, table)
        return next(filter(changes_numbering, ancestry(loaded)), head(loaded))

    def _pair(self, stream: Stream, heads: Mapping[str, Head]) -> int | None:
        """The duplicates that belong to the events: those of now, unless the events for these were not published."""
        if self.lake.unpaired_cells(stream):
            return paired_duplicates(self.lake.catalog.load_table(stream.name, tables.DEDUPLICATED_EVENTS))
        return heads[tables.DUPLICATE_EVENTS].snapshot_id

    def _cells(self, stream: Stream, table: str) -> set[Cell]:
        cells = set(self.ledger.sizes(stream.name, table))
        # Events without an entity are in no session.
        return cells if table == tables.RAW_EVENTS else {cell for cell in cells if cell.bucket != NO_ENTITY}

    def _is_stale(self, stream: Stream) -> bool:
        found = [self.ledger.facts(stream, table, fingerprint(stream, table)) for table in tables.derived(stream)]
        return any(facts.pending for facts in found)

    def _numbers(self, stream: Stream) -> dict[str, int]:
        """How many buckets each table has."""
        return {
            table: bucket_count(self.lake.catalog.load_table(stream.name, table)) for table in tables.all_of(stream)
        }


def _other_change(stream: Stream, begun: int) -> str:
    return (
        f"{stream.name}: a change to {begun} buckets was begun and not finished. "
        f"`dedup-platform buckets {stream.name} {begun}` finishes it; then they can be changed again."
    )


def _chunks(files: Files, buckets: int) -> Iterator[Chunk]:
    """Old cells of one partition that share new cells: numbers of buckets are powers of two, so these nest."""
    groups: dict[tuple[int, int], Files] = {}
    for cell, found in sorted(files.items()):
        share = cell.bucket if cell.bucket == NO_ENTITY else cell.bucket % buckets
        groups.setdefault((cell.partition, share), {})[cell] = found
    for group in groups.values():
        yield Chunk(group, {}, bytes=sum(file.file_size_in_bytes for found in group.values() for file in found))


def _paths(files: Files) -> dict[int, set[str]]:
    """Partition -> the paths of its files."""
    found: dict[int, set[str]] = {}
    for cell, in_cell in files.items():
        found.setdefault(cell.partition, set()).update(file.file_path for file in in_cell)
    return found


def _all(files: Files) -> list[DataFile]:
    return [file for found in files.values() for file in found]
