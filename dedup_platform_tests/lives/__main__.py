"""`python -m dedup_platform_tests.lives --seeds 0..300`: of each life that goes wrong, say the shortest program."""

import argparse
import atexit
import gc
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path

from pyspark.sql import SparkSession

from dedup_platform.settings import Settings
from dedup_platform.spark.session import spark_session
from dedup_platform_tests.lives import Op, live, program, shrunk
from dedup_platform_tests.lives.program import LENGTH

MEMORY = Path("/dev/shm")
"""A folder in memory, where the machine has one: a life has thousands of files put on the disk."""


def failure(seed: int, ops: Sequence[Op], brokers: str | None = None, spark: SparkSession | None = None) -> str | None:
    """What goes wrong in this life; None if nothing does."""
    folder = Path(tempfile.mkdtemp(prefix="life", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        live(folder, seed, ops, brokers, spark)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return None


def judged(
    seed: int, brokers: str | None = None, length: int = LENGTH, spark: SparkSession | None = None
) -> tuple[int, str | None]:
    """A seed and, if its life went wrong, the shortest program that does."""
    ops = program(seed, length)
    what = failure(seed, ops, brokers, spark)
    if what is None:
        return seed, None
    kind = what.partition(":")[0]
    short = shrunk(ops, lambda fewer: (failure(seed, fewer, brokers, spark) or "").startswith(kind))
    lines = "\n".join(f"    {op}" for op in short)
    return seed, f"{failure(seed, short, brokers, spark) or what}\n{lines}"


def judged_on_spark(seed: int, brokers: str | None, length: int) -> tuple[int, str | None]:
    """The same on the Spark of this process."""
    return judged(seed, brokers, length, _spark())


@cache
def _spark() -> SparkSession:
    home = Path(tempfile.mkdtemp(prefix="spark"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return spark_session(Settings(home=home, spark_master="local[1]"))


def look_for_garbage_less_often() -> None:
    """Nearly all that a life makes is gone at its end, and little of it is in cycles."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


def main() -> int:
    """Exit status 1 if any life went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0..100", help="FIRST..END")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--length", type=int, default=LENGTH, help="operations in a life, behind its beginning")
    parser.add_argument("--brokers", default=None, help="host:port of a Kafka: records come by topics instead of files")
    parser.add_argument("--spark", action="store_true", help="Spark does the work, a process each: ten times as long")
    options = parser.parse_args()
    first, _, end = options.seeds.partition("..")
    live_one = judged_on_spark if options.spark else judged
    started, wrong = time.monotonic(), 0
    with ProcessPoolExecutor(options.processes, initializer=look_for_garbage_less_often) as pool:
        for seed, what in pool.map(
            partial(live_one, brokers=options.brokers, length=options.length), range(int(first), int(end))
        ):
            if what:
                wrong += 1
                print(f"seed {seed}: {what}", flush=True)  # noqa: T201
            if (done := seed + 1 - int(first)) % 500 == 0:
                print(f"{done} lives, {wrong} went wrong", flush=True)  # noqa: T201
    seconds = time.monotonic() - started
    print(f"{int(end) - int(first)} lives, {wrong} went wrong, {seconds:.0f} s")  # noqa: T201
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
