"""The table `audit`: what the commits of a stream's tables came to, each told once."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from dedup_platform.lake.append_only import AppendOnlyTable
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.feeds import told_snapshots
from dedup_platform.lake.snapshots import ancestry, head, rewrites_only, summary
from dedup_platform.stream import Stream
from dedup_platform.tables import AUDIT, COUNTED

Totals = Mapping[str, int]
"""What is counted -> how many."""


@dataclass(frozen=True)
class AuditPosition:
    """How far the audit has come."""

    base: int
    """Its newest snapshot."""
    up_to: Mapping[str, tuple[str, int]]
    """Of each table its id, and the sequence number of its newest commit that was looked at."""
    totals: Totals
    known: frozenset[int] = frozenset()
    """Where no snapshot says how far it has come: the commits that its rows tell of."""

    def newer(self, name: str, table: Table) -> list[Snapshot]:
        """Main's commits that the audit has not looked at, oldest first, without those that change no row."""
        id_, last = self.up_to.get(name, ("", 0))
        # By number: the commit that was looked at last may have expired since, or been taken back.
        seen = last if id_ == str(table.metadata.table_uuid) else 0
        found = (each for each in ancestry(table) if (each.sequence_number or 0) > seen)
        return [each for each in found if not rewrites_only(each) and each.snapshot_id not in self.known][::-1]


class AuditTable(AppendOnlyTable):
    """That of one stream."""

    def __init__(self, catalog: Catalog, stream: Stream) -> None:
        super().__init__(catalog, stream, AUDIT)

    def prepare(self) -> AuditPosition:
        """Create the table if it is not there; returns how far it has come."""
        return _position(self.create())

    def position(self) -> AuditPosition | None:
        """How far it has come; None before there is one."""
        loaded = self.catalog.load(self.stream.name, self.name)
        return _position(loaded) if loaded else None

    def append(self, base: int, files: Sequence[DataFile], up_to: Mapping[str, tuple[str, int]], totals: Totals) -> int:
        """Add rows, after which the audit has come so far; returns the new snapshot.

        Raises ConflictError if somebody else went on from there.
        """
        return self.add(base, files, {"up-to": json.dumps(up_to), "totals": json.dumps(totals)})


def _position(audit: Table) -> AuditPosition:
    base = head(audit).snapshot_id
    for snapshot in told_snapshots(audit):
        up_to = {name: (id_, number) for name, (id_, number) in json.loads(summary(snapshot, "up-to") or "{}").items()}
        return AuditPosition(base, up_to, json.loads(summary(snapshot, "totals") or "{}"))
    told = audit.scan(selected_fields=("snapshot_id", *COUNTED)).to_arrow()
    totals = {name: sum(value or 0 for value in told.column(name).to_pylist()) for name in COUNTED}
    return AuditPosition(base, {}, totals, frozenset(told.column("snapshot_id").to_pylist()))
