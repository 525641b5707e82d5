"""How many tasks run at once, as far as Spark's settings tell."""

import os
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from dedup_platform.spark.workers import InProcess, tasks_at_once

CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[3,4]", 3),
        ("local[*]", CORES),
        ("local[*,2]", CORES),
        ("local-cluster[2,1,1024]", None),
        ("spark://127.0.0.1:7077", None),
        (None, None),
    ],
)
def test_one_machine_tells_and_a_cluster_does_not(master: str | None, expected: int | None) -> None:
    settings: Any = SimpleNamespace(get=lambda name, default: master if name == "spark.master" else default)
    assert tasks_at_once(cast("SparkSession", SimpleNamespace(conf=settings))) == expected


def test_a_session_tells_its_master(spark: SparkSession) -> None:
    assert tasks_at_once(spark) == 2


def test_work_in_this_process_has_no_spark_to_ask() -> None:
    assert tasks_at_once(cast("SparkSession", InProcess())) is None
