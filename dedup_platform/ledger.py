"""The fold of the tables' snapshot logs into small SQL tables: what changed, what was built from what, what was read.

Everything here is a copy of what Iceberg records, folded one snapshot at a time and exactly once; deleting the database
loses nothing. The fold is the only way in, so there is nothing to keep in step with it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from dedup_platform import tables
from dedup_platform.catalog import Catalog, FileChange, changes, committed_at, head, live, since, summary
from dedup_platform.lateness import EPOCH, NO_ENTITY, Cell, Change, Facts, reach
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream

_METADATA = sa.MetaData()
_KEY = {"primary_key": True}


def _table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    return sa.Table(name, _METADATA, sa.Column("stream", sa.String(200), **_KEY), *columns)


def _cell_columns() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("table", sa.String(50), **_KEY),
        sa.Column("partition", sa.Integer, **_KEY, autoincrement=False),
        sa.Column("bucket", sa.Integer, **_KEY, autoincrement=False),
    )


_HEADS = _table(
    "heads",
    sa.Column("table", sa.String(50), **_KEY),
    sa.Column("uuid", sa.String(36), nullable=False),
    sa.Column("snapshot_id", sa.BigInteger, nullable=False),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("receipt", sa.String(50)),
    sa.Column("complete", sa.Boolean, nullable=False),
)
_CELLS = _table(
    "cells",
    *_cell_columns(),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("files", sa.Integer, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("arrival_max", sa.BigInteger),
)
_CHANGES = _table(
    "changes",
    *_cell_columns(),
    sa.Column("sequence", sa.BigInteger, **_KEY, autoincrement=False),
    sa.Column("committed_at", sa.BigInteger, nullable=False),
    sa.Column("rows_added", sa.BigInteger, nullable=False),
    sa.Column("arrival_min", sa.BigInteger),
)
_BUILT = _table(
    "built",
    *_cell_columns(),
    sa.Column("input_sequence", sa.BigInteger, nullable=False),
    sa.Column("fingerprint", sa.String(64), nullable=False),
)
_FILES = _table(
    "files",
    sa.Column("path", sa.String(4000), **_KEY),
    sa.Column("generation", sa.Integer, **_KEY, autoincrement=False),
    sa.Column("size", sa.BigInteger),
    sa.Column("etag", sa.String(200)),
    sa.Column("records", sa.BigInteger, nullable=False),
)
_ACCEPTED = _table(
    "accepted",
    sa.Column("path", sa.String(4000), **_KEY),
    sa.Column("etag", sa.String(200), **_KEY),
)
_CONSUMER = {source: target for target, source in tables.INPUT_OF.items()}


@dataclass(frozen=True)
class Head:
    """The snapshot of main up to which a table is folded; `receipt` is the newest one known."""

    snapshot_id: int
    sequence: int
    receipt: str | None
    complete: bool
    """False if a receipt of this table is lost, so that not all of its positions are known."""


@dataclass(frozen=True)
class ReadFile:
    """One generation of a file that was read; size and etag are unknown if they had to be derived from raw."""

    path: str
    generation: int
    size: int | None
    etag: str | None
    records: int


@dataclass(frozen=True)
class CellSize:
    """What a table holds in one cell."""

    rows: int
    files: int
    bytes: int


@dataclass
class _Fold:
    """The facts of some snapshots of one table, gathered before they are written."""

    sizes: dict[Cell, list[Any]] = field(default_factory=dict)
    changed: dict[tuple[Cell, int], list[Any]] = field(default_factory=dict)
    receipts: list[dict[str, Any]] = field(default_factory=list)
    newest_receipt: str | None = None
    complete: bool = True


class Ledger:
    """The control database. `sync` folds; everything else reads."""

    def __init__(self, settings: Settings, catalog: Catalog) -> None:
        self.catalog = catalog
        self._settings = settings
        self._engine: sa.Engine | None = None

    @property
    def engine(self) -> sa.Engine:
        """The database, with its tables created at first use."""
        if self._engine is None:
            self._settings.make_folders()
            self._engine = _open(self._settings.control_uri)
            _METADATA.create_all(self._engine)
        return self._engine

    # Folding

    def sync(self, stream: str) -> dict[str, Head]:
        """Fold every snapshot of main that is not folded yet; returns the head of each table, none if none exist.

        A table's head is read before that of its input, so a build that starts from these heads never pairs a newer
        target with an older input. If a folded snapshot is no longer an ancestor of main, the stream is folded anew.
        """
        loaded = {name: table for name in reversed(tables.ALL) if (table := self.catalog.load(stream, name))}
        if len(loaded) < len(tables.ALL):
            return {}
        with self.engine.begin() as connection:
            heads = _read_heads(connection, stream)
            if any(not _connected(table, heads.get(name)) for name, table in loaded.items()):
                _forget(connection, stream)
                heads = {}
            for name, table in loaded.items():
                self._fold(connection, stream, name, table, heads.get(name))
            _prune(connection, stream)
            return {name: folded for name, (_, folded) in _read_heads(connection, stream).items()}

    def _fold(
        self, connection: sa.Connection, stream: str, name: str, table: Table, known: tuple[str, Head] | None
    ) -> None:
        last = known[1] if known else None
        snapshots, _ = since(table, last.snapshot_id if last else None)
        if not snapshots:
            return
        fold = _Fold(newest_receipt=last.receipt if last else None, complete=last.complete if last else True)
        if last is None and snapshots[0].parent_snapshot_id is not None:
            self._add_lost_history(fold, stream, table, snapshots.pop(0))
        for snapshot in snapshots:
            self._add_snapshot(fold, stream, table, snapshot)
        _write_sizes(connection, stream, name, fold)
        _write_changes(connection, stream, name, fold)
        for receipt in fold.receipts:
            _write_receipt(connection, stream, name, receipt)
        newest = head(table)
        connection.execute(sa.delete(_HEADS).where(_of(_HEADS, stream, name)))
        connection.execute(
            sa.insert(_HEADS).values(
                stream=stream,
                table=name,
                uuid=str(table.metadata.table_uuid),
                snapshot_id=newest.snapshot_id,
                sequence=newest.sequence_number,
                receipt=fold.newest_receipt,
                complete=fold.complete,
            )
        )

    def _add_snapshot(self, fold: _Fold, stream: str, table: Table, snapshot: Snapshot) -> None:
        sequence = snapshot.sequence_number or 0
        for change in changes(table, snapshot):
            _add_change(fold, change, sequence, committed_at(snapshot))
        if name := summary(snapshot, "receipt"):
            fold.newest_receipt = name
            self._add_receipt(fold, stream, name)

    def _add_receipt(self, fold: _Fold, stream: str, name: str) -> dict[str, Any]:
        receipt = self.catalog.read_receipt(stream, name)
        fold.complete &= receipt is not None
        if receipt is not None:
            fold.receipts.append(receipt)
        return receipt or {}

    def _add_lost_history(self, fold: _Fold, stream: str, table: Table, oldest: Snapshot) -> None:
        """Facts of snapshots that were expired: their live files, and the chain of receipts that outlives them."""
        for change in live(table, oldest):
            _add_change(fold, change, change.sequence, committed_at(oldest))
        name = fold.newest_receipt = summary(oldest, "receipt")
        checked: set[Cell] = set()
        while name:
            receipt = self._add_receipt(fold, stream, name)
            checked |= {Cell(*cell) for cell in receipt.get("rewritten", ())}
            name = receipt.get("previous")
        fold.receipts.reverse()
        # A cell that was emptied has no file left to tell when: take it for newer than anything built from it.
        for cell in checked - fold.sizes.keys():
            gone = FileChange(cell, -1, 0, 0, None, None, oldest.sequence_number or 0)
            _add_change(fold, gone, gone.sequence, committed_at(oldest))

    # Reading

    def facts(self, stream: Stream, table: str, fingerprint: str) -> Facts:
        """What a plan of this derived table needs to know."""
        around = (
            reach(stream.deduplicate.window, stream.partitions.length) if table == tables.DEDUPLICATED_EVENTS else 0
        )
        with self.engine.connect() as connection:
            pending = {change.cell: change for change in _read_changes(connection, stream.name, tables.INPUT_OF[table])}
            outdated = connection.execute(
                sa.select(_BUILT.c.partition, _BUILT.c.bucket).where(
                    _of(_BUILT, stream.name, table), _BUILT.c.fingerprint != fingerprint
                )
            )
            return Facts(
                stream=stream.name,
                table=table,
                changes=pending,
                outdated=frozenset(Cell(*row) for row in outdated),
                fingerprint=fingerprint,
                arrival_max=_read_arrivals(connection, stream.name, pending, around) if around else {},
            )

    def sizes(self, stream: str, table: str) -> dict[Cell, CellSize]:
        """What the table holds now, cell by cell. Rejected records are in no cell."""
        query = sa.select(_CELLS.c["partition", "bucket", "rows", "files", "bytes"]).where(_of(_CELLS, stream, table))
        with self.engine.connect() as connection:
            return {Cell(row[0], row[1]): CellSize(*row[2:]) for row in connection.execute(query)}

    def files(self, stream: str) -> dict[str, ReadFile]:
        """The newest generation of every file that was read, by path."""
        query = sa.select(_FILES.c["path", "generation", "size", "etag", "records"]).where(_FILES.c.stream == stream)
        with self.engine.connect() as connection:
            rows = connection.execute(query.order_by(_FILES.c.generation))
            return {row[0]: ReadFile(*row) for row in rows}

    def records_read(self, stream: str) -> int:
        """How many records all generations of all files held."""
        query = sa.select(sa.func.coalesce(sa.func.sum(_FILES.c.records), 0)).where(_FILES.c.stream == stream)
        with self.engine.connect() as connection:
            return int(connection.execute(query).scalar_one())

    def accepted(self, stream: str) -> set[tuple[str, str]]:
        """Changed files that people accepted: path and etag."""
        query = sa.select(_ACCEPTED.c.path, _ACCEPTED.c.etag).where(_ACCEPTED.c.stream == stream)
        with self.engine.connect() as connection:
            return {(row[0], row[1]) for row in connection.execute(query)}


def _open(uri: str) -> sa.Engine:
    engine = sa.create_engine(uri)
    if engine.dialect.name == "sqlite":
        # Two folds must not read the same head: the write lock is taken before the first read.
        @sa.event.listens_for(engine, "connect")
        def _manual(connection: Any, _: object) -> None:
            connection.isolation_level = None
            connection.execute("PRAGMA busy_timeout = 60000")

        @sa.event.listens_for(engine, "begin")
        def _begin(connection: sa.Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _of(table: sa.Table, stream: str, name: str) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.stream == stream, table.c.table == name)


def _connected(table: Table, known: tuple[str, Head] | None) -> bool:
    return known is not None and known[0] == str(table.metadata.table_uuid) and since(table, known[1].snapshot_id)[1]


def _read_heads(connection: sa.Connection, stream: str) -> dict[str, tuple[str, Head]]:
    query = sa.select(_HEADS.c["table", "uuid", "snapshot_id", "sequence", "receipt", "complete"])
    rows = connection.execute(query.where(_HEADS.c.stream == stream).with_for_update())
    return {row[0]: (row[1], Head(*row[2:])) for row in rows}


def _forget(connection: sa.Connection, stream: str) -> None:
    for table in _METADATA.sorted_tables:
        connection.execute(sa.delete(table).where(table.c.stream == stream))


def _prune(connection: sa.Connection, stream: str) -> None:
    """Take out the changes that whatever is built from them has seen."""
    for source, consumer in _CONSUMER.items():
        seen = sa.exists().where(
            _of(_BUILT, stream, consumer),
            _BUILT.c.partition == _CHANGES.c.partition,
            _BUILT.c.bucket == _CHANGES.c.bucket,
            _BUILT.c.input_sequence >= _CHANGES.c.sequence,
        )
        connection.execute(sa.delete(_CHANGES).where(_of(_CHANGES, stream, source), seen))


def _add_change(fold: _Fold, change: FileChange, sequence: int, at: datetime) -> None:
    if change.cell is None:
        return
    size = fold.sizes.setdefault(change.cell, [0, 0, 0, None])
    size[0] += change.sign * change.rows
    size[1] += change.sign
    size[2] += change.sign * change.bytes
    size[3] = _latest(size[3], _micros(change.arrival_max))
    entry = fold.changed.setdefault((change.cell, sequence), [_micros(at), 0, None])
    if change.sign > 0:
        entry[1] += change.rows
        entry[2] = _earliest(entry[2], _micros(change.arrival_min))


def _write_sizes(connection: sa.Connection, stream: str, name: str, fold: _Fold) -> None:
    known = _read_sizes(connection, stream, name, fold.sizes)
    rows = []
    for cell, size in fold.sizes.items():
        old = known.get(cell, (0, 0, 0, None))
        total = [old[0] + size[0], old[1] + size[1], old[2] + size[2], _latest(old[3], size[3])]
        if total[1]:
            keys = ("rows", "files", "bytes", "arrival_max")
            rows.append(_key(stream, name, cell) | dict(zip(keys, total, strict=True)))
    _delete_cells(connection, _CELLS, stream, name, known)
    if rows:
        connection.execute(sa.insert(_CELLS), rows)


def _read_sizes(
    connection: sa.Connection, stream: str, name: str, cells: Iterable[Cell]
) -> dict[Cell, tuple[Any, ...]]:
    partitions = [cell.partition for cell in cells]
    if not partitions:
        return {}
    query = sa.select(_CELLS.c["partition", "bucket", "rows", "files", "bytes", "arrival_max"]).where(
        _of(_CELLS, stream, name), _CELLS.c.partition.between(min(partitions), max(partitions))
    )
    wanted = set(cells)
    rows = {Cell(row[0], row[1]): tuple(row[2:]) for row in connection.execute(query)}
    return {cell: size for cell, size in rows.items() if cell in wanted}


def _write_changes(connection: sa.Connection, stream: str, name: str, fold: _Fold) -> None:
    if name not in _CONSUMER:
        return
    # Events without an entity are in no session, so nothing is built from their cells of deduplicated events.
    rows = [
        _key(stream, name, cell)
        | {"sequence": sequence, "committed_at": entry[0], "rows_added": entry[1], "arrival_min": entry[2]}
        for (cell, sequence), entry in fold.changed.items()
        if cell.bucket != NO_ENTITY or name == tables.RAW_EVENTS
    ]
    if rows:
        connection.execute(sa.insert(_CHANGES), rows)


def _write_receipt(connection: sa.Connection, stream: str, name: str, receipt: Mapping[str, Any]) -> None:
    if name == tables.RAW_EVENTS:
        _write_positions(connection, stream, receipt)
    elif name in tables.INPUT_OF:
        built = receipt["built_from"][tables.INPUT_OF[name]]
        cells = [Cell(*cell) for cell in receipt["checked"]]
        _delete_cells(connection, _BUILT, stream, name, cells)
        values = {"input_sequence": built["sequence"], "fingerprint": receipt["fingerprint"]}
        if cells:
            connection.execute(sa.insert(_BUILT), [_key(stream, name, cell) | values for cell in cells])


def _write_positions(connection: sa.Connection, stream: str, receipt: Mapping[str, Any]) -> None:
    for table, rows in ((_FILES, receipt.get("files", ())), (_ACCEPTED, receipt.get("accepted", ()))):
        keys = [column.name for column in table.primary_key]
        for row in rows:
            row = {"stream": stream, **row}
            connection.execute(sa.delete(table).where(*(table.c[key] == row[key] for key in keys)))
            connection.execute(sa.insert(table).values(row))


def _delete_cells(connection: sa.Connection, table: sa.Table, stream: str, name: str, cells: Iterable[Cell]) -> None:
    statement = sa.delete(table).where(
        _of(table, stream, name),
        table.c.partition == sa.bindparam("cell_partition"),
        table.c.bucket == sa.bindparam("cell_bucket"),
    )
    if rows := [{"cell_partition": cell.partition, "cell_bucket": cell.bucket} for cell in cells]:
        connection.execute(statement, rows)


def _read_changes(connection: sa.Connection, stream: str, source: str) -> Iterator[Change]:
    of = _CHANGES.c
    query = (
        sa.select(
            of.partition,
            of.bucket,
            sa.func.max(of.sequence),
            sa.func.sum(of.rows_added),
            sa.func.min(of.committed_at),
            sa.func.max(of.committed_at),
            sa.func.min(of.arrival_min),
        )
        .where(_of(_CHANGES, stream, source))
        .group_by(of.partition, of.bucket)
    )
    for partition, bucket, sequence, rows, first, last, arrival in connection.execute(query):
        yield Change(
            Cell(partition, bucket), sequence, int(rows), _time(first) or EPOCH, _time(last) or EPOCH, _time(arrival)
        )


def _read_arrivals(
    connection: sa.Connection, stream: str, pending: Iterable[Cell], around: int
) -> dict[Cell, datetime]:
    partitions = [cell.partition for cell in pending]
    if not partitions:
        return {}
    query = sa.select(_CELLS.c.partition, _CELLS.c.bucket, _CELLS.c.arrival_max).where(
        _of(_CELLS, stream, tables.RAW_EVENTS),
        _CELLS.c.partition.between(min(partitions) - around, max(partitions) + around),
        _CELLS.c.arrival_max.is_not(None),
    )
    return {Cell(row[0], row[1]): _time(row[2]) or EPOCH for row in connection.execute(query)}


def _key(stream: str, name: str, cell: Cell) -> dict[str, Any]:
    return {"stream": stream, "table": name, "partition": cell.partition, "bucket": cell.bucket}


def _micros(time: datetime | None) -> int | None:
    return None if time is None else (time - EPOCH) // timedelta(microseconds=1)


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else EPOCH + timedelta(microseconds=micros)


def _latest(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _earliest(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)
