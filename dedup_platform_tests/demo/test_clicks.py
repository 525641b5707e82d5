"""The generated clicks hold what their labels say: read back line by line and put to the oracle."""

import gzip
import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dedup_platform.demo import Found, Truth, Visit, generate, late_file, score, score_repair, stream_file
from dedup_platform.stream import load_stream
from dedup_platform.testing import Expected, Record, Rules, identity_changes, oracle
from dedup_platform_tests.variants import some

TODAY = date(2024, 3, 20)
GRACE = timedelta(hours=1)
RULES = Rules(window=timedelta(days=1), timeout=timedelta(minutes=30), aggregates={"landing_page": ("first", "page")})


SEEDS = pytest.mark.parametrize("seed", some(range(1, 9), quick=[1, 2, 3]))


def small(folder: Path, seed: int = 1) -> Truth:
    return generate(folder, seed, events=3_000, today=TODAY)


def read(folder: Path, truth: Truth) -> tuple[list[Record], Counter[str]]:
    """Records as events or as reasons, by rules written here and nowhere else."""
    records, rejected = [], Counter[str]()
    for path in sorted((folder / "clicks").iterdir()):
        for number, line in enumerate(gzip.decompress(path.read_bytes()).decode().splitlines()):
            reason, fields = decode(line, truth)
            if reason:
                rejected[reason] += 1
            else:
                amount = fields.get("amount")
                attributes = {"page": fields["page"], "amount": None if amount is None else Decimal(str(amount))}
                times = moment(fields["occurred_at"]), moment(fields["received_at"])
                user, event_id = fields["user_id"], fields["event_id"]
                records.append(Record(user, event_id, *times, path.name, 0, number, 0, attributes))
    return records, rejected


def decode(line: str, truth: Truth) -> tuple[str | None, dict[str, Any]]:
    try:
        fields = json.loads(line)
    except ValueError:
        return "malformed_record", {}
    if not fields["event_id"]:
        return "missing_event_id", {}
    try:
        occurred = moment(fields["occurred_at"])
    except ValueError:
        return "unreadable_event_time", {}
    if occurred > moment(fields["received_at"]) + timedelta(minutes=10):
        return "event_time_in_future", {}
    return ("before_start" if occurred < truth.start else None), fields


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def day(when: datetime) -> datetime:
    return when.replace(hour=0, minute=0, second=0, microsecond=0)


def found_by_oracle(folder: Path, truth: Truth) -> tuple[Found, Expected]:
    records, rejected = read(folder, truth)
    expected = oracle(records, RULES)
    times = {each.coordinate: each.event_time for each in records}
    pairs = [(times[loser], times[winner]) for loser, (winner, _) in expected.duplicates.items()]
    late = [each for each in expected.deduplicated if each.arrival_time > day(each.event_time) + timedelta(1) + GRACE]
    found = Found(
        records=len(records) + rejected.total(),
        rejected=rejected,
        deduplicated=len(expected.deduplicated),
        duplicates=len(expected.duplicates),
        conflicts=sum(kind == "conflict" for _, kind in expected.duplicates.values()),
        across_midnight=sum(day(loser) != day(winner) for loser, winner in pairs),
        late_events=len(late),
        without_user=sum(each.entity_id is None for each in expected.deduplicated),
        amount=sum((each.attributes["amount"] or Decimal(0) for each in expected.deduplicated), Decimal(0)),
        sessions={
            Visit(each.entity_id, each.started_at, each.ended_at, len(each.events)): repr(each.identity)
            for each in expected.sessions
        },
    )
    return found, expected


@SEEDS
def test_labels_are_what_the_oracle_finds_in_the_files(tmp_path: Path, seed: int) -> None:
    truth = small(tmp_path, seed)
    wrong = [line for line in score(found_by_oracle(tmp_path, truth)[0], truth) if not line.right]
    assert wrong == []


def test_every_kind_of_trouble_occurs(tmp_path: Path) -> None:
    truth = small(tmp_path)
    assert set(truth.rejected) == {
        "malformed_record",
        "missing_event_id",
        "unreadable_event_time",
        "event_time_in_future",
        "before_start",
    }
    counts = (truth.conflicts, truth.across_midnight, truth.late_events, truth.without_user)
    assert min(counts) > 0
    assert truth.duplicates > truth.conflicts > truth.across_midnight
    assert any(visit.started_at.date() != visit.ended_at.date() for visit in truth.sessions)


def test_gaps_at_the_timeout_and_a_microsecond_beyond_occur(tmp_path: Path) -> None:
    truth = small(tmp_path)
    _, expected = found_by_oracle(tmp_path, truth)
    inside = {
        later.event_time - earlier.event_time
        for session in expected.sessions
        for earlier, later in pairwise(session.events)
    }
    visits = sorted(truth.sessions)
    between = {b.started_at - a.ended_at for a, b in pairwise(visits) if a.user == b.user}
    assert max(inside) == RULES.timeout
    assert min(between) == RULES.timeout + timedelta(microseconds=1)


