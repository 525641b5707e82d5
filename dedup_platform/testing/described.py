"""Tables that are described and not there: real snapshots, manifests and receipts of data files that nobody wrote.

Ledgers, plans and sensors read metadata and nothing else, so they can be tried on a hundred thousand cells in seconds.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import TimestamptzType

from dedup_platform import tables
from dedup_platform.lake.layout import Files, Layout
from dedup_platform.lake.receipts import FilesReceipt, ReadFile, Receipt, RewriteReceipt
from dedup_platform.lake.snapshots import SUMMARY, ancestry, bucket_count, summary
from dedup_platform.lake.staged import Staged
from dedup_platform.planning.cells import NO_ENTITY, Cell
from dedup_platform.planning.moments import EPOCH, microseconds
from dedup_platform.platform import Platform
from dedup_platform.recompute.receipts import build_receipt
from dedup_platform.rules.fingerprints import fingerprint
from dedup_platform.stream import Stream

ROWS_A_FILE = 1000
BYTES_A_FILE = 100_000


class DescribedTables:
    """The tables of a stream, made and filled by metadata alone; one data file for each cell of a commit."""

    def __init__(self, platform: Platform, stream: Stream) -> None:
        self.platform = platform
        self.stream = stream
        self._files: dict[tuple[str, int, Cell], DataFile] = {}
        platform.lake.create(stream, stream.buckets)

    def ingest(self, cells: Iterable[Cell], arrived: datetime, read: Iterable[str] = ()) -> None:
        """Say that an ingest added a file to each of these cells of raw; its records arrived at one moment.

        `read` are the paths of the source's files that it read.
        """
        files = tuple(ReadFile(path, 0, 1, "e", 1) for path in read)
        self._commit_raw(cells, arrived, FilesReceipt(files=files))

    def stage_arrival(self, cell: Cell, arrived: datetime) -> Staged:
        """Stage a file for a cell of raw, and do not publish it."""
        lake, raw = self.platform.lake, tables.RAW_EVENTS
        loaded = lake.catalog.load_table(self.stream.name, raw)
        file = _described(loaded, cell, arrived, loaded.spec().spec_id)
        return lake.stage_append(self.stream, raw, lake.current(self.stream, raw), [file], {})

    def disturb(self, cells: Iterable[Cell], arrived: datetime) -> None:
        """Say that a commit of raw took away what may have beaten records of these cells."""
        self._commit_raw((), arrived, RewriteReceipt(disturbed=tuple(sorted(cells))))

    def build(self, table: str, arrived: datetime, cells: Collection[Cell] | None = None) -> None:
        """Say that a repair rewrote all stale cells of a derived table, or those of `cells` that are stale."""
        name = self.stream.name
        heads = self.platform.ledger.sync(name)
        facts = self.platform.ledger.facts(self.stream, table, fingerprint(self.stream, table))
        stale = {*facts.changes, *facts.outdated}
        checked = sorted(stale if cells is None else stale & set(cells))
        receipt = build_receipt(table, heads, facts.fingerprint, "", checked, checked)
        pair = heads[tables.DUPLICATE_EVENTS].snapshot_id
        properties = {"duplicates-snapshot": str(pair)} if table == tables.DEDUPLICATED_EVENTS else {}
        self._commit(table, checked, arrived, receipt, properties)

    def rewrite(self, table: str, cells: Iterable[Cell], arrived: datetime) -> None:
        """Say that somebody else put other files in the place of those of these cells, and left no receipt."""
        self._commit(table, cells, arrived, None, replaces=True)

    def copies(
        self, _: object, stream: Stream, layout: Layout, old: Files, partitions: Collection[int]
    ) -> list[DataFile]:
        """What a change of the number of buckets writes of some partitions, in place of `Rebucketing._copies_of`."""
        loaded = self.platform.lake.catalog.load_table(stream.name, layout.table)
        chosen = [cell for cell in old if cell.partition in set(partitions)]
        cells = sorted({new for cell in chosen for new in _renumbered(cell, bucket_count(loaded), layout.buckets)})
        files = {cell: _described(loaded, cell, EPOCH, layout.spec_id) for cell in cells}
        self._files |= {(layout.table, layout.spec_id, cell): file for cell, file in files.items()}
        return list(files.values())

    def _commit_raw(self, cells: Iterable[Cell], arrived: datetime, receipt: Receipt) -> None:
        raw = self.platform.lake.catalog.load_table(self.stream.name, tables.RAW_EVENTS)
        previous = next((name for each in ancestry(raw) if (name := summary(each, "receipt"))), None)
        self._commit(tables.RAW_EVENTS, cells, arrived, receipt.model_copy(update={"previous": previous}))

    def _commit(
        self,
        table: str,
        cells: Iterable[Cell],
        arrived: datetime,
        receipt: Receipt | None,
        properties: Mapping[str, str] = MappingProxyType({}),
        *,
        replaces: bool = False,
    ) -> None:
        """One snapshot. Raw keeps what its cells held before; in a derived table the new files take its place."""
        if receipt is not None:
            self.platform.lake.catalog.write_receipt(self.stream.name, receipt)
        loaded = self.platform.lake.catalog.load_table(self.stream.name, table)
        spec_id, is_replaced = loaded.spec().spec_id, replaces or table in tables.DERIVED
        added = {(table, spec_id, cell): _described(loaded, cell, arrived, spec_id) for cell in cells}
        gone = [self._files[place] for place in added if is_replaced and place in self._files]
        with loaded.transaction() as transaction:
            told = dict(properties) | ({} if receipt is None else {"receipt": receipt.name})
            update = transaction.update_snapshot({f"{SUMMARY}{key}": value for key, value in told.items()})
            with update.overwrite() if gone else update.fast_append() as snapshot:
                for file in gone:
                    snapshot.delete_data_file(file)
                for file in added.values():
                    snapshot.append_data_file(file)
        self._files |= added


def _renumbered(cell: Cell, old: int, new: int) -> list[Cell]:
    """The cells that rows of this one lie in under another number of buckets."""
    if cell.bucket == NO_ENTITY:
        return [cell]
    return [
        Cell(cell.partition, bucket) for bucket in range(new) if bucket % min(old, new) == cell.bucket % min(old, new)
    ]


def _described(table: Table, cell: Cell, arrived: datetime, spec_id: int) -> DataFile:
    bounds: dict[int, bytes] = {}
    if "arrival_time" in table.schema().column_names:
        micros = microseconds(arrived)
        bounds[table.schema().find_field("arrival_time").field_id] = to_bytes(TimestamptzType(), micros)
    place = f"{table.location()}/data/{cell.partition}/{cell.bucket}"
    arguments: dict[str, Any] = {
        "content": DataFileContent.DATA,
        "file_path": f"{place}/{len(table.metadata.snapshots):05}_{spec_id}.parquet",
        "file_format": FileFormat.PARQUET,
        "partition": Record(cell.partition, cell.bucket),
        "record_count": ROWS_A_FILE,
        "file_size_in_bytes": BYTES_A_FILE,
        "column_sizes": {},
        "value_counts": {},
        "null_value_counts": {},
        "nan_value_counts": {},
        "lower_bounds": bounds,
        "upper_bounds": bounds,
        "key_metadata": None,
        "split_offsets": None,
        "equality_ids": None,
        "sort_order_id": None,
    }
    file = DataFile.from_args(**arguments)
    file.spec_id = spec_id
    return file
