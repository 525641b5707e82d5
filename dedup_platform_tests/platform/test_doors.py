"""What every door of a platform says of a stream that it does not know, or that has no tables yet."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dedup_platform import tables
from dedup_platform.errors import UnknownStreamError
from dedup_platform.platform import Platform
from dedup_platform.testing import HeldClock, light_platform, make_stream, utc

NAME = "events"
SESSIONS, RAW = tables.SESSIONS, tables.RAW_EVENTS
CALLS: dict[str, Callable[[Platform, str], object]] = {
    "ingest": lambda platform, name: platform.ingest(name),
    "plan": lambda platform, name: platform.plan(name),
    "status": lambda platform, name: platform.status(name).tables,
    "repair": lambda platform, name: platform.repair(name),
    "maintain": lambda platform, name: platform.maintain(name),
    "verify": lambda platform, name: platform.verify(name),
    "rows": lambda platform, name: platform.rows(name, RAW),
    "completeness": lambda platform, name: platform.completeness(name).states,
    "points.make": lambda platform, name: platform.points.make(name),
    "points.newest": lambda platform, name: platform.points.newest(name),
    "points.complete": lambda platform, name: platform.points.complete(name),
    "points.drop_old": lambda platform, name: platform.points.drop_old(name),
    "source.waiting": lambda platform, name: platform.source.waiting(name).items,
    "source.look": lambda platform, name: platform.source.look(name).items,  # type: ignore[union-attr]
    "source.accept_batch": lambda platform, name: platform.source.accept_batch(name),
    "rejected.count": lambda platform, name: platform.rejected.count(name),
    "rejected.reasons": lambda platform, name: platform.rejected.reasons(name),
    "rejected.first": lambda platform, name: platform.rejected.first(name),
    "rejected.newest_batch": lambda platform, name: platform.rejected.newest_batch(name),
    "rejected.replay": lambda platform, name: platform.rejected.replay(name).snapshot_id,
    "rejected.drop": lambda platform, name: platform.rejected.drop(name).snapshot_id,
    "rejected.redecode": lambda platform, name: platform.rejected.redecode(name, [19724]).snapshot_id,
    "change_buckets": lambda platform, name: platform.change_buckets(name, 4),
    "recompute": lambda platform, name: platform.recompute(name, SESSIONS, [19724]),
    "recompute_stale": lambda platform, name: platform.recompute_stale(name, SESSIONS),
}
NOTHING: tuple[object, ...] = (None, 0, False, [], (), {})


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    folder: Path = tmp_path_factory.mktemp("doors")
    return light_platform(folder / "home", make_stream(folder), HeldClock(utc("2024-02-01")))


@pytest.mark.parametrize("door", CALLS)
def test_an_unknown_stream_is_refused_with_those_that_are_known(door: str, platform: Platform) -> None:
    with pytest.raises(UnknownStreamError, match=f"nobody.*{NAME}"):
        CALLS[door](platform, "nobody")


@pytest.mark.parametrize("door", CALLS)
def test_of_a_stream_without_tables_there_is_nothing(door: str, platform: Platform) -> None:
    found = CALLS[door](platform, NAME)
    if door in ("recompute", "recompute_stale"):
        assert found.snapshot_id is None  # type: ignore[attr-defined]
    else:
        assert found in NOTHING
