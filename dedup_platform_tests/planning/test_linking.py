"""The rules of linking over random histories in plain Python: whatever runs take in, readers never see halves.

One bucket, integer time. Runs take in some of what waits, as planners cut it. The rules are the code's own functions;
what they ask the data is answered by lists in memory.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import NamedTuple

import pytest

from dedup_platform.planning.cells import Cell, Cells
from dedup_platform.planning.facts import Change, Facts
from dedup_platform.planning.linking import Link, Span, with_linked_keys, with_sessions, with_whole_buckets
from dedup_platform.planning.planner import Policy, plan

START = datetime(2024, 1, 1, tzinfo=UTC)
HISTORIES = 400


class Event(NamedTuple):
    entity: int
    time: int
    arrival: int


class Session(NamedTuple):
    """A fragment is one, too."""

    entity: int
    first: int
    last: int
    events: int
    first_arrival: int


def sessions_of(parts: Iterable[Session], timeout: int) -> list[Session]:
    found: list[Session] = []
    for part in sorted(parts):
        last = found[-1] if found else None
        if last and last.entity == part.entity and part.first - last.last <= timeout:
            arrival = min(last.first_arrival, part.first_arrival)
            found[-1] = Session(last.entity, last.first, part.last, last.events + part.events, arrival)
        else:
            found.append(part)
    return found


def fragments_of(events: Iterable[Event], timeout: int, length: int) -> dict[int, list[Session]]:
    days = defaultdict(list)
    for event in events:
        days[event.time // length].append(Session(event.entity, event.time, event.time, 1, event.arrival))
    return {day: sessions_of(rows, timeout) for day, rows in days.items()}


def spans(sessions: Iterable[Session], length: int) -> list[Span]:
    return [(0, each.first // length, each.last // length) for each in sessions]


def facts_of(pending: Mapping[Cell, Change], arrival_max: Mapping[Cell, datetime] | None = None) -> Facts:
    return Facts("model", "sessions", pending, frozenset(), "", arrival_max or {})


def changed(cell: Cell, arrival: int | None = None, disturbed: bool = False) -> Change:
    return Change(cell, 1, 1, START, START, None if arrival is None else at(arrival), disturbed)


def at(moment: int) -> datetime:
    return START + timedelta(seconds=moment)


class SessionsTable:
    """`sessions` of one bucket, repaired in runs that are asked for some of the cells that wait."""

    def __init__(self, timeout: int, length: int) -> None:
        self.timeout, self.length = timeout, length
        self.fragments: dict[int, list[Session]] = {}
        self.rows: dict[int, list[Session]] = defaultdict(list)
        self.pending: dict[Cell, Change] = {}

    def ingest(self, events: Iterable[Event]) -> None:
        now = fragments_of(events, self.timeout, self.length)
        for day in now.keys() | self.fragments.keys():
            if now.get(day) != self.fragments.get(day):
                self.pending[Cell(day, 0)] = changed(Cell(day, 0))
        self.fragments = now

    def run(self, chosen: Cells) -> None:
        whole = with_whole_buckets(chosen, facts_of(self.pending))
        step = -(-self.timeout // self.length)
        widened = with_sessions(whole, step, spans(self.all_rows(), self.length), self._spans_of)
        seen = sessions_of(self._fragments(widened.read), self.timeout)
        for cell in widened.cells:
            self.rows[cell.partition] = [each for each in seen if each.first // self.length == cell.partition]
            self.pending.pop(cell, None)

    def all_rows(self) -> list[Session]:
        return [each for rows in self.rows.values() for each in rows]

    def _fragments(self, cells: Iterable[Cell]) -> list[Session]:
        return [each for cell in cells for each in self.fragments.get(cell.partition, ())]

    def _spans_of(self, cells: Cells) -> list[Span]:
        return spans(sessions_of(self._fragments(cells), self.timeout), self.length)


@pytest.mark.parametrize("part", range(4))
def test_after_every_run_sessions_are_those_of_the_fragments_that_it_read(part: int, thorough: bool) -> None:
    for seed in range(part, HISTORIES * (25 if thorough else 1), 4):
        live_through_sessions(Random(seed))


def live_through_sessions(random: Random) -> None:
    table = SessionsTable(random.choice([3, 5, 10, 15, 25]), random.choice([10, 20]))
    count = random.randint(1, 40)
    incoming = [Event(random.randrange(2), random.randrange(150), arrival) for arrival in range(count)]
    random.shuffle(incoming)
    events: list[Event] = []
    while incoming or table.pending:
        size = random.randint(1, 8)
        events, incoming = events + incoming[:size], incoming[size:]
        if incoming and random.random() < 0.4:
            events.pop(random.randrange(len(events)))
        table.ingest(events)
        if table.pending and random.random() < 0.8:
            waiting = sorted(table.pending)
            table.run(frozenset(random.sample(waiting, random.randint(1, len(waiting)))))
            everything = [each for rows in table.fragments.values() for each in rows]
            assert sorted(table.all_rows()) == sorted(sessions_of(everything, table.timeout))


class Rec(NamedTuple):
    key: int
    time: int
    arrival: int
    number: int

    @property
    def order(self) -> tuple[int, int]:
        return self.arrival, self.number


class EventsTable:
    """`deduplicated_events` and duplicates of one bucket: each record with what beats it, or None."""

    def __init__(self, window: int, length: int) -> None:
        self.window, self.length, self.around = window, length, -(-window // length)
        self.raw: list[Rec] = []
        self.rows: dict[Cell, dict[Rec, Rec | None]] = {}
        self.pending: dict[Cell, Change] = {}
        self.arrival_max: dict[Cell, datetime] = {}

    def add(self, record: Rec) -> None:
        self.raw.append(record)
        cell = self.cell(record)
        self._note(cell, record.arrival, disturbed=False)
        self.arrival_max[cell] = max(at(record.arrival), self.arrival_max.get(cell, START))

    def remove(self, record: Rec) -> None:
        """As decoding again does; the file that goes tells the earliest arrival of its cell."""
        cell = self.cell(record)
        self._note(cell, min(each.arrival for each in self.raw if self.cell(each) == cell), disturbed=True)
        self.raw.remove(record)
        for near in {self.cell(each) for each in self.raw} - {cell}:
            if abs(near.partition - cell.partition) <= self.around:
                self._note(near, None, disturbed=True)

    def move(self, record: Rec, time: int) -> None:
        """The same record happened at another time, as it is decoded now: in one commit."""
        self.remove(record)
        self.add(record._replace(time=time))
        self._note(self.cell(self.raw[-1]), record.arrival, disturbed=True)

    def _note(self, cell: Cell, arrival: int | None, disturbed: bool) -> None:
        before, after = self.pending.get(cell), changed(cell, arrival, disturbed)
        arrivals = [each.arrival_min for each in (before, after) if each and each.arrival_min]
        is_disturbed = disturbed or bool(before and before.disturbed)
        self.pending[cell] = after._replace(arrival_min=min(arrivals, default=None), disturbed=is_disturbed)

    def run(self, chosen: Cells) -> None:
        cells = with_linked_keys(chosen, facts_of(self.pending, self.arrival_max), self.around, self._links)
        for cell in cells:
            self.rows[cell] = self.verdicts([each for each in self.raw if self.cell(each) == cell])
            self.pending.pop(cell, None)

    def cell(self, record: Rec) -> Cell:
        return Cell(record.time // self.length, 0)

    def beats(self, one: Rec, other: Rec) -> bool:
        return one.key == other.key and abs(one.time - other.time) <= self.window and one.order < other.order

    def verdicts(self, records: Iterable[Rec]) -> dict[Rec, Rec | None]:
        return {
            each: min((other for other in self.raw if self.beats(other, each)), key=lambda it: it.order, default=None)
            for each in records
        }

    def _links(self, cells: Cells) -> list[Link]:
        inside = [each for each in self.raw if self.cell(each) in cells]
        return [
            (self.cell(one), self.cell(other))
            for one in inside
            for other in inside
            if one.key == other.key and abs(one.time - other.time) <= self.window and self.cell(one) != self.cell(other)
        ]

    def check(self) -> None:
        here = {record: winner for rows in self.rows.values() for record, winner in rows.items()}
        numbers = [record.number for rows in self.rows.values() for record in rows]
        assert len(set(numbers)) == len(numbers), "a record is in two cells"
        for record, winner in here.items():
            assert winner is None or winner in here or winner not in self.raw, "what beat it is in no table"
            assert winner or not any(self.beats(other, record) for other in here), "two copies are events"
        if not self.pending:
            assert here == self.verdicts(self.raw)


@pytest.mark.parametrize("part", range(4))
def test_after_every_run_no_event_is_there_twice_and_none_is_lost(part: int, thorough: bool) -> None:
    for seed in range(part, HISTORIES * (25 if thorough else 1), 4):
        live_through_copies(Random(seed))


def live_through_copies(random: Random) -> None:
    table = EventsTable(random.choice([0, 3, 5, 10, 17]), random.choice([5, 10]))
    count = random.randint(2, 40)
    incoming = [Rec(random.randrange(4), random.randrange(60), random.randrange(30), number) for number in range(count)]
    while incoming or table.pending:
        for _ in range(min(len(incoming), random.randint(1, 6))):
            table.add(incoming.pop())
        if incoming and random.random() < 0.3:
            record = random.choice(table.raw)
            table.remove(record) if random.random() < 0.5 else table.move(record, random.randrange(60))
        if table.pending and random.random() < 0.8:
            waiting = sorted(table.pending)
            table.run(frozenset(random.sample(waiting, random.randint(1, len(waiting)))))
            table.check()


def test_the_planner_cuts_nothing_that_a_record_which_went_had_linked() -> None:
    left, beaten, other = (changed(Cell(day, 0), arrival=None, disturbed=day < 13) for day in (10, 11, 13))
    far = changed(Cell(2_000_000, 3), arrival=None, disturbed=True)
    facts = facts_of({each.cell: each for each in (left, beaten, other, far)})
    together = {left.cell, beaten.cell, far.cell}
    assert with_linked_keys(frozenset([far.cell]), facts, 1, lambda _: ()) == together
    assert with_linked_keys(frozenset([other.cell]), facts, 1, lambda _: ()) == {other.cell}
    runs = plan(replace(facts, reach=1), Policy(max_partitions_per_run=1), START + timedelta(days=1)).runs
    assert [run.partitions for run in runs] == [(10,), (13,)], "the run of the first takes in the far one, too"


def test_each_bucket_of_sessions_is_repaired_by_one_run_and_none_is_left_out() -> None:
    cells = [Cell(10, 0), Cell(40, 0), Cell(11, 1), Cell(40, 2)]
    facts = facts_of({cell: changed(cell) for cell in cells})
    runs = plan(facts, Policy(whole_buckets=True), START + timedelta(days=1)).runs
    assert [run.partitions for run in runs] == [(10, 11), (40,)]
