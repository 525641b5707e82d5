"""Work in Spark's Python workers."""

import gc
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import cast
from zipimport import zipimporter

import pyarrow as pa
from pyspark.cloudpickle import dumps
from pyspark.sql import SparkSession, functions as F

_NEW_OBJECTS = 100_000
# The last is Python's, and not the OutOfMemoryError of Java.
_WORKER_ENDED = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure|\bMemoryError")


class InProcess:
    """In the place of a Spark session: tasks are done in this process, one after the other.

    For tests of many small histories; whatever asks Spark itself (upkeep, `verify`, reading as a DataFrame) fails.
    """


def tasks_at_once(spark: SparkSession) -> int | None:
    """How many tasks run at the same time, where one machine does all of them; None of a cluster, which may grow."""
    if isinstance(spark, InProcess):
        return None
    found = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\d+)?\])?", spark.conf.get("spark.master", None) or "")
    if not found:
        return None
    return len(os.sched_getaffinity(0)) if found[1] == "*" else int(found[1] or 1)


def on_workers(spark: SparkSession, tasks: Sequence[bytes], run: Callable[[bytes], bytes]) -> list[bytes]:
    """What `run` makes of each task, in any order; each is a task of Spark, and is sent to one worker only."""
    if not tasks:
        return []
    if isinstance(spark, InProcess):
        return [run(task) for task in tasks]
    # Spark Connect knows no RDDs. Elsewhere they spare the cold start of Spark's SQL, three seconds, and planning.
    send = _by_rdd if isinstance(spark, SparkSession) else _by_sql
    return send(spark, tasks, run)


def has_ended_worker(error: Exception) -> bool:
    """Whether an error of Spark says that work ended a worker, or that one ran out of memory."""
    return _WORKER_ENDED.search(str(error)) is not None


def _by_rdd(spark: SparkSession, tasks: Sequence[bytes], run: Callable[[bytes], bytes]) -> list[bytes]:
    packed = dumps(run)

    def each(task: bytes) -> bytes:
        return _unpacked(packed)(task)

    return spark.sparkContext.parallelize(tasks, len(tasks)).map(each).collect()


def _by_sql(spark: SparkSession, tasks: Sequence[bytes], run: Callable[[bytes], bytes]) -> list[bytes]:
    packed = dumps(run)

    def each(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        work = _unpacked(packed)
        for batch in batches:
            for task in batch.column(0):
                yield pa.RecordBatch.from_pydict({"done": pa.array([work(task.as_py())], pa.binary())})

    # Joined and not captured by the function: each worker would receive all tasks.
    sent = spark.createDataFrame(list(enumerate(tasks)), "id long, task binary")
    numbers = spark.range(0, len(tasks), 1, numPartitions=len(tasks))
    done = numbers.join(F.broadcast(sent), "id").select("task").mapInArrow(each, "done binary")
    return [row.done for row in done.collect()]


def _unpacked(packed: bytes) -> Callable[[bytes], bytes]:
    """The work that was sent, in a worker that can import what it takes."""
    _be_somewhere()
    work = cast("Callable[[bytes], bytes]", pickle.loads(packed))
    prepare_worker()
    return work


def prepare_worker() -> None:
    """What is to be done before each task, once all that it takes is imported, lest Python fails or is busy."""
    _be_somewhere()
    _look_for_garbage_less_often()
    # Spark has Python look for new modules before each task, and Python then reads the directories of Spark's own two
    # archives anew: a tenth of a second and more, which is most of what a small task costs. So it forgets them, until
    # it imports from them again.
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


def _be_somewhere() -> None:
    """Spark removes the folder of a session that was idle for half an hour; its new workers are still in it.

    Libraries that look for their settings there cannot even be imported then.
    """
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        os.chdir(os.sep)


@cache
def _look_for_garbage_less_often() -> None:
    """Records are many small objects and no garbage in cycles.

    Python's collector looks through the new ones again and again, and through all modules with them: that took longer
    than to decode the records. Spark collects garbage after each task, too, and modules that are not frozen by then
    cost each a fiftieth of a second.
    """
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
