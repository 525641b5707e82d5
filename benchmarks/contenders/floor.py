"""The least that any table of events costs: the same columns copied from `raw_events` through the platform's writer."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError

from benchmarks.contender import Output
from benchmarks.contenders.ours import STREAM, Ours
from dedup_platform import tables
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.snapshots import files_by_cell, head
from dedup_platform.lake.table_files import TableFiles
from dedup_platform.recompute.chunks import Chunk, chunks_of_cells
from dedup_platform.recompute.tasks import CellResult, Store, run_tasks
from dedup_platform.stream import Stream

_PLACE = ("floor", "events")


@dataclass(frozen=True)
class Copying:
    """Every cell of raw as it is, without the payload."""

    stream: Stream

    def __call__(self, chunk: Chunk, store: Store) -> Iterator[CellResult]:
        """The copy of each cell of the chunk."""
        for cell, files in chunk.cells.items():
            rows = store.read(tables.RAW_EVENTS, files, tables.column_names(self.stream, tables.DEDUPLICATED_EVENTS))
            is_changed, file = store.replace(_PLACE[1], cell, (), rows, (), ())
            yield CellResult(cell, _PLACE[1], is_changed, file)


class Floor(Ours):
    """Reads the `raw_events` of the platform's home; its own table has the properties of `deduplicated_events`."""

    def clear(self) -> None:
        catalog = Catalog(self.settings)
        like = catalog.load_table(STREAM, tables.DEDUPLICATED_EVENTS)
        with suppress(NamespaceAlreadyExistsError):
            catalog.iceberg.create_namespace(_PLACE[0])
        with suppress(NoSuchTableError, FileNotFoundError):
            catalog.iceberg.drop_table(_PLACE)
            shutil.rmtree(Path(self.settings.warehouse, *_PLACE))
        catalog.iceberg.create_table(_PLACE, like.schema(), partition_spec=like.spec(), properties=like.properties)

    def rebuild(self) -> dict[str, Any]:
        # No ledger: that is a file of ours, which may take it away in the meantime.
        catalog, properties = Catalog(self.settings), self.settings.catalog_properties()
        raw, to = catalog.load_table(STREAM, tables.RAW_EVENTS), catalog.load_table(*_PLACE)
        cells = files_by_cell(raw, head(raw).snapshot_id)
        files = {name: TableFiles.of(table, properties) for name, table in ((tables.RAW_EVENTS, raw), (_PLACE[1], to))}
        done = run_tasks(self._spark(), chunks_of_cells(cells, cells, {}), Copying(self.stream), files)
        self._read_by_work += done.bytes_read
        with to.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for each in done.written:
                if each.file:
                    append.append_data_file(each.file)
        return {"events": sum(each.file.record_count for each in done.written if each.file), "sessions": 0}

    def output(self) -> Output:
        files = Catalog(self.settings).load_table(*_PLACE).inspect.data_files()
        return Output([path.removeprefix("file:") for path in files["file_path"].to_pylist()], [])
