"""The records of one file lie in so many partitions and no more; the others are kept, rejected, and can be replayed."""

from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from dedup_platform.ingest.partition_limit import within_limit
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream
from dedup_platform.tables import RAW_EVENTS, SESSIONS
from dedup_platform.testing import HeldClock, lay_out, light_platform, make_stream, record, utc, write_batch
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.lives.replaced import replaced

START = utc("2024-03-01T00:30")
HOUR = timedelta(hours=1)
MOST = 3
REASON = f"too_many_partitions:{MOST}"


class Hours:
    """A stream of hours whose files may have records in three of them."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        made = make_stream(folder, start="2024-03-01", granularity="hour")
        self.stream: Stream = made.model_copy(
            update={"source": made.source.model_copy(update={"max_partitions": MOST})}
        )

    @property
    def platform(self) -> Platform:
        return light_platform(self.home, self.stream, HeldClock(utc("2024-06-01")))

    def deliver(self, name: str, *hours: int) -> None:
        times = [START + hour * HOUR for hour in hours]
        events = [record("a", f"{name}{number}", at, at, page="/", quantity=1) for number, at in enumerate(times)]
        write_batch(self.stream, lay_out(events, f"{name}.json"))

    def rows(self) -> list[tuple[str, int, datetime | None, str | None]]:
        found = self.platform.lake.catalog.load_table(self.stream.name, RAW_EVENTS).scan().to_arrow().to_pylist()
        return sorted(
            (row["source"], row["source_offset"], row["event_time"], row["rejection_reason"]) for row in found
        )


@pytest.fixture
def hours(tmp_path: Path) -> Hours:
    return Hours(tmp_path)


def test_those_in_further_partitions_are_rejected_and_come_by_a_replay(hours: Hours) -> None:
    with replaced(has_spark=False):
        hours.deliver("much", 0, 5, 0, 9, 7, 5, 7, 0)
        hours.deliver("little", 0, 20, 21)
        hours.platform.ingest(hours.stream.name)
        hours.platform.repair(hours.stream.name)
        found = hours.rows()
        assert [reason for source, _, _, reason in found if source == "much.json"] == [
            *[None] * 4,
            REASON,
            None,
            REASON,
            None,
        ]
        assert [reason for source, _, _, reason in found if source == "little.json"] == [None] * 3
        assert all((time is None) == (reason is not None) for _, _, time, reason in found)
        assert wrong_rows(hours.platform, hours.stream.name) == []

        hours.platform.rejected.replay(hours.stream.name)
        hours.platform.repair(hours.stream.name)
        assert {reason for *_, reason in hours.rows()} == {None}
        assert wrong_rows(hours.platform, hours.stream.name) == []
        assert hours.platform.rows(hours.stream.name, SESSIONS) == 6


def test_at_the_limit_nothing_is(hours: Hours) -> None:
    with replaced(has_spark=False):
        hours.deliver("enough", 3, 1, 2, 1, 3)
        hours.platform.ingest(hours.stream.name)
        assert [reason for *_, reason in hours.rows()] == [None] * 5


@pytest.mark.parametrize("frame", [1, 7, 95, 1000])
def test_every_ten_records_may_lie_in_one_whatever_frames_they_come_in(hours: Hours, frame: int) -> None:
    """Ninety in six hours may lie in nine; then it is full, for hours that were not seen before."""
    in_hours = [*(number // 15 for number in range(90)), 6, 7, 8, 9, 10, 0, 9, 8]
    rows = pl.DataFrame(
        {
            "source": "a.json",
            "source_partition": 0,
            "source_offset": range(len(in_hours)),
            "event_time": [START + hour * HOUR for hour in in_hours],
            "rejection_reason": pl.Series([None] * len(in_hours), dtype=pl.String),
            **dict.fromkeys(("entity_id", "event_id", *hours.stream.attributes)),
        }
    )
    limited = pl.concat(within_limit((rows[at : at + frame] for at in range(0, rows.height, frame)), hours.stream))
    refused = limited.filter(pl.col("rejection_reason") == REASON)
    assert refused["source_offset"].to_list() == [93, 94, 96]
    assert refused["event_time"].null_count() == limited["event_time"].null_count() == 3
