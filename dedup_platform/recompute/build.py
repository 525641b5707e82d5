"""Rebuilds cells of a derived table: pins its inputs, widens to linked cells, applies the rule, checks, publishes.

The commit names every cell that was checked, rewritten or not, so that nothing is planned again for ever (rule 6).
Whoever loses a race to another writer gets ConflictError, and nothing was written.
"""

import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyiceberg.manifest import DataFile

from dedup_platform.errors import ConservationError
from dedup_platform.lake.commits import Commit
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.receipts import BuildReceipt, SummaryValues
from dedup_platform.lake.staged import Staged
from dedup_platform.lake.table_files import TableFiles
from dedup_platform.ledger import Head, KeptFigures, Ledger
from dedup_platform.planning.cells import NO_ENTITY, Cell, Cells, grown, reach
from dedup_platform.planning.facts import Facts
from dedup_platform.planning.linking import WidenedSessions, with_linked_keys, with_sessions, with_whole_buckets
from dedup_platform.planning.planner import reasons_of
from dedup_platform.recompute import metrics
from dedup_platform.recompute.chunks import CellFiles, chunks_along_time, chunks_of_cells, chunks_of_chains
from dedup_platform.recompute.linked_cells import links_of_keys, spans_before, spans_now
from dedup_platform.recompute.prebuilt import PrebuiltFragments
from dedup_platform.recompute.rebuilt import Rebuilt, count_rows
from dedup_platform.recompute.receipts import build_receipt
from dedup_platform.recompute.session_tasks import Sessionization
from dedup_platform.recompute.tasks import Deduplication, Fragmentation, TaskResult, run_tasks
from dedup_platform.recompute.totals import longest_reach, total_events
from dedup_platform.rules.fingerprints import fingerprint
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

MANY_STARTS = 100_000
"""Above this many candidate cells in which old sessions may start, the ledger is asked which of them there are."""


@dataclass(frozen=True)
class Build:
    """What one recomputation of one table is pinned to."""

    stream: Stream
    table: str
    heads: Mapping[str, Head]
    facts: Facts
    buckets: int
    reason: str = "full"
    token: int | None = None
    """Of the claim under which it is done."""

    @property
    def base(self) -> int:
        """The target's snapshot when the build began; publishing from any other is refused."""
        return self.heads[self.table].snapshot_id

    @property
    def source(self) -> int:
        """The input's snapshot that everything is read from."""
        return self.heads[INPUT_OF[self.table]].snapshot_id


