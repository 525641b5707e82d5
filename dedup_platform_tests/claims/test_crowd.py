"""Many processes ask for a few partitions and are killed: one owner at a time, and no request is forgotten."""

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from dedup_platform.planning.claims import Partitions
from dedup_platform.planning.moments import utc_now
from dedup_platform.platform.claims import Turn
from dedup_platform.settings import ENV_PREFIX
from dedup_platform.tables import SESSIONS
from dedup_platform.testing import light_platform, make_stream
from dedup_platform.testing.servers import PostgresServer
from dedup_platform_tests.claims.crowd import PARTITIONS, requests
from dedup_platform_tests.servers import new_name

FEW, MANY = (5, 80), (20, 1000)
"""Processes and requests."""
PATIENCE = 300


@pytest.fixture(params=["SQLite", "Postgres"])
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of whoever finds the control database there."""
    if request.param == "Postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        monkeypatch.setenv(f"{ENV_PREFIX}CONTROL_URI", server.create_database(new_name()))
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def test_one_owner_at_a_time_and_no_request_forgotten(
    environment: dict[str, str], tmp_path: Path, thorough: bool
) -> None:
    stream, home, folder = make_stream(tmp_path), tmp_path / "home", tmp_path / "told"
    folder.mkdir()
    processes, wanted = MANY if thorough else FEW
    asked = [home, stream.origin, folder, processes, wanted, 7]
    done = subprocess.run(
        [sys.executable, "-m", "dedup_platform_tests.claims.crowd", *map(str, asked)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > processes / 2
    seen, works, accepted = defaultdict[int, int](int), defaultdict[int, int](int), defaultdict[int, int](int)
    begun = 0
    words = [line.split() for line in (folder / "log").read_text().splitlines()]
    for what, partition, number in ((what, int(partition), int(number)) for what, partition, number in words):
        assert what != "shared", f"two owners were at {partition}"
        if what == "begun":
            begun += 1
        elif what == "done":
            works[partition] += 1
            seen[partition] = max(seen[partition], number)
        else:
            accepted[partition] = max(accepted[partition], number)
    assert "left" in {what for what, _, _ in words}
    assert not thorough or begun > sum(works.values()), "nobody was killed at work"

    platform = light_platform(home, stream, utc_now)
    found: list[Partitions] = []

    def take(turn: Turn) -> None:
        found.append(turn.partitions)

    left = [each.partitions for each in platform.claims.of(stream.name).get(SESSIONS, ())]
    for partition, number in accepted.items():
        is_left = any(partition in each for each in left)
        assert seen[partition] >= number or is_left, f"of {number} requests for {partition} {seen[partition]} were seen"
        size = (folder / f"requests{partition}").stat().st_size
        assert works[partition] <= size, f"{works[partition]} works for {size} requests"
    every = Partitions(frozenset(range(PARTITIONS)))
    platform.claims.work(stream, SESSIONS, every, take)
    assert found == [every], "somebody who is dead is waited for"
    assert platform.claims.of(stream.name) == {}
    assert sum(works.values()) < requests(folder)
