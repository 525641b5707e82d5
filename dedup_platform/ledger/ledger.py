"""The ledger itself: `sync` folds the tables' snapshots, everything else reads."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

import pyarrow as pa
import sqlalchemy as sa
from pyiceberg.table import Table

from dedup_platform import tables
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.receipts import Acceptance, PartKind, ReadFile
from dedup_platform.lake.snapshots import head, since
from dedup_platform.ledger.checkpoints import read_part
from dedup_platform.ledger.database import for_reading, identity, is_damaged, lock, open_database, put_aside
from dedup_platform.ledger.facts import (
    CellSize,
    Head,
    TableSize,
    read_arrivals,
    read_arrivals_by_partition,
    read_changes,
    read_common_fingerprint,
    read_heads,
    read_outdated,
    read_overtaken,
    read_sizes,
)
from dedup_platform.ledger.fold import Fold
from dedup_platform.ledger.forgetting import forget, forget_table
from dedup_platform.ledger.gathering import Gathering
from dedup_platform.ledger.proofs import reconcile
from dedup_platform.ledger.schema import (
    ACCEPTED,
    BUILT,
    CELLS,
    FILES,
    HEADS,
    LISTINGS,
    in_cells,
    in_partitions,
    in_paths,
    is_lost,
    of,
)
from dedup_platform.planning.cells import Cell, reach
from dedup_platform.planning.facts import Facts
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream


class Ledger:
    """The control database. `sync` folds; everything else reads. `stream` tells a stream by its name."""

    def __init__(self, settings: Settings, catalog: Catalog, stream: Callable[[str], Stream]) -> None:
        self.catalog = catalog
        self._stream = stream
        self._settings = settings
        self._engine: sa.Engine | None = None
        self._identity: tuple[int, int] | None = None

    @property
    def engine(self) -> sa.Engine:
        """The database, with its tables created at first use, and whenever somebody took the file away."""
        if self._engine is None or identity(self._engine) != self._identity:
            self._settings.make_folders()
            self._engine = open_database(self._settings.control_uri)
            self._identity = identity(self._engine)
        return self._engine

    # Folding

    def sync(self, stream: str) -> dict[str, Head]:
        """Fold every snapshot of main that is not folded yet; returns the head of each table, none if none exist.

        A table's head is read before that of its input, so a build that starts from these heads never pairs a newer
        target with an older input. If a folded snapshot is no longer an ancestor of main, the stream is folded anew; so
        are all if the database is found to be damaged.
        """
        try:
            return self._sync(stream)
        except sa.exc.DatabaseError as error:
            if not is_damaged(error):
                raise
            if self._engine is not None:
                put_aside(self._engine, self._identity)
            return self._sync(stream)

    def _sync(self, stream: str) -> dict[str, Head]:
        """All is gathered before anything is locked; whoever folded meanwhile makes us gather again."""
        while True:
            with for_reading(self.engine).connect() as connection:
                known = read_heads(connection, stream)
            # In this order, so that what is known is never newer than what is loaded.
            wanted = tables.all_of(self._stream(stream))
            loaded = {name: table for name in reversed(wanted) if (table := self.catalog.load(stream, name))}
            if len(loaded) < len(wanted):
                if known and not loaded:
                    self.forget(stream)
                return {}
            try:
                folds = self._gather(stream, loaded, known)
            except FileNotFoundError:
                if self._are_newest(stream, loaded):
                    raise
                continue  # history expired while we read it
            if not any(folds.values()) and known.keys() == loaded.keys():
                return {name: folded for name, (_, folded) in known.items()}
            with self.engine.begin() as connection:
                lock(connection, stream)
                if read_heads(connection, stream) == known:
                    return _write(connection, stream, loaded, folds)

    def forget(self, stream: str) -> None:
        """Forget all facts about a stream; those of tables that are there are folded anew by the next `sync`."""
        with self.engine.begin() as connection:
            lock(connection, stream)
            forget(connection, stream)

    def _gather(
        self, stream: str, loaded: Mapping[str, Table], known: Mapping[str, tuple[str, Head]]
    ) -> dict[str, Fold | None]:
        is_connected = all(_connected(table, known.get(name)) for name, table in loaded.items())
        folds: dict[str, Fold | None] = {}
        for name in loaded:
            last = known[name][1] if is_connected else None
            folds[name] = Gathering(self.catalog, stream, name, loaded).since(last)
        return folds

    def _are_newest(self, stream: str, loaded: Mapping[str, Table]) -> bool:
        return all(
            self.catalog.load_table(stream, name).metadata_location == table.metadata_location
            for name, table in loaded.items()
        )

    # Reading

    def facts(self, stream: Stream, table: str, fingerprint: str) -> Facts:
        """What a plan of this derived table needs to know."""
        deduplicates = table == tables.DEDUPLICATED_EVENTS
        around = reach(stream.deduplicate.window, stream.partitions.length) if deduplicates else 0
        with for_reading(self.engine).connect() as connection:
            pending = {change.cell: change for change in read_changes(connection, stream.name, tables.INPUT_OF[table])}
            outdated = frozenset(read_outdated(connection, stream.name, table, fingerprint))
            overtaken: frozenset[Cell] = frozenset()
            if outdated and around:
                overtaken = frozenset(read_overtaken(connection, stream.name, table, fingerprint, around))
            return Facts(
                stream=stream.name,
                table=table,
                changes=pending,
                outdated=outdated | overtaken,
                fingerprint=fingerprint,
                overtaken=overtaken,
                reach=around,
                arrival_max=read_arrivals(connection, stream.name, pending, around) if around else {},
            )

    def built(self, stream: str, table: str) -> dict[Cell, int]:
        """For each cell of a derived table the sequence number of its input that it was last built from."""
        query = sa.select(*BUILT.c["partition", "bucket", "input_sequence"]).where(of(BUILT, stream, table))
        with for_reading(self.engine).connect() as connection:
            return {Cell(row[0], row[1]): row[2] for row in connection.execute(query)}

    def is_lost(self, stream: str, table: str) -> bool:
        """Whether of any cell of a derived table it is unknown what it was built from, or that was rolled back."""
        query = sa.select(sa.exists().where(of(BUILT, stream, table), is_lost(BUILT)))
        with for_reading(self.engine).connect() as connection:
            return bool(connection.execute(query).scalar())

    def built_alike(self, stream: str, table: str, up_to: int) -> str | None:
        """The one fingerprint under which all cells of a derived table were built from all that was there.

        Of the input counts what came up to a sequence number. None if cells differ, or anything waits or is unknown.
        """
        with for_reading(self.engine).connect() as connection:
            return read_common_fingerprint(connection, stream, table, up_to)

    def sizes(self, stream: str, table: str, cells: Iterable[Cell] | None = None) -> dict[Cell, CellSize]:
        """What the table holds now, cell by cell; with `cells`, only these. Rejected records are in no cell."""
        with for_reading(self.engine).connect() as connection:
            chosen = [sa.true()] if cells is None else in_cells(CELLS, cells)
            return read_sizes(connection, stream, table, chosen)

    def sizes_of_partitions(self, stream: str, table: str, partitions: Iterable[int]) -> dict[Cell, CellSize]:
        """What the table holds now in each cell of these partitions."""
        with for_reading(self.engine).connect() as connection:
            return read_sizes(connection, stream, table, in_partitions(CELLS, partitions))

    def totals(self, stream: str) -> dict[str, TableSize]:
        """What each table holds in all of its cells; a table without any is left out."""
        columns = CELLS.c
        sums = (sa.func.sum(column) for column in (columns.rows, columns.files, columns.bytes))
        query = sa.select(columns.table, sa.func.count(), *sums).where(columns.stream == stream).group_by(columns.table)
        with for_reading(self.engine).connect() as connection:
            return {name: TableSize(*map(int, sizes)) for name, *sizes in connection.execute(query)}

    def arrivals(self, stream: str) -> dict[int, datetime | None]:
        """The latest arrival in each partition of `raw_events` that holds events."""
        with for_reading(self.engine).connect() as connection:
            return read_arrivals_by_partition(connection, stream)

    def files(self, stream: str, paths: Iterable[str] | None = None) -> dict[str, ReadFile]:
        """The newest generation of every file that was read, by path; with `paths`, only of these."""
        columns = FILES.c["path", "generation", "size", "etag", "records", "skipped"]
        query = sa.select(*columns).where(FILES.c.stream == stream)
        chosen = [sa.true()] if paths is None else in_paths(FILES, paths)
        with for_reading(self.engine).connect() as connection:
            rows = (row for each in chosen for row in connection.execute(query.where(each).order_by("generation")))
            return {row[0]: ReadFile(*row) for row in rows}

    def files_read(self, stream: str) -> int:
        """How many files were read, each counted once for all of its generations, but for those that were skipped."""
        query = sa.select(sa.func.count(FILES.c.path.distinct())).where(FILES.c.stream == stream, ~FILES.c.skipped)
        with for_reading(self.engine).connect() as connection:
            return int(connection.execute(query).scalar_one())

    def records_read(self, stream: str) -> int:
        """How many records all generations of all files held."""
        query = sa.select(sa.func.coalesce(sa.func.sum(FILES.c.records), 0)).where(FILES.c.stream == stream)
        with for_reading(self.engine).connect() as connection:
            return int(connection.execute(query).scalar_one())

    def skipped(self, stream: str) -> list[str]:
        """The paths of files whose newest generation people had left out, in order."""
        newer = FILES.alias()
        is_older = sa.exists().where(
            newer.c.stream == stream, newer.c.path == FILES.c.path, newer.c.generation > FILES.c.generation
        )
        query = sa.select(FILES.c.path).where(FILES.c.stream == stream, FILES.c.skipped, ~is_older)
        with for_reading(self.engine).connect() as connection:
            return sorted(connection.execute(query).scalars())

    def accepted(self, stream: str) -> set[Acceptance]:
        """Files that people accepted, each as the generation that it was to be read as."""
        query = sa.select(*ACCEPTED.c["path", "etag", "generation"]).where(ACCEPTED.c.stream == stream)
        with for_reading(self.engine).connect() as connection:
            return {Acceptance(*row) for row in connection.execute(query)}

    def part(self, stream: str, table: str, kind: PartKind) -> pa.Table:
        """What a checkpoint of a table has to hold of this kind (`built`, `untold`, `files`)."""
        with for_reading(self.engine).connect() as connection:
            return read_part(connection, stream, table, kind)

    # Not of the fold

    def listing(self, stream: str) -> str | None:
        """What the last listing of the stream's S3 bucket left for the next one; None if it left nothing."""
        with for_reading(self.engine).connect() as connection:
            return connection.execute(sa.select(LISTINGS.c.content).where(LISTINGS.c.stream == stream)).scalar()

    def keep_listing(self, stream: str, content: str | None) -> None:
        """Leave something for the next listing, in the place of what was there; None for nothing."""
        with self.engine.begin() as connection:
            lock(connection, stream)
            connection.execute(sa.delete(LISTINGS).where(LISTINGS.c.stream == stream))
            if content is not None:
                connection.execute(sa.insert(LISTINGS).values(stream=stream, content=content))


