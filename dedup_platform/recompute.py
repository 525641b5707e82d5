"""Rebuilds cells of a derived table: pins its inputs, widens to linked cells, calls the stage, checks, publishes.

The commit names every cell that was checked, rewritten or not, so that nothing is planned again for ever (rule 6).
Whoever loses a race to another writer gets ConflictError, and nothing was written.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyiceberg.manifest import DataFile
from pyspark.sql import functions as F

from dedup_platform import statistics
from dedup_platform.cellwork import (
    CellFiles,
    Deduplication,
    Fragmentation,
    Sessionization,
    Work,
    Written,
    chunks_along_time,
    chunks_of_cells,
    chunks_of_chains,
    work,
)
from dedup_platform.commits import Commit
from dedup_platform.datafiles import TableFiles
from dedup_platform.errors import ConflictError, ConservationError
from dedup_platform.fingerprints import fingerprint
from dedup_platform.lakehouse import Lakehouse, Staged
from dedup_platform.lateness import NO_ENTITY, Cell, Facts, reach
from dedup_platform.ledger import CellSize, Head, Ledger
from dedup_platform.receipts import build_properties, build_receipt
from dedup_platform.stream import Stream
from dedup_platform.tables import (
    DEDUPLICATED_EVENTS,
    DUPLICATE_EVENTS,
    INPUT_OF,
    RAW_EVENTS,
    SESSION_FRAGMENTS,
    SESSIONS,
    column_names,
)
from dedup_platform.widening import Cells, WidenedSessions, grown, with_linked, with_sessions


@dataclass(frozen=True)
class Build:
    """What one recomputation of one table is pinned to."""

    stream: Stream
    table: str
    heads: Mapping[str, Head]
    facts: Facts
    buckets: int
    reason: str

    @property
    def base(self) -> int:
        """The target's snapshot when the build began; publishing from any other is refused."""
        return self.heads[self.table].snapshot_id

    @property
    def source(self) -> int:
        """The input's snapshot that everything is read from."""
        return self.heads[INPUT_OF[self.table]].snapshot_id


@dataclass(frozen=True)
class Rebuilt:
    """The cells of one table after the work on them: what changed, and the files to take away and to add."""

    table: str
    cells: tuple[Written, ...]
    old: CellFiles

    @classmethod
    def of(cls, table: str, written: Iterable[Written], old: CellFiles) -> "Rebuilt":
        """This table's part of what was written."""
        return cls(table, tuple(each for each in written if each.table == table), old)

    @property
    def changed(self) -> Cells:
        """The cells whose rows differ from before."""
        return frozenset(each.cell for each in self.cells if each.is_changed)

    @property
    def removed(self) -> list[DataFile]:
        """The old files of the changed cells."""
        return [file for cell in self.changed for file in self.old.get(cell, ())]

    @property
    def added(self) -> list[DataFile]:
        """The new files of the changed cells."""
        return [each.file for each in self.cells if each.file]

    def count_events(self) -> tuple[int, int]:
        """The events in the changed cells of a table of fragments, before and after."""
        changed = [each for each in self.cells if each.is_changed]
        return sum(each.events_before for each in changed), sum(each.events_after for each in changed)

    def numbers(self) -> dict[int, dict[str, float]]:
        """Ordinal -> what the checked cells of this partition say in sum (of durations: at most)."""
        found: dict[int, dict[str, float]] = {}
        for each in self.cells:
            numbers = found.setdefault(each.cell.partition, {})
            for name, value in each.numbers.items():
                so_far = numbers.get(name, 0.0)
                numbers[name] = max(so_far, value) if name.endswith("_seconds") else so_far + value
        return found


@dataclass(frozen=True)
class Ahead:
    """A cell's fragments, made of its new events when these were in memory, before anybody asked for them."""

    written: Written
    events: frozenset[str]
    """Paths of the files that hold these events."""
    old: frozenset[str]
    """Paths of the files of the fragments that they were compared with."""


