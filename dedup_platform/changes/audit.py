"""What commits came to, as a function of the tables' snapshots and receipts: each is counted once, whoever counts.

As with feeds, nothing is written to the audit when its tables are: how far it has come is in the commit of its rows.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from dedup_platform import tables
from dedup_platform.lake.audit import AuditTable
from dedup_platform.lake.durable import sync_written
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.receipts import AnyReceipt, BuildReceipt, RewriteReceipt
from dedup_platform.lake.snapshots import cell_of, committed_at, head, own_files, summary
from dedup_platform.lake.table_files import TableFiles, frame_of
from dedup_platform.planning.moments import EPOCH
from dedup_platform.stream import Stream

AUDITED = (*tables.ALL, *tables.FOLLOWED)


@dataclass(frozen=True)
class Audited:
    """What counting new commits came to."""

    commits: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    """Of these commits, by what is counted."""
    totals: Mapping[str, int] = field(default_factory=dict)
    """Of all commits since the audit began."""


class Audit:
    """Counts what the commits of any stream came to."""

    def __init__(self, lake: Lakehouse) -> None:
        self._lake = lake

    def totals(self, stream: Stream) -> Mapping[str, int]:
        """What all commits that were counted came to; empty before any was."""
        position = AuditTable(self._lake.catalog, stream).position()
        return position.totals if position else {}

    def follow(self, stream: Stream) -> Audited:
        """Count all commits that are not counted yet.

        Raises ConflictError if another process did meanwhile.
        """
        audit = AuditTable(self._lake.catalog, stream)
        if self._lake.catalog.load(stream.name, tables.RAW_EVENTS) is None:
            return Audited()
        position = audit.prepare()
        up_to, rows = dict(position.up_to), list[Mapping[str, Any]]()
        for name in AUDITED:
            # After the position: what another process has counted must be in the table.
            if loaded := self._lake.catalog.load(stream.name, name):
                counting = _Counting(self._lake, stream, name, loaded)
                rows += filter(None, map(counting.row, position.newer(name, loaded)))
                up_to[name] = (str(loaded.metadata.table_uuid), head(loaded).sequence_number or 0)
        counts = {name: sum(row.get(name) or 0 for row in rows) for name in tables.COUNTED}
        totals = {name: position.totals.get(name, 0) + count for name, count in counts.items()}
        if rows:
            files = list(_written(audit.files(), rows, stream))
            sync_written()
            audit.append(position.base, files, up_to, totals)
        return Audited(len(rows), counts, totals)


@dataclass(frozen=True)
class _Counting:
    """Counts what commits of one table came to."""

    lake: Lakehouse
    stream: Stream
    name: str
    table: Table

    def row(self, snapshot: Snapshot) -> Mapping[str, Any] | None:
        """What a commit came to; None if it did nothing."""
        removed, added = own_files(self.table, snapshot)
        name = summary(snapshot, "receipt")
        receipt = self.lake.catalog.read_receipt(self.stream.name, name) if name else None
        if not (removed or added or receipt):
            return None
        return {
            "committed_at": committed_at(snapshot),
            "table": self.name,
            "snapshot_id": snapshot.snapshot_id,
            "reason": (receipt.reason if receipt else None) or summary(snapshot, "reason"),
            "rows_added": _rows(added),
            "rows_removed": _rows(removed),
            **self._of_kind(receipt, removed, added),
        }

    def _of_kind(
        self, receipt: AnyReceipt | None, removed: Sequence[DataFile], added: Sequence[DataFile]
    ) -> Mapping[str, int | None]:
        if self.name == tables.DUPLICATE_EVENTS:
            return self._kinds(removed, added)
        if self.name in tables.FOLLOWED:
            return self._effects(added)
        if isinstance(receipt, BuildReceipt):
            checked = len(receipt.checked)
            return {"cells_checked": checked, "cells_unchanged": checked - len(receipt.rewritten)}
        if self.name == tables.RAW_EVENTS and added and not removed and not isinstance(receipt, RewriteReceipt):
            rejected = _rows([file for file in added if cell_of(file) is None])
            return {"records_read": _rows(added), "rejected": rejected}
        return {}

    def _kinds(self, removed: Sequence[DataFile], added: Sequence[DataFile]) -> Mapping[str, int | None]:
        """How many duplicates of each kind there are more than before."""
        before, after = (self._count(files, "kind") for files in (removed, added))
        if before is None or after is None:
            return {}
        return {"copies": after["copy"] - before["copy"], "conflicts": after["conflict"] - before["conflict"]}

    def _effects(self, added: Sequence[DataFile]) -> Mapping[str, int | None]:
        """How many changes a feed got, and how many of them matter to nobody downstream."""
        found = self._count(added, tables.told_names(self.stream, self.name)["is_downstream"])
        return {} if found is None else {"changes": found.total(), "not_downstream": found[False]}

    def _count(self, files: Sequence[DataFile], column: str) -> Counter[Any] | None:
        """How often each value of a column is there; None if a file is gone, because somebody expired its snapshots."""
        reading = TableFiles.of(self.table, self.lake.catalog.file_properties(self.table))
        found: Counter[Any] = Counter()
        try:
            for file in files:
                for batch in reading.batches(file, [column]):
                    found.update(dict(frame_of(batch)[column].value_counts().iter_rows()))
        except FileNotFoundError:
            return None
        return found


def _rows(files: Sequence[DataFile]) -> int:
    return sum(file.record_count for file in files)


def _written(files: TableFiles, rows: Sequence[Mapping[str, Any]], stream: Stream) -> Iterator[DataFile]:
    """The rows as files, one for each day."""
    schema = schema_to_pyarrow(files.metadata.schema(), include_field_ids=False)
    names = tables.column_names(stream, tables.AUDIT)
    by_day: dict[int, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda each: each["committed_at"]):
        day = (row["committed_at"] - EPOCH).days
        by_day.setdefault(day, []).append({name: row.get(name) for name in names})
    for day, found in by_day.items():
        yield files.write_at((day,), pa.Table.from_pylist(found, schema=schema))