def _connected(table: Table, known: tuple[str, Head] | None) -> bool:
    return known is not None and known[0] == str(table.metadata.table_uuid) and since(table, known[1].snapshot_id)[1]


def _write(
    connection: sa.Connection, stream: str, loaded: Mapping[str, Table], folds: Mapping[str, Fold | None]
) -> dict[str, Head]:
    """Write what was gathered, all of it or nothing."""
    if any(fold and fold.is_whole for fold in folds.values()):
        forget(connection, stream)
    for name in read_heads(connection, stream).keys() - loaded.keys():
        forget_table(connection, stream, name)
    for name, fold in folds.items():
        if fold:
            fold.write(connection, stream, name, loaded)
            _move_head(connection, stream, name, loaded[name], fold)
    reconcile(connection, stream, loaded, folds)
    return {name: folded for name, (_, folded) in read_heads(connection, stream).items()}


def _move_head(connection: sa.Connection, stream: str, name: str, table: Table, fold: Fold) -> None:
    newest = head(table)
    connection.execute(sa.delete(HEADS).where(of(HEADS, stream, name)))
    connection.execute(
        sa.insert(HEADS).values(
            stream=stream,
            table=name,
            uuid=str(table.metadata.table_uuid),
            snapshot_id=newest.snapshot_id,
            sequence=newest.sequence_number,
            receipt=fold.newest_receipt,
            complete=fold.complete,
        )
    )
