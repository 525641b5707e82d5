"""Faults planted in the rules of the platform: random lives must find every one of them."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest

from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.snapshots import head
from dedup_platform.ledger import fold
from dedup_platform.planning.cells import Cell, neighbours
from dedup_platform.planning.linking import WidenedSessions
from dedup_platform.rules import deduplicated, fragments, sessions
from dedup_platform.stream import Stream
from dedup_platform_tests.lives.__main__ import failure
from dedup_platform_tests.lives.program import program

LIVES = 200
"""At most so many lives until a fault is found."""
TICK = timedelta(microseconds=1)


def _shorter(stream: Stream, part: str, name: str) -> Stream:
    """A stream whose window or timeout is a microsecond less, as if its end were open."""
    rules = getattr(stream, part)
    less = max(getattr(rules, name) - TICK, timedelta(0))
    return stream.model_copy(update={part: rules.model_copy(update={name: less})})


def _open_window(cells: Any, around: Any, stream: Stream, real: Any = deduplicated.deduplicate) -> Any:
    return real(cells, around, _shorter(stream, "deduplicate", "window"))


def _open_gap(events: pl.DataFrame, stream: Stream, real: Any = fragments.fragment) -> Any:
    return real(events, _shorter(stream, "sessions", "timeout"))


def _open_chains(found: pl.DataFrame, stream: Stream, real: Any = sessions.chained) -> Any:
    return real(found, _shorter(stream, "sessions", "timeout"))


def _later_arrivals(cell: Any, facts: Any, around: int) -> Any:
    first = facts.arrival_min.get(cell)
    return (each for each in neighbours(cell, around) if first and first < facts.arrival_max.get(each, first))


def _main(lake: Lakehouse, stream: Stream, table: str) -> int:
    return head(lake.catalog.load_table(stream.name, table)).snapshot_id


def _last_wins(rivals: pl.DataFrame, stream: Stream, real: Any = deduplicated._beaten) -> Any:
    return real(rivals.with_columns(source=pl.col("source").reverse()), stream)


def _no_news_of_what_goes(gathered: Any, change: Any, *args: Any, real: Any = fold.Fold.add) -> None:
    gathered.resize(change) if change.sign < 0 else real(gathered, change, *args)


FAULTS: Mapping[str, Mapping[str, Any]] = {
    "a run of sessions takes in some of what waits in a bucket": {
        "dedup_platform.recompute.build.with_whole_buckets": lambda cells, _: cells
    },
    "sessions as they were are not looked at": {
        "dedup_platform.recompute.build.spans_before": lambda *_: [],
        # Without what is done where totals differ: all cells are built anew.
        "dedup_platform.recompute.build.Recompute._known_cells": lambda *_: frozenset({Cell(10**6, 0)}),
    },
    "chains of fragments are not followed": {
        "dedup_platform.recompute.build.with_sessions": lambda changed, *_: WidenedSessions(changed, changed)
    },
    "what is read for a chain ends with the changed cells": {"dedup_platform.recompute.build.spans_now": lambda *_: []},
    "what a record had beaten that went is not linked": {
        "dedup_platform.planning.linking._with_disturbed": lambda cells, _: cells
    },
    "cells that share a key are not linked": {"dedup_platform.recompute.build.links_of_keys": lambda *_: []},
    "a replay tells of no cell that it disturbed": {
        "dedup_platform.ledger.fold.Fold.disturb": lambda *_: None,
        "dedup_platform.replay.rejected.Rejected._disturbed": lambda *_: set(),
    },
    "an arrival at the same time as the newcomer's does not matter": {
        "dedup_platform.planning.linking.linked_cells": _later_arrivals
    },
    "what nothing proves counts as built": {"dedup_platform.ledger.proofs._lose": lambda *_: None},
    "other settings make nothing stale": {"dedup_platform.ledger.ledger.read_outdated": lambda *_: iter(())},
    "a cell that was emptied is no news": {"dedup_platform.ledger.fold.Fold.add": _no_news_of_what_goes},
    "a chain ends with the slice that is read": {
        "dedup_platform.rules.sessions._may_go_on": lambda found, *_: pl.repeat(False, found.height, eager=True)
    },
    "readers do not follow the pair of duplicates and events": {
        "dedup_platform.lake.lakehouse.Lakehouse.current": _main
    },
    "duplicates that a dead writer left are not taken up": {
        "dedup_platform.lake.lakehouse.Lakehouse.unpaired_cells": lambda *_: frozenset()
    },
    "fragments made ahead are taken whatever the events are": {
        "dedup_platform.recompute.prebuilt._paths": lambda _: frozenset()
    },
    "files that were read are forgotten": {"dedup_platform.ledger.fold._write_files": lambda *_: None},
    "the window is open at its end": {"dedup_platform.recompute.tasks.deduplicate": _open_window},
    "a gap as long as the timeout splits within a partition": {"dedup_platform.recompute.tasks.fragment": _open_gap},
    "a gap as long as the timeout splits between partitions": {"dedup_platform.rules.sessions.chained": _open_chains},
    "not the first arrival wins": {"dedup_platform.rules.deduplicated._beaten": _last_wins},
    "a retired session is merged into the first that overlaps it": {
        "dedup_platform.rules.changes._where_first_arrived": lambda retired: retired
    },
    "upkeep does not say again what it makes unprovable": {
        "dedup_platform.maintenance.upkeep.Maintenance._settle": lambda *_: None
    },
    "an id that is there again stays an alias": {
        "dedup_platform.changes.aliases._Fold._matters": lambda _, __, changes: "delete" in changes["_change_type"]
    },
    "of merges only the first is followed": {"dedup_platform.rules.aliases._twice_as_far": lambda paths: paths},
    "what was counted of a cell is kept though its rows changed": {
        "dedup_platform.ledger.fold.Fold._forget_figures": lambda *_: None
    },
    "a swap of buckets names the input's newest snapshot": {
        "dedup_platform.maintenance.buckets.Rebucketing._is_stale": lambda *_: False
    },
}
QUICK = (
    "readers do not follow the pair of duplicates and events",
    "a gap as long as the timeout splits between partitions",
)
"""Those that are planted where time is short."""


def lives_until_found(fault: Mapping[str, Any]) -> int | None:
    """How many lives it takes until one of them goes wrong."""
    with ExitStack() as planted:
        for target, wrong in fault.items():
            planted.enter_context(patch(target, wrong))
        return next((seed + 1 for seed in range(LIVES) if failure(seed, program(seed))), None)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`fault`: all of them where there is time."""
    if "fault" in metafunc.fixturenames:
        metafunc.parametrize("fault", FAULTS if metafunc.config.getoption("--thorough") else QUICK)


def test_every_planted_fault_is_found(fault: str, record_property: Callable[[str, object], None]) -> None:
    started = time.monotonic()
    lives = lives_until_found(FAULTS[fault])
    assert lives, f"{LIVES} lives did not find it"
    record_property("found", f"after {lives} lives, {time.monotonic() - started:.0f} s")
