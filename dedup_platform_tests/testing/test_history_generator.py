"""Random histories hold every situation that they promise, so that whoever passes them has met it."""

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise

import pytest

from dedup_platform.testing import Expected, Record, Rules, identity_changes, oracle, utc
from dedup_platform.testing.histories import TICK, History, histories, rebatched

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
START = utc("2024-01-01")
SETTINGS = {
    "daily": Rules(DAY, 30 * MINUTE),
    "daily, no window": Rules(timedelta(), 30 * MINUTE),
    "hourly, long timeout": Rules(2 * HOUR, 90 * MINUTE, HOUR),
    "hourly, long window": Rules(3 * DAY, 2 * HOUR, HOUR),
}


@dataclass
class Seen:
    """What occurred in a history, by name."""

    rules: Rules
    names: Counter[str] = field(default_factory=Counter)

    def note(self, **seen: bool) -> None:
        self.names.update(name for name, happened in seen.items() if happened)

    def in_records(self, records: list[Record]) -> None:
        events = {(each.entity_id, each.event_id, each.arrival_time) for each in records}
        arrivals = Counter((entity_id, arrival) for entity_id, _, arrival in events)
        lines = Counter(repr(replace(each, source="", source_offset=0)) for each in records)
        self.note(
            equal_arrivals=max(arrivals.values()) > 1,
            same_line_twice=max(lines.values()) > 1,
            null_entity=any(each.entity_id is None for each in records),
            midnight=any(
                each.event_time == each.event_time.replace(hour=0, minute=0, second=0, microsecond=0)
                for each in records
            ),
        )

    def in_state(self, expected: Expected, records: list[Record]) -> None:
        by_coordinate = {each.coordinate: each for each in records}
        for loser, (winner, kind) in expected.duplicates.items():
            distance = by_coordinate[loser].event_time - by_coordinate[winner].event_time
            crossed = self.partition(by_coordinate[loser]) - self.partition(by_coordinate[winner])
            self.note(
                **{kind: True},
                window=abs(distance) == self.rules.window,
                winner_before=crossed > 0,
                winner_after=crossed < 0,
                chain=winner in expected.duplicates,
            )
        keys = Counter((each.entity_id, each.event_id) for each in expected.deduplicated)
        self.note(unbeaten_twice=max(keys.values()) > 1)
        for one, two in pairwise(
            sorted(expected.deduplicated, key=lambda e: (str(e.entity_id), e.event_id, e.event_time))
        ):
            same = (one.entity_id, one.event_id) == (two.entity_id, two.event_id)
            self.note(beyond_window=same and two.event_time - one.event_time == self.rules.window + TICK)
        for session in expected.sessions:
            gaps = [later.event_time - earlier.event_time for earlier, later in pairwise(session.events)]
            partitions = sorted({self.partition(each) for each in session.events})
            amounts = {each.attributes["amount"] for each in session.events}
            self.note(
                timeout=self.rules.timeout in gaps,
                across=len(partitions) > 1,
                empty_partition=len(partitions) <= partitions[-1] - partitions[0],
                decimals={Decimal("0.10"), Decimal("0.20"), Decimal("0.30")} <= amounts,
                tie=timedelta() in gaps,
            )
        for before, after in pairwise(sorted(expected.sessions, key=lambda each: (each.entity_id, each.started_at))):
            near = before.entity_id == after.entity_id
            self.note(beyond_timeout=near and after.started_at - before.ended_at == self.rules.timeout + TICK)

    def in_step(self, before: Expected, after: Expected) -> None:
        changes = identity_changes(before, after, self.rules)
        starts = {each.identity: each.events[0] for each in after.sessions}
        moved = [(each.events[0], starts[each.identity]) for each in before.sessions if each.identity in starts]
        self.note(
            merged=any(changes.retired.values()),
            lost=None in changes.retired.values(),
            day_before=any(self.partition(new) < self.partition(old) for old, new in moved),
            shrunk_from_afar=self.shrunk_from_afar(before, after),
            deposed=bool({e.coordinate for e in before.deduplicated} & after.duplicates.keys()),
        )

    def shrunk_from_afar(self, before: Expected, after: Expected) -> bool:
        """A session lost a later partition, and nothing happened in the partition where it starts."""
        ends = {each.identity: each.events[-1] for each in after.sessions}
        fragments = {repr(each) for rows in after.fragments.values() for each in rows}
        untouched = {
            (each.entity_id, each.started_at)
            for rows in before.fragments.values()
            for each in rows
            if repr(each) in fragments
        }
        return any(
            (each.entity_id, each.started_at) in untouched
            and each.identity in ends
            and self.partition(ends[each.identity]) < self.partition(each.events[-1])
            for each in before.sessions
        )

    def partition(self, event: Record) -> int:
        return int(event.event_time.timestamp() // self.rules.partition.total_seconds())


EVERYWHERE = {
    *("copy", "conflict", "equal_arrivals", "same_line_twice", "null_entity", "midnight", "window", "beyond_window"),
    *("timeout", "beyond_timeout", "tie", "across", "decimals", "merged", "lost", "day_before", "deposed"),
    "unbeaten_twice",
}
WITH_WINDOW = {"shrunk_from_afar", "winner_before", "winner_after", "chain"}


def told(rules: Rules, seed: int = 0) -> History:
    return histories(seed, 150, rules, START)


@pytest.mark.parametrize("rules", SETTINGS.values(), ids=SETTINGS)
def test_every_situation_occurs(rules: Rules) -> None:
    seen = Seen(rules)
    for seed in range(3):
        history = told(rules, seed)
        records: list[Record] = []
        before = oracle(records, rules)
        for batch in history.batches:
            records += batch
            after = oracle(records, rules)
            seen.in_step(before, after)
            before = after
        seen.in_records(records)
        seen.in_state(before, records)
    promised = EVERYWHERE | (WITH_WINDOW if rules.window else set())
    promised |= {"empty_partition"} if rules.timeout > rules.partition else set()
    assert promised - set(seen.names) == set()


@pytest.mark.parametrize("rules", SETTINGS.values(), ids=SETTINGS)
def test_nothing_is_told_that_a_source_would_reject(rules: Rules) -> None:
    history = told(rules)
    assert min(each.event_time for each in history.records) >= START
    assert all(each.event_time <= each.arrival_time < history.now for each in history.records)
    assert len(history.records) > 150 * 4


def test_offsets_are_the_lines_of_each_file_of_a_batch() -> None:
    for batch in told(SETTINGS["daily"]).batches:
        for source in {each.source for each in batch}:
            lines = [each.source_offset for each in batch if each.source == source]
            assert sorted(lines) == list(range(len(lines)))


def test_no_file_is_in_two_batches() -> None:
    history = told(SETTINGS["daily"])
    files = [source for batch in history.batches for source in {each.source for each in batch}]
    assert len(files) == len(set(files)) > len(history.batches)


def test_entities_do_not_meet() -> None:
    """Also where the entity is missing: one job can hold many histories."""
    names = {each.event_id.split()[0] for each in told(SETTINGS["daily"]).records if each.entity_id is None}
    assert len(names) > 5
    assert all(name.startswith("e") for name in names)


def test_same_seed_tells_the_same_history() -> None:
    assert told(SETTINGS["daily"], 5) == told(SETTINGS["daily"], 5)
    assert told(SETTINGS["daily"], 5) != told(SETTINGS["daily"], 6)


def test_rebatched_is_the_same_files_in_another_order() -> None:
    history = told(SETTINGS["daily"])
    other = rebatched(history, seed=1, batches=3)
    assert len(other.batches) == 3
    assert other.batches[0] != history.batches[0]
    assert sorted(map(repr, other.records)) == sorted(map(repr, history.records))
    for batch in other.batches:
        sources = {each.source for each in batch}
        assert len(batch) == sum(each.source in sources for each in history.records)
