"""Upkeep of feeds by Spark's own procedures: fewer files, the same versions, and still in order."""

from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import polars as pl
from pyspark.sql import SparkSession

from dedup_platform.changes import feeds
from dedup_platform.changes.reading import FeedReader
from dedup_platform.lake.feed_files import feed_files, in_turns
from dedup_platform.sinks import Position
from dedup_platform.tables import SESSION_CHANGES, SESSIONS
from dedup_platform.testing import temporary_platform
from dedup_platform_tests.changes.test_feeds import EVENTS, Followed
from dedup_platform_tests.lives.replaced import replaced

VERSIONS, ENTITIES = 4, 12


def test_small_files_are_put_together_in_the_order_of_their_changes(tmp_path: Path, spark: SparkSession) -> None:
    followed = Followed(tmp_path)
    with replaced(has_spark=False), patch.object(feeds, "FILE_ROWS", 5):
        for number in range(VERSIONS):
            events = (followed.event(f"{number}/{each}", 20 * number, entity=f"e{each}") for each in range(ENTITIES))
            followed.take_in(*events)
            followed.publish()
    before = followed.feed()
    followed.clock.advance(timedelta(days=30))
    with replaced(has_spark=True):
        platform = temporary_platform(followed.home, followed.stream, spark=spark, clock=followed.clock)
        done = {each.table: each for each in platform.maintain(EVENTS)}
    assert done[SESSION_CHANGES].files_compacted > VERSIONS
    files = feed_files(followed.platform.lake.catalog.load_table(EVENTS, SESSION_CHANGES))
    assert len(files) < done[SESSION_CHANGES].files_compacted
    assert {len(group) for group in in_turns(files, (0, 0))} == {1}
    assert followed.feed() == before
    reader = FeedReader(followed.platform.lake, followed.stream, SESSIONS, "any")
    found = pl.concat(list(reader.changes(Position("feed", 2))))["_commit_version"]
    assert found.unique(maintain_order=True).to_list() == [3, 4]
