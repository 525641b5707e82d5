"""The rows that each version of the rules gives, kept in a file: who changes a rule must raise its version.

Cells are stale when the fingerprint of what decides their rows is another one, and a changed rule is in it by its
version alone. After a change that was meant: raise the version in `rules/fingerprints.py`, delete `golden_rows.json`
and run this test once, which writes it anew.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from dedup_platform.rules import fingerprints
from dedup_platform.rules.fingerprints import fingerprint
from dedup_platform.stream import Stream
from dedup_platform.tables import DEDUPLICATED_EVENTS, DERIVED, DUPLICATE_EVENTS, SESSION_FRAGMENTS, SESSIONS
from dedup_platform.testing import HeldClock, Rules, histories, light_platform, make_stream, write_batch
from dedup_platform.testing.comparison import digest, row_texts
from dedup_platform.testing.lives.state import Reader

GOLDEN = Path(__file__).with_name("golden_rows.json")
RULES = {
    DEDUPLICATED_EVENTS: "DEDUPLICATION_VERSION",
    DUPLICATE_EVENTS: "DEDUPLICATION_VERSION",
    SESSION_FRAGMENTS: "FRAGMENTS_VERSION",
    SESSIONS: "SESSIONS_VERSION",
}
FINGERPRINTS = ["79d8729d38505819", "2809d5970853e1dc", "69755c6e85bf908c"]
"""Of deduplicated events, fragments and sessions of a stream with windows and timeouts of its own."""
SHOWN = 3
"""Of each table so many rows are in the file as they are, for people; the others are in the digest."""


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return make_stream(tmp_path_factory.mktemp("golden"), buckets=2)


@pytest.fixture(scope="module")
def found(stream: Stream, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Table -> the version of its rule and the rows that it gives now."""
    history = histories(11, 40, Rules.of(stream), stream.partitions.start)
    for batch in history.batches:
        write_batch(stream, batch)
    platform = light_platform(tmp_path_factory.mktemp("home"), stream, HeldClock(history.now))
    platform.ingest(stream.name)
    platform.repair(stream.name)
    state = Reader().read(platform, stream)
    assert state
    return {table: _described(table, row_texts(state.all(table))) for table in RULES}


@pytest.fixture(scope="module")
def golden(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    if not GOLDEN.exists():
        GOLDEN.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        pytest.fail(f"{GOLDEN} was not there and is written: look at it, and run again")
    return dict(json.loads(GOLDEN.read_text(encoding="utf-8")))


def _described(table: str, rows: list[str]) -> dict[str, Any]:
    return {
        "version": getattr(fingerprints, RULES[table]),
        "rows": len(rows),
        "sha256": digest(rows),
        "first": [json.loads(row) for row in rows[:SHOWN]],
    }


@pytest.mark.parametrize("table", RULES)
def test_a_rule_gives_the_rows_of_its_version(
    table: str, found: dict[str, dict[str, Any]], golden: dict[str, dict[str, Any]]
) -> None:
    assert found[table]["rows"] > SHOWN
    assert found[table] == golden[table], f"other rows need another {RULES[table]}"


@pytest.mark.parametrize("table", DERIVED)
def test_a_raised_version_makes_the_cells_of_its_table_stale(
    table: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {each: fingerprint(stream, each) for each in DERIVED}
    monkeypatch.setattr(fingerprints, RULES[table], getattr(fingerprints, RULES[table]) + 1)
    assert [each for each in DERIVED if fingerprint(stream, each) != before[each]] == [table]


def test_the_fingerprints_of_a_stream_stay_what_they_are(tmp_path: Path) -> None:
    """Else all cells of all tables there are would be stale after an update."""
    stream = make_stream(tmp_path, granularity="hour", window="36h", timeout="45m")
    assert [fingerprint(stream, table) for table in DERIVED] == FINGERPRINTS