class Recompute:
    """Rebuilds cells of the derived tables of any stream."""

    def __init__(self, lake: Lakehouse, ledger: Ledger) -> None:
        self.lake = lake
        self.ledger = ledger
        self._figures = KeptFigures(ledger)
        self._prebuilt = PrebuiltFragments()

    def stale(
        self, stream: Stream, table: str, partitions: Container[int] | None = None, token: int | None = None
    ) -> Commit:
        """Rebuild the stale cells, of all or of the given partitions, widened to the cells linked to them.

        `token` is that of the claim under which it is done, if there is one.
        """
        build = self._begin(stream, table, token)
        if build is None:
            return Commit(table, None, "nothing")
        pending = build.facts.pending
        chosen = frozenset(cell for cell in pending if partitions is None or cell.partition in partitions)
        why = reasons_of(build.facts, chosen, stream.partitions.length, stream.late.grace)
        return self._run(replace(build, reason=why), chosen)

    def whole(self, stream: Stream, table: str, partitions: Iterable[int], token: int | None = None) -> Commit:
        """Rebuild all cells of the given partitions, widened to the cells linked to them."""
        build = self._begin(stream, table, token)
        if build is None:
            return Commit(table, None, "full")
        buckets = [*range(build.buckets), *([NO_ENTITY] if table == DEDUPLICATED_EVENTS else [])]
        return self._run(build, frozenset(Cell(partition, number) for partition in partitions for number in buckets))

    def _begin(self, stream: Stream, table: str, token: int | None) -> Build | None:
        heads = self.ledger.sync(stream.name)
        if not heads:
            return None
        facts = self.ledger.facts(stream, table, fingerprint(stream, table))
        return Build(stream, table, heads, facts, self.lake.buckets(stream), token=token)

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
        around = reach(stream.deduplicate.window, stream.partitions.length)
        ask = partial(links_of_keys, self.lake, stream, build.source)
        cells = with_linked_keys(cells | self.lake.unpaired_cells(stream), build.facts, around, ask)
        raw = self.lake.files(stream, RAW_EVENTS, build.source, grown(cells, around))
        made = (DUPLICATE_EVENTS, DEDUPLICATED_EVENTS, *([SESSION_FRAGMENTS] if stream.sessions else []))
        old = self._old(build, cells, *made)
        files = self._tables(build, RAW_EVENTS, *old)
        weigh = partial(files[RAW_EVENTS].bytes_of, columns=column_names(stream, DEDUPLICATED_EVENTS))
        chunks = chunks_along_time(raw, _with_files(cells, raw, old), old, around, weigh)
        done = run_tasks(self.lake.spark(), chunks, Deduplication(stream), files)
        duplicates, events, *fragments = (Rebuilt.of(table, done.written, old[table]) for table in old)
        for each in fragments:
            self._prebuilt.keep(stream, events, each)
        beside = self._stage(build, duplicates, {"reason": build.reason}) if duplicates.changed else None
        pair = beside.snapshot_id if beside else build.heads[DUPLICATE_EVENTS].snapshot_id
        receipt = self._receipt(build, cells, events.changed)
        properties = receipt.properties() | {"duplicates-snapshot": str(pair)}
        staged = self._stage(build, events, properties)
        wrong = list(_unbalanced(stream, cells, raw, events.rows_after(staged), duplicates.rows_after(beside)))
        self._balance(build, [staged, beside], not wrong, "; ".join(wrong[:5]))
        # The duplicates go first: the events' commit names them, and readers follow that pair.
        if beside:
            self.lake.publish(beside)
        written = [staged, *([beside] if beside else [])]
        commit = self._publish(build, receipt, written, events.changed | duplicates.changed, done)
        self._figures.keep(stream, DUPLICATE_EVENTS, pair, duplicates.figures())
        self._figures.keep(stream, DEDUPLICATED_EVENTS, staged.snapshot_id, events.figures())
        return commit

    def _fragment(self, build: Build, cells: Cells) -> Commit:
        stream = build.stream
        events = self.lake.files(stream, DEDUPLICATED_EVENTS, build.source, cells)
        old = self._old(build, cells, SESSION_FRAGMENTS)
        ready = self._prebuilt.take(stream, events, old[SESSION_FRAGMENTS])
        chunks = chunks_of_cells(events, _with_files(cells, events, old) - ready.keys(), old)
        files = self._tables(build, DEDUPLICATED_EVENTS, SESSION_FRAGMENTS)
        done = run_tasks(self.lake.spark(), chunks, Fragmentation(stream), files)
        written = [*(each for cell, each in ready.items() if cell in cells), *done.written]
        fragments = Rebuilt.of(SESSION_FRAGMENTS, written, old[SESSION_FRAGMENTS])
        receipt = self._receipt(build, cells, fragments.changed)
        staged = self._stage(build, fragments, receipt.properties())
        before, after = fragments.count_events()
        # Events without an entity are in a bucket of their own, of which no fragments are made.
        inside = sum(count_rows(events.get(cell, ())) for cell in fragments.changed)
        self._balance(build, [staged], after == inside, f"{inside} events, but fragments of {after}")
        total = total_events(self.lake, stream, SESSION_FRAGMENTS, build.heads[SESSION_FRAGMENTS]) - before + after
        receipt = receipt.model_copy(update={"events": total})
        return self._publish(build, receipt, [staged], fragments.changed, done)

    def _sessionize(self, build: Build, cells: Cells, recount: bool = False) -> Commit:
        stream, head = build.stream, build.heads[SESSIONS]
        longest = longest_reach(self.lake, stream, head)
        widened = self._widened_sessions(build, with_whole_buckets(cells, build.facts), longest)
        cells = widened.cells
        fragments = self.lake.files(stream, SESSION_FRAGMENTS, build.source, widened.read)
        old = self._old(build, cells, SESSIONS)
        chunks = chunks_of_chains(fragments, _with_files(cells, fragments, old), old)
        files = self._tables(build, SESSION_FRAGMENTS, SESSIONS)
        done = run_tasks(self.lake.spark(), chunks, Sessionization(stream), files)
        sessions = Rebuilt.of(SESSIONS, done.written, old[SESSIONS])
        before, after = sessions.count_events()
        total = total_events(self.lake, stream, SESSIONS, head, recount) - before + after
        if build.facts.changes.keys() <= cells:
            expected = total_events(self.lake, stream, SESSION_FRAGMENTS, build.heads[SESSION_FRAGMENTS], recount)
            if total != expected and not recount:
                # Totals disagree although nothing is stale, as in tables that never had them checked: rebuild all.
                return self._sessionize(build, cells | self._known_cells(build), recount=True)
            self._balance(build, [], total == expected, f"fragments of {expected} events, but sessions of {total}")
        reaches = max([longest, *(each.reaches for each in sessions.cells)])
        receipt = self._receipt(build, cells, sessions.changed)
        receipt = receipt.model_copy(update={"events": total, "longest_reach": reaches})
        staged = self._stage(build, sessions, receipt.properties())
        return self._publish(build, receipt, [staged], sessions.changed, done)

    # What all steps share

    def _widened_sessions(self, build: Build, changed: Cells, longest: int) -> WidenedSessions:
        stream, totals = build.stream, self.ledger.totals(build.stream.name)
        # If the run takes in every cell that there is, there is nothing to widen to: the data need not be asked.
        most = max((totals[table].cells for table in (SESSION_FRAGMENTS, SESSIONS) if table in totals), default=0)
        if most <= len(changed) and self._known_cells(build) <= changed:
            return WidenedSessions(changed, changed)
        step = reach(stream.session_timeout, stream.partitions.length)
        before = spans_before(self.lake, stream, build.base, self._starts_of_reaching(build, changed, longest))
        return with_sessions(changed, step, before, partial(spans_now, self.lake, stream, build.source))

    def _starts_of_reaching(self, build: Build, changed: Cells, longest: int) -> Cells:
        """The cells in which old sessions start that may reach the changed ones."""
        if len(changed) * (longest + 1) <= MANY_STARTS:
            return frozenset(
                Cell(cell.partition - back, cell.bucket) for cell in changed for back in range(longest + 1)
            )
        buckets = {cell.bucket for cell in changed}
        return frozenset(cell for cell in self.ledger.sizes(build.stream.name, SESSIONS) if cell.bucket in buckets)

    def _known_cells(self, build: Build) -> Cells:
        """All cells that hold fragments or sessions."""
        inputs = (SESSION_FRAGMENTS, SESSIONS)
        return frozenset(cell for table in inputs for cell in self.ledger.sizes(build.stream.name, table))

    def _tables(self, build: Build, *names: str) -> dict[str, TableFiles]:
        return {name: self.lake.table_files(build.stream, name) for name in names}

    def _old(self, build: Build, cells: Cells, *names: str) -> dict[str, dict[Cell, list[DataFile]]]:
        return {name: self.lake.files(build.stream, name, build.heads[name].snapshot_id, cells) for name in names}

    def _stage(self, build: Build, rebuilt: Rebuilt, properties: SummaryValues) -> Staged:
        stream, base = build.stream, build.heads[rebuilt.table].snapshot_id
        if build.token is not None:
            properties = {**properties, "token": str(build.token)}
        if not rebuilt.changed:
            return self.lake.stage_nothing(stream, rebuilt.table, base, properties)
        return self.lake.stage_files(stream, rebuilt.table, base, rebuilt.removed, rebuilt.added, properties)

    def _receipt(self, build: Build, checked: Cells, rewritten: Cells) -> BuildReceipt:
        return build_receipt(build.table, build.heads, build.facts.fingerprint, build.reason, checked, rewritten)

    def _publish(
        self,
        build: Build,
        receipt: BuildReceipt,
        written: Sequence[Staged],
        rewritten: Cells,
        done: TaskResult,
    ) -> Commit:
        """Publish the first of what was written; the others were published beside it."""
        staged, checked = written[0], frozenset(receipt.checked)
        self.lake.catalog.write_receipt(build.stream.name, receipt)
        self.lake.publish(staged)
        self.ledger.sync(build.stream.name)
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
            partitions=metrics.of_partitions(checked, written),
        )

    def _balance(self, build: Build, staged: Iterable[Staged | None], balanced: bool, found: str) -> None:
        """Rule 2: what does not balance is not published. All that is counted is of the snapshots that were read."""
        if balanced:
            return
        for each in staged:
            if each:
                self.lake.discard(each)
        raise ConservationError(f"{build.stream.name}.{build.table}: {found}. Nothing was published.")


def _unbalanced(
    stream: Stream, cells: Cells, raw: CellFiles, events: Mapping[Cell, int], duplicates: Mapping[Cell, int]
) -> Iterator[str]:
    """The cells in which records are not as many as what became of them."""
    for cell in sorted(cells):
        records, kept, beaten = count_rows(raw.get(cell, ())), events.get(cell, 0), duplicates.get(cell, 0)
        if records != kept + beaten:
            yield (
                f"{stream.partitions.key(cell.partition)}, bucket {cell.bucket}: {records} raw, "
                f"but {kept} deduplicated and {beaten} duplicates"
            )


def _with_files(cells: Cells, files: CellFiles, old: Mapping[str, CellFiles]) -> Cells:
    """Those cells that hold anything, before or after."""
    return cells & {*files, *(cell for table in old.values() for cell in table)}