class Recompute:
    """Rebuilds cells of the derived tables of any stream."""

    def __init__(self, lake: Lakehouse, ledger: Ledger) -> None:
        self.lake = lake
        self.ledger = ledger
        self._ahead: dict[tuple[str, str], dict[Cell, Ahead]] = {}

    def stale(self, stream: Stream, table: str, reason: str, partitions: Collection[int] | None = None) -> Commit:
        """Rebuild the stale cells, of all or of the given partitions, widened to the cells linked to them."""
        build = self._begin(stream, table, reason)
        if build is None:
            return Commit(table, None, reason)
        pending = {*build.facts.changes, *build.facts.outdated}
        return self._run(build, frozenset(c for c in pending if partitions is None or c.partition in partitions))

    def whole(self, stream: Stream, table: str, partitions: Iterable[int]) -> Commit:
        """Rebuild all cells of the given partitions, widened to the cells linked to them."""
        build = self._begin(stream, table, "full")
        if build is None:
            return Commit(table, None, "full")
        buckets = [*range(build.buckets), *([NO_ENTITY] if table == DEDUPLICATED_EVENTS else [])]
        return self._run(build, frozenset(Cell(partition, number) for partition in partitions for number in buckets))

    def _begin(self, stream: Stream, table: str, reason: str) -> Build | None:
        heads = self.ledger.sync(stream.name)
        if not heads:
            return None
        facts = self.ledger.facts(stream, table, fingerprint(stream, table))
        return Build(stream, table, heads, facts, self.lake.buckets(stream), reason)

    def _run(self, build: Build, cells: Cells) -> Commit:
        if not cells:
            return Commit(build.table, None, build.reason)
        started = time.monotonic()
        steps = {
            DEDUPLICATED_EVENTS: self._deduplicate,
            SESSION_FRAGMENTS: self._fragment,
            SESSIONS: self._sessionize,
        }
        return replace(steps[build.table](build, cells), seconds=time.monotonic() - started)

    # One step for each table

    def _deduplicate(self, build: Build, cells: Cells) -> Commit:
        stream = build.stream
        cells = with_linked(self.lake, stream, build.source, build.facts, cells | self.lake.unpaired_cells(stream))
        around = reach(stream.deduplicate.window, stream.partitions.length)
        raw = self.lake.files(stream, RAW_EVENTS, build.source, grown(cells, around))
        old = self._old(build, cells, DUPLICATE_EVENTS, DEDUPLICATED_EVENTS, SESSION_FRAGMENTS)
        files = self._tables(build, RAW_EVENTS, *old)
        weigh = partial(files[RAW_EVENTS].bytes_of, columns=column_names(stream, DEDUPLICATED_EVENTS))
        chunks = chunks_along_time(raw, _with_files(cells, raw, old), old, around, weigh)
        done = work(self.lake.spark(), chunks, Deduplication(stream), files)
        duplicates, events, fragments = (Rebuilt.of(table, done.written, old[table]) for table in old)
        self._keep_ahead(stream, events, fragments)
        beside = self._stage(build, duplicates, {"reason": build.reason}) if duplicates.changed else None
        pair = beside.snapshot_id if beside else build.heads[DUPLICATE_EVENTS].snapshot_id
        receipt = self._receipt(build, cells, events.changed)
        properties = build_properties(receipt) | {"duplicates-snapshot": str(pair)}
        staged = self._stage(build, events, properties)
        self._check_cells(
            build,
            cells,
            self._rows_after(build, cells, duplicates, beside),
            self._rows_after(build, cells, events, staged),
            [staged, beside],
        )
        # The duplicates go first: the events' commit names them, and readers follow that pair.
        if beside:
            self.lake.publish(beside)
        return self._publish(
            build, staged, receipt, cells, events.changed | duplicates.changed, done, beside, events.numbers()
        )

    def _fragment(self, build: Build, cells: Cells) -> Commit:
        stream = build.stream
        events = self.lake.files(stream, DEDUPLICATED_EVENTS, build.source, cells)
        old = self._old(build, cells, SESSION_FRAGMENTS)
        ready = self._take_ahead(stream, events, old[SESSION_FRAGMENTS])
        chunks = chunks_of_cells(events, _with_files(cells, events, old) - ready.keys(), old)
        files = self._tables(build, DEDUPLICATED_EVENTS, SESSION_FRAGMENTS)
        done = work(self.lake.spark(), chunks, Fragmentation(stream), files)
        written = [*(each for cell, each in ready.items() if cell in cells), *done.written]
        fragments = Rebuilt.of(SESSION_FRAGMENTS, written, old[SESSION_FRAGMENTS])
        receipt = self._receipt(build, cells, fragments.changed)
        staged = self._stage(build, fragments, build_properties(receipt))
        before, after = fragments.count_events()
        sizes = self.ledger.sizes(stream.name, DEDUPLICATED_EVENTS, fragments.changed)
        inside = sum(sizes[cell].rows for cell in fragments.changed if cell in sizes)
        self._balance(build, [staged], after == inside, f"{inside} events, but fragments of {after}")
        receipt["events"] = self._total_events(build, SESSION_FRAGMENTS) - before + after
        return self._publish(build, staged, receipt, cells, fragments.changed, done)

    def _sessionize(self, build: Build, cells: Cells) -> Commit:
        stream = build.stream
        widened = self._widened_sessions(build, cells)
        cells = widened.cells
        fragments = self.lake.files(stream, SESSION_FRAGMENTS, build.source, widened.read)
        old = self._old(build, cells, SESSIONS)
        chunks = chunks_of_chains(fragments, _with_files(cells, fragments, old), old)
        files = self._tables(build, SESSION_FRAGMENTS, SESSIONS)
        done = work(self.lake.spark(), chunks, Sessionization(stream), files)
        sessions = Rebuilt.of(SESSIONS, done.written, old[SESSIONS])
        receipt = self._receipt(build, cells, sessions.changed)
        staged = self._stage(build, sessions, build_properties(receipt))
        before, after = sessions.count_events()
        total = receipt["events"] = self._total_events(build, SESSIONS) - before + after
        if build.facts.changes.keys() <= cells:
            expected = self._total_events(build, SESSION_FRAGMENTS)
            self._balance(
                build, [staged], total == expected, f"fragments of {expected} events, but sessions of {total}"
            )
        return self._publish(build, staged, receipt, cells, sessions.changed, done)

    # What all steps share

    def _widened_sessions(self, build: Build, cells: Cells) -> WidenedSessions:
        name, inputs = build.stream.name, (SESSION_FRAGMENTS, SESSIONS)
        totals = self.ledger.totals(name)
        # If the run takes in every cell that there is, there is nothing to widen to: the data need not be asked.
        if all(table not in totals or totals[table].cells <= len(cells) for table in inputs):
            known = {cell for table in inputs for cell in self.ledger.sizes(name, table)}
            if known <= cells:
                return WidenedSessions(cells, cells)
        return with_sessions(self.lake, build.stream, build.source, build.base, build.facts, cells)

    def _keep_ahead(self, stream: Stream, events: Rebuilt, fragments: Rebuilt) -> None:
        """Remember the fragments that were made of these events, instead of all of this stream before."""
        files = {each.cell: _paths([each.file] if each.file else []) for each in events.cells}
        self._ahead[_settings(stream)] = {
            each.cell: Ahead(each, files[each.cell], _paths(fragments.old.get(each.cell, ())))
            for each in fragments.cells
        }

    def _take_ahead(self, stream: Stream, events: CellFiles, old: CellFiles) -> dict[Cell, Written]:
        """Those remembered that still hold: made of just these events and compared with just these fragments."""
        kept = self._ahead.pop(_settings(stream), {})
        return {
            cell: ahead.written
            for cell, ahead in kept.items()
            if ahead.events == _paths(events.get(cell, ())) and ahead.old == _paths(old.get(cell, ()))
        }

    def _tables(self, build: Build, *names: str) -> dict[str, TableFiles]:
        return {name: self.lake.table_files(build.stream, name) for name in names}

    def _old(self, build: Build, cells: Cells, *names: str) -> dict[str, dict[Cell, list[DataFile]]]:
        return {name: self.lake.files(build.stream, name, build.heads[name].snapshot_id, cells) for name in names}

    def _stage(self, build: Build, rebuilt: Rebuilt, properties: Mapping[str, str]) -> Staged:
        stream, base = build.stream, build.heads[rebuilt.table].snapshot_id
        if not rebuilt.changed:
            return self.lake.stage_nothing(stream, rebuilt.table, base, properties)
        return self.lake.stage_files(stream, rebuilt.table, base, rebuilt.removed, rebuilt.added, properties)

    def _rows_after(self, build: Build, checked: Cells, rebuilt: Rebuilt, staged: Staged | None) -> dict[Cell, int]:
        """Rows in each checked cell of the table once `staged` is published."""
        sizes = self.ledger.sizes(build.stream.name, rebuilt.table, checked)
        rows = {cell: size.rows for cell, size in sizes.items() if cell not in rebuilt.changed}
        return rows | (staged.rows_by_cell() if staged else {})

    def _receipt(self, build: Build, checked: Cells, rewritten: Cells) -> dict[str, Any]:
        return build_receipt(build.table, build.heads, build.facts.fingerprint, build.reason, checked, rewritten)

    def _publish(
        self,
        build: Build,
        staged: Staged,
        receipt: dict[str, Any],
        checked: Cells,
        rewritten: Cells,
        done: Work,
        beside: Staged | None = None,
        numbers: Mapping[int, Mapping[str, float]] | None = None,
    ) -> Commit:
        self.lake.catalog.write_receipt(build.stream.name, receipt["name"], receipt)
        self.lake.publish(staged)
        self.ledger.sync(build.stream.name)
        written = [each for each in (staged, beside) if each]
        return Commit(
            table=build.table,
            snapshot_id=staged.snapshot_id,
            reason=build.reason,
            cells_checked=checked,
            cells_rewritten=rewritten,
            rows_written=sum(each.rows_added for each in written),
            bytes_read=done.bytes_read,
            bytes_written=sum(each.bytes_added for each in written),
            built_from={INPUT_OF[build.table]: build.source},
            partitions=statistics.of_partitions(
                self.ledger, build.stream, build.table, checked, written, numbers or {}
            ),
        )

    def _check_cells(
        self,
        build: Build,
        cells: Cells,
        duplicates: Mapping[Cell, int],
        events: Mapping[Cell, int],
        staged: list[Staged | None],
    ) -> None:
        raw = self.ledger.sizes(build.stream.name, RAW_EVENTS, cells)
        nothing = CellSize(0, 0, 0)
        wrong = [
            f"{build.stream.partitions.key(cell.partition)}, bucket {cell.bucket}: {raw.get(cell, nothing).rows} raw, "
            f"but {events.get(cell, 0)} deduplicated and {duplicates.get(cell, 0)} duplicates"
            for cell in sorted(cells)
            if raw.get(cell, nothing).rows != events.get(cell, 0) + duplicates.get(cell, 0)
        ]
        self._balance(build, staged, not wrong, "; ".join(wrong[:5]))

    def _balance(self, build: Build, staged: Iterable[Staged | None], balanced: bool, found: str) -> None:
        """Rule 2: what does not balance is not published."""
        if balanced:
            return
        for each in staged:
            if each:
                self.lake.discard(each)
        if self.ledger.sync(build.stream.name) != build.heads:
            raise ConflictError(
                f"{build.stream.name}: another writer committed while {build.table} was built. Run again."
            )
        raise ConservationError(f"{build.stream.name}.{build.table}: {found}. Nothing was published.")

    def _total_events(self, build: Build, table: str) -> int:
        """The events in all fragments or sessions, as the newest receipt says; counted if that is lost."""
        head = build.heads[table]
        receipt = self.lake.catalog.read_receipt(build.stream.name, head.receipt) if head.receipt else None
        if receipt and "events" in receipt:
            return int(receipt["events"])
        if table not in self.ledger.totals(build.stream.name):
            return 0
        rows = self.lake.read(build.stream, table, head.snapshot_id)
        return int(rows.agg(F.sum("event_count")).collect()[0][0] or 0)


def _settings(stream: Stream) -> tuple[str, str]:
    return stream.name, fingerprint(stream, SESSION_FRAGMENTS)


def _paths(files: Iterable[DataFile]) -> frozenset[str]:
    return frozenset(file.file_path for file in files)


def _with_files(cells: Cells, files: CellFiles, old: Mapping[str, CellFiles]) -> Cells:
    """Those cells that hold anything, before or after."""
    return cells & {*files, *(cell for table in old.values() for cell in table)}
