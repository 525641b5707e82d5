"""Upkeep by Spark's own procedures leaves what points hold."""

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dedup_platform.errors import ConflictError
from dedup_platform.maintenance import procedures
from dedup_platform.tables import RAW_EVENTS, SESSIONS
from dedup_platform.testing import temporary_platform
from dedup_platform_tests.changes.test_feeds import EVENTS
from dedup_platform_tests.lives.points import PointLaws
from dedup_platform_tests.lives.replaced import replaced
from dedup_platform_tests.lives.state import Reader
from dedup_platform_tests.platform.test_points import Pointed


def test_snapshots_of_points_are_not_expired(tmp_path: Path, spark: SparkSession) -> None:
    pointed = Pointed(tmp_path)
    pointed.keep(timedelta(days=60))
    with replaced(has_spark=False):
        for number in range(3):
            pointed.take_in(pointed.event(f"{number}", 20 * number))
        # Commits of which no point is.
        pointed.deliver(70)
        pointed.take_in(pointed.event("last", 80))
    points = pointed.platform.points.complete(EVENTS)
    pointed.clock.advance(timedelta(days=30))
    with replaced(has_spark=True):
        platform = temporary_platform(pointed.home, pointed.stream, spark=spark, clock=pointed.clock)
        done = {each.table: each for each in platform.maintain(EVENTS)}
        assert done[RAW_EVENTS].snapshots_expired > 0
        with pytest.raises(ConflictError, match="another writer committed during expire_snapshots"):
            procedures.expire_snapshots(platform.lake, pointed.stream, SESSIONS, [points[0].snapshots[SESSIONS]])
    assert platform.points.complete(EVENTS)[: len(points)] == points
    makers = pointed.laws_of_points._makers
    pointed.laws_of_points = PointLaws(Reader())
    for point in platform.points.complete(EVENTS):
        makers.setdefault((point.name, frozenset(point.snapshots.items())), pointed.stream)
    pointed.laws_of_points._makers = makers
    pointed.judge()
    assert pointed.laws_of_points.judged >= len(points), "each can be read"
