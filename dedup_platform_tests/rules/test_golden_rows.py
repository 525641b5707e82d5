"""The rows that each version of the rules gives, kept in a file: who changes a rule must raise its version.

Cells are stale when the fingerprint of what decides their rows is another one, and a changed rule is in it by its
version alone. After a change that was meant: raise the version in `rules/fingerprints.py`, delete `golden_rows.json`
and run this test once, which writes it anew.
"""

import json
import math
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dedup_platform.rules import fingerprints
from dedup_platform.rules.fingerprints import fingerprint
from dedup_platform.stream import Stream
from dedup_platform.tables import DEDUPLICATED_EVENTS, DERIVED, DUPLICATE_EVENTS, SESSION_FRAGMENTS, SESSIONS
from dedup_platform.testing import (
    HeldClock,
    Rules,
    histories,
    lay_out,
    light_platform,
    make_stream,
    record,
    utc,
    write_batch,
)
from dedup_platform.testing.comparison import digest, published_rows, row_texts
from dedup_platform.testing.judge import wrong_rows

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


NOON = utc("2024-01-02T12:00")
ARRIVED = utc("2024-01-05")
JUST = timedelta(microseconds=1)
HOUR, TIMEOUT = timedelta(hours=1), timedelta(minutes=30)
TOO_LARGE = Decimal("9" * 36 + ".99")
NO_NUMBER = [(HOUR - 2 * JUST, math.nan), (HOUR - JUST, 1.0), (HOUR, 2.0), (HOUR + JUST, None)]
"""A session of two partitions, of which one has a NaN."""


def of_random_history(folder: Path) -> tuple[Stream, datetime]:
    stream = make_stream(folder, "random", buckets=2)
    history = histories(11, 40, Rules.of(stream), stream.partitions.start)
    for batch in history.batches:
        write_batch(stream, batch)
    return stream, history.now


def of_edges(folder: Path) -> tuple[Stream, datetime]:
    """What is decided by the last microsecond, a tie, or a value that is like no other."""
    kinds = {"amount": "decimal(38,2)", "score": "double", "page": "string"}
    functions = ("sum", "min", "max", "first", "last")
    told = {f"{function}_{kind}": (function, kind) for function in functions for kind in kinds}
    told = {name: each for name, each in told.items() if name not in ("sum_page", "sum_score")}
    stream = make_stream(folder, "edges", granularity="hour", window="1h", attributes=kinds, aggregates=told)
    windows = [("w", 0 * HOUR), ("w", HOUR), ("w", 2 * HOUR + JUST), ("x", -HOUR), ("x", 0 * HOUR), ("x", HOUR - JUST)]
    gaps = [0 * HOUR, TIMEOUT - JUST, 2 * TIMEOUT - JUST, 3 * TIMEOUT, 4 * TIMEOUT, 5 * TIMEOUT + JUST]
    values = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-300, None]
    first = [
        *(record("windows", name, NOON + after, ARRIVED, page="p") for name, after in windows),
        *(record("gaps", f"{number}", NOON + after, ARRIVED) for number, after in enumerate(gaps)),
        *(record("time alone", "t", NOON + number * JUST, ARRIVED, page="p") for number in range(2)),
        *(record("page alone", "p", NOON, ARRIVED, page=page) for page in ("p", "q", None)),
        *(record("doubles", f"{each}", NOON, ARRIVED, score=each) for each in values),
        *(record("sums", f"{each}", NOON, ARRIVED, amount=TOO_LARGE) for each in range(2)),
        *(record("one more", f"{each}", NOON, ARRIVED, amount=Decimal(each)) for each in (1, -2)),
        *(record(who, "i", NOON, ARRIVED) for who in (None, "0:", "", "e", "\u00e9", "\uffff", "\U0001f600")),
        *(record("no number", f"{at}", NOON + at, ARRIVED, score=each) for at, each in NO_NUMBER),
        record("over midnight", "m", utc("2024-01-02T23:59:59.999999"), ARRIVED),
        record("over midnight", "n", utc("2024-01-03T00:29:59.999999"), ARRIVED),
    ]
    write_batch(stream, lay_out(first, "first.json"))
    again = [record("windows", "w", NOON + HOUR, ARRIVED, page="p"), record("gaps", "0", NOON, ARRIVED - JUST)]
    write_batch(stream, lay_out(again, "a.json"))
    return stream, utc("2024-02-01")


STREAMS = {"random": of_random_history, "edges": of_edges}


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return make_stream(tmp_path)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Stream, table -> the version of its rule and the rows that it gives now."""
    return {name: described(tmp_path_factory.mktemp(name), make) for name, make in STREAMS.items()}


def described(folder: Path, make: Callable[[Path], tuple[Stream, datetime]]) -> dict[str, Any]:
    stream, now = make(folder)
    platform = light_platform(folder / "home", stream, HeldClock(now))
    platform.ingest(stream.name)
    platform.repair(stream.name)
    assert wrong_rows(platform, stream.name) == []
    rows = published_rows(platform, stream.name)
    return {table: _described(table, row_texts(rows[table])) for table in RULES}


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
@pytest.mark.parametrize("name", STREAMS)
def test_a_rule_gives_the_rows_of_its_version(
    name: str, table: str, found: dict[str, dict[str, Any]], golden: dict[str, dict[str, Any]]
) -> None:
    assert found[name][table]["rows"] > SHOWN
    assert found[name][table] == golden[name][table], f"other rows need another {RULES[table]}"


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
