"""Commits that replace files, on tables with a past."""

from pathlib import Path

from dedup_platform import tables
from dedup_platform.replay.rewrite import Choice
from dedup_platform.testing import HeldClock, lay_out, light_platform, make_stream, record, utc, write_batch
from dedup_platform.testing.judge import wrong_rows

NAME = "events"


def test_manifests_of_files_that_are_all_gone_are_in_nobodys_way(tmp_path: Path) -> None:
    """Files of rejected records keep the partition spec of before: of its manifests nothing may be left."""
    stream = make_stream(tmp_path, buckets=0)
    platform = light_platform(tmp_path / "home", stream, HeldClock(utc("2024-02-01")))
    for name in ("a", "b", "c"):
        write_batch(stream, lay_out([record("e", name, utc("2024-01-02"))], f"{name}.json"))
        (stream.files.root / f"{name}.bad.json").write_text("{")
        platform.ingest(NAME)
    platform.repair(NAME)
    platform.change_buckets(NAME, 2)
    for name in ("a", "b", "c"):
        platform.rejected.drop(NAME, Choice(source=f"*{name}.bad.json"))
        write_batch(stream, lay_out([record("e", name, utc("2024-01-03"))], f"{name}.next.json"))
        platform.ingest(NAME)
        platform.repair(NAME)
    assert wrong_rows(platform, NAME) == []
    raw = platform.lake.catalog.load_table(NAME, tables.RAW_EVENTS)
    snapshot = raw.current_snapshot()
    assert snapshot is not None
    assert all(each.has_added_files() or each.has_existing_files() for each in snapshot.manifests(raw.io))
