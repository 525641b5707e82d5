"""Work tells how far it has come: to whoever listens in its thread, and to nobody else."""

import time
from threading import Thread

from pyspark.sql import SparkSession

from dedup_platform.spark.watching import note_session, tell, watching

Heard = list[tuple[str, int, int]]


def test_it_is_told_in_the_thread_that_listens() -> None:
    heard: Heard = []
    tell("files", 1, 9)
    with watching(lambda *told: heard.append(told)):
        tell("files", 2, 9)
        other = Thread(target=tell, args=("files", 3, 9))
        other.start()
        other.join()
    tell("files", 4, 9)
    assert heard == [("files", 2, 9)]


def test_tasks_of_spark_are_counted_while_they_are_at_work(spark: SparkSession) -> None:
    heard: Heard = []
    note_session(spark)
    with watching(lambda *told: heard.append(told)):
        spark.sparkContext.parallelize(range(6), 6).foreach(lambda _: time.sleep(0.5))
    assert {(unit, total) for unit, _, total in heard} == {("tasks", 6)}
    done = [number for _, number, _ in heard]
    assert done == sorted(done)
    assert len(set(done)) > 1, "it moves"