def test_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    truths = [small(tmp_path / name) for name in ("one", "two")]
    contents = [
        {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (tmp_path / name / "clicks").iterdir()}
        for name in ("one", "two")
    ]
    assert truths[0] == truths[1]
    assert contents[0] == contents[1]
    assert generate(tmp_path / "three", seed=2, events=3_000, today=TODAY) != truths[0]


def test_all_has_arrived_when_today_begins(tmp_path: Path) -> None:
    truth = small(tmp_path)
    late_file(tmp_path, truth)
    records, _ = read(tmp_path, truth)
    assert truth.now == datetime(2024, 3, 20, tzinfo=UTC)
    assert truth.start == datetime(2024, 3, 10, tzinfo=UTC)
    assert max(each.arrival_time for each in records) < truth.now
    assert all(path.stat().st_mtime < truth.now.timestamp() for path in (tmp_path / "clicks").iterdir())


def test_at_least_200_000_events_over_7_days_by_default(tmp_path: Path) -> None:
    truth = generate(tmp_path, today=TODAY)
    assert truth.deduplicated >= 200_000
    assert len({visit.started_at.date() for visit in truth.sessions}) == 7


def test_too_few_days_for_a_late_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="5 days or more"):
        generate(tmp_path, days=4)


@SEEDS
def test_late_file_does_what_its_truth_says(tmp_path: Path, seed: int) -> None:
    truth = small(tmp_path, seed)
    before, old = found_by_oracle(tmp_path, truth)
    truth = late_file(tmp_path, truth)
    after, new = found_by_oracle(tmp_path, truth)
    assert [line for line in score(after, truth) + score_repair(before, after, truth) if not line.right] == []

    changes = identity_changes(old, new, RULES)
    assert truth.repair is not None
    kept, retired, merged = (truth.repair.kept, truth.repair.retired, truth.repair.merged)
    assert {repr(key): repr(value) for key, value in changes.retired.items()} == {
        before.sessions[retired]: after.sessions[merged]
    }
    assert before.sessions[kept] == after.sessions[merged]


def test_late_file_changes_only_the_partitions_named(tmp_path: Path) -> None:
    truth = small(tmp_path)
    _, old = found_by_oracle(tmp_path, truth)
    truth = late_file(tmp_path, truth)
    _, new = found_by_oracle(tmp_path, truth)
    records = {each.coordinate: each for each in read(tmp_path, truth)[0]}
    assert truth.repair is not None
    changed = {
        "duplicate_events": {day(records[each].event_time) for each in new.duplicates.keys() ^ old.duplicates.keys()},
        "deduplicated_events": {day(each.event_time) for each in set(new.deduplicated) ^ set(old.deduplicated)},
        "sessions": {
            day(started_at)
            for _, started_at, *_ in {(e.identity, e.started_at, e.ended_at) for e in new.sessions}
            ^ {(e.identity, e.started_at, e.ended_at) for e in old.sessions}
        },
    }
    for table, days in changed.items():
        assert {each.date().isoformat() for each in days} == truth.repair.partitions[table]
    assert len(truth.repair.partitions["raw_events"]) == 3


def test_score_tells_found_from_expected(tmp_path: Path) -> None:
    truth = small(tmp_path)
    found, _ = found_by_oracle(tmp_path, truth)
    visit = next(iter(truth.sessions))
    broken = replace(
        found,
        duplicates=found.duplicates - 1,
        rejected={**found.rejected, "damaged_file": 1},
        sessions={key: value for key, value in found.sessions.items() if key != visit},
    )
    wrong = {line.name.strip() for line in score(broken, truth) if not line.right}
    assert {"duplicates", "rejected: damaged_file", "sessions", "equal in user, start, end, events"} <= wrong


def test_a_renamed_session_shows_in_the_score_of_the_repair(tmp_path: Path) -> None:
    truth = small(tmp_path)
    before, _ = found_by_oracle(tmp_path, truth)
    truth = late_file(tmp_path, truth)
    after, _ = found_by_oracle(tmp_path, truth)
    untouched = next(iter(before.sessions.keys() & after.sessions.keys()))
    renamed = replace(after, sessions={**after.sessions, untouched: "another id"})
    assert {line.name for line in score_repair(before, renamed, truth) if not line.right} >= {
        "session ids kept",
        "new session ids",
    }


def test_scoring_a_repair_needs_a_late_file(tmp_path: Path) -> None:
    truth = small(tmp_path)
    found, _ = found_by_oracle(tmp_path, truth)
    with pytest.raises(ValueError, match="no late file"):
        score_repair(found, found, truth)


def test_stream_file_is_accepted_and_names_the_clicks(tmp_path: Path) -> None:
    truth = small(tmp_path)
    stream = load_stream(stream_file(tmp_path, truth))
    assert stream.name == "clicks"
    assert stream.partitions.start == truth.start
    assert Rules.of(stream).timeout == RULES.timeout
    assert stream.late.grace == GRACE
    assert sorted(stream.files.root.glob(stream.files.pattern)) == sorted((tmp_path / "clicks").iterdir())
