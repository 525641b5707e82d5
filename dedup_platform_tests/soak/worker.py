"""Starts a process for each line that it reads, and tells its id; its arguments are HOME and STREAM_FILE.

`repair 7` takes in, repairs, and does what else happens to tables, as the number has it; `publish marts topic 8` brings
these sinks up to date. Both go on until they are killed.
"""

import sys
from contextlib import ExitStack
from pathlib import Path
from random import Random
from unittest.mock import patch

from dedup_platform.errors import DedupPlatformError, IncompatibleChangeError
from dedup_platform.lake.snapshots import bucket_count, files_by_cell, head
from dedup_platform.planning.moments import utc_now
from dedup_platform.platform import Platform
from dedup_platform.stream import load_stream
from dedup_platform.tables import RAW_EVENTS, derived
from dedup_platform.testing import light_platform
from dedup_platform_tests.lives import upkeep
from dedup_platform_tests.soak.forks import begun, fork_for_each_line

ROWS = 25
"""In one transaction of a sink."""
UPKEEP, WHOLE, BUCKETS, REDECODE = 0.06, 0.06, 0.04, 0.06
"""How often whoever repairs does something else."""
REPLACED = {
    "dedup_platform.changes.publisher.BATCH_ROWS": ROWS,
    "dedup_platform.maintenance.upkeep.procedures": upkeep,
    "dedup_platform.maintenance.feeds.procedures": upkeep,
}


def work(home: Path, file: Path, line: str) -> None:
    """Do what a line says until the process is killed."""
    kind, *words, number = line.split()
    stream = load_stream(file)
    platform = light_platform(home, stream, utc_now)
    random = Random(number)
    with ExitStack() as stack, done_by(home, kind, *words).open("ab", buffering=0) as done:
        for target, replacement in REPLACED.items():
            stack.enter_context(patch(target, replacement))
        for _ in begun():
            try:
                repair(platform, stream.name, random) if kind == "repair" else publish(platform, stream.name, words)
                done.write(b".")
            except DedupPlatformError as error:
                # A store that is being restarted, or another process that was first.
                sys.stderr.write(f"{line}: {type(error).__name__}: {error}\n")


def done_by(home: Path, *words: str) -> Path:
    """A file with a byte for each time that processes with these words did all that they do for ever."""
    return home.with_name(".".join(words))


def publish(platform: Platform, name: str, sinks: list[str]) -> None:
    for sink in sinks:
        platform.publish(name, sink)


def repair(platform: Platform, name: str, random: Random | None = None) -> None:
    """Take in, repair and publish what waits; with `random`, do also what else may happen to tables."""
    try:
        platform.ingest(name)
        if random:
            disturb(platform, name, random)
        platform.repair(name)
    except IncompatibleChangeError:
        finish_buckets(platform, name)
    platform.publish_changes(name)
    platform.points.make(name)


def settle(platform: Platform, name: str) -> None:
    """Take in, repair and publish all that waits, and nothing else."""
    for _ in range(2):  # at first there may be another number of buckets to finish
        repair(platform, name)
    publish(platform, name, list(platform.stream(name).publish.sinks))


def disturb(platform: Platform, name: str, random: Random) -> None:
    """Upkeep, partitions that somebody wants anew, or another number of buckets."""
    if random.random() < UPKEEP:
        platform.maintain(name)
    if random.random() < WHOLE:
        table = random.choice(derived(platform.stream(name)))
        platform.recompute(name, table, some_partitions(platform, name, random))
    if random.random() < REDECODE:
        platform.rejected.redecode(name, some_partitions(platform, name, random))
    if random.random() < BUCKETS:
        platform.change_buckets(name, random.choice((1, 2, 4)))


def finish_buckets(platform: Platform, name: str) -> None:
    """Somebody was killed who changed the number of buckets: nobody may write until that is done."""
    platform.change_buckets(name, bucket_count(platform.lake.catalog.load_table(name, RAW_EVENTS)))


def some_partitions(platform: Platform, name: str, random: Random) -> list[int]:
    raw = platform.lake.catalog.load_table(name, RAW_EVENTS)
    known = sorted({cell.partition for cell in files_by_cell(raw, head(raw).snapshot_id)})
    return random.sample(known, min(2, len(known)))


if __name__ == "__main__":
    fork_for_each_line(lambda line: work(Path(sys.argv[1]), Path(sys.argv[2]), line))
