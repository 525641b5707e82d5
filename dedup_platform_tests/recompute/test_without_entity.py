"""Records without an entity all lie in one cell of their partition: where that is large, it is worked on in shares."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

from dedup_platform import tables
from dedup_platform.planning.cells import NO_ENTITY, Cell
from dedup_platform.platform import Platform
from dedup_platform.recompute import chunks, tasks
from dedup_platform.rules.deduplicated import deduplicate
from dedup_platform.stream import Stream
from dedup_platform.testing import HeldClock, Record, lay_out, light_platform, make_stream, record, utc, write_batch
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.lives.state import Reader

NOW = HeldClock(utc("2030-01-01T00:00"))
EVENTS = "events"
MIDNIGHT = utc("2024-01-02T00:00")
DELIVERED = 300


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each call of the kernel had in memory; a few thousand bytes are too much for one."""
    found = []

    def watched(cells: Mapping[int, pl.DataFrame], around: Mapping[int, pl.DataFrame], stream: Stream) -> Any:
        found.append(sum(each.height for part in (cells, around) for each in part.values()))
        return deduplicate(cells, around, stream)

    monkeypatch.setattr(tasks, "deduplicate", watched)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 2_000)
    return found


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return make_stream(tmp_path, window="2h", timeout="1h")


@pytest.fixture
def platform(tmp_path: Path, stream: Stream) -> Platform:
    return light_platform(tmp_path / "home", stream, NOW)


def delivered(random: Random, entity: str | None = None) -> list[Record]:
    """Each id a few times, hours apart around a midnight."""
    times = (MIDNIGHT + random.randrange(-6, 6) * timedelta(hours=1) for _ in range(DELIVERED))
    return lay_out([record(entity, f"id{random.randrange(DELIVERED // 3)}", time) for time in times], "first.json")


def assert_as_the_oracle_says(platform: Platform, stream: Stream) -> None:
    state = Reader().read(platform, stream)
    assert state is not None
    found = {table: state.all(table) for table in tables.ALL}
    assert found[tables.DUPLICATE_EVENTS]
    assert wrong_rows(platform, stream.name) == []


def files(platform: Platform, stream: Stream, table: str) -> set[str]:
    cells = {Cell(stream.partitions.ordinal(MIDNIGHT), NO_ENTITY)}
    of = platform.lake.files(stream, table, platform.lake.current(stream, table), cells)
    return {file.file_path for found in of.values() for file in found}


def test_copies_find_each_other_in_shares_of_a_large_cell(
    platform: Platform, stream: Stream, judged: list[int]
) -> None:
    write_batch(stream, delivered(Random(1)))
    platform.ingest(EVENTS)
    platform.repair(EVENTS)
    assert_as_the_oracle_says(platform, stream)
    assert len(files(platform, stream, tables.DEDUPLICATED_EVENTS)) > 2
    assert max(judged) < DELIVERED / 2


def test_a_late_copy_changes_its_share_and_loses_no_other(
    platform: Platform, stream: Stream, judged: list[int]
) -> None:
    known = delivered(Random(2))
    write_batch(stream, known)
    platform.ingest(EVENTS)
    platform.repair(EVENTS)
    # It beats what was there: its clock is a little ahead.
    sent = known[0]
    earliest = record(None, sent.event_id, sent.event_time, sent.event_time - timedelta(minutes=5))
    write_batch(stream, lay_out([earliest], "late.json"))
    platform.ingest(EVENTS)
    judged.clear()
    platform.repair(EVENTS)
    assert len(judged) > 1
    assert_as_the_oracle_says(platform, stream)


@pytest.mark.usefixtures("judged")
def test_a_large_cell_in_which_nothing_changes_keeps_its_files(platform: Platform, stream: Stream) -> None:
    write_batch(stream, delivered(Random(3)))
    platform.ingest(EVENTS)
    platform.repair(EVENTS)
    kept = (tables.DEDUPLICATED_EVENTS, tables.DUPLICATE_EVENTS)
    before = [files(platform, stream, table) for table in kept]
    commit = platform.recompute(EVENTS, tables.DEDUPLICATED_EVENTS, [stream.partitions.ordinal(MIDNIGHT)])
    assert commit.cells_checked
    assert not commit.cells_rewritten
    assert [files(platform, stream, table) for table in kept] == before


def test_entities_are_never_cut(platform: Platform, stream: Stream, judged: list[int]) -> None:
    write_batch(stream, delivered(Random(4), "e"))
    platform.ingest(EVENTS)
    platform.repair(EVENTS)
    assert_as_the_oracle_says(platform, stream)
    assert max(judged) >= DELIVERED / 2


def test_shares_hold_every_row_once() -> None:
    rows = pl.DataFrame({"entity_id": [None] * 100, "event_id": [f"{number % 40}" for number in range(100)]})
    shares = [chunks.Share(number, 7)(rows, ["entity_id", "event_id"]) for number in range(7)]
    assert sum(share.height for share in shares) == 100
    ids = [set(share["event_id"]) for share in shares]
    assert sum(map(len, ids)) == 40
