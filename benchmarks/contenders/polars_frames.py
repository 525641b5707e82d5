"""Polars with lazy frames on its streaming engine, written to Parquet as it flows."""

from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.contender import SESSION_COLUMNS, TIMEOUT_MINUTES, Contender, Output, read_by_this_process
from benchmarks.data import EVENT_COLUMNS

_KEY = ["entity_id", "event_id"]


class PolarsFrames(Contender):
    """Two lazy queries: the events without the later records of repeated keys, then their sessions."""

    def rebuild(self) -> dict[str, Any]:
        self.out.mkdir(parents=True)
        events, sessions = self.out / "events.parquet", self.out / "sessions.parquet"
        _write(_first_arrivals(self.task.sources), events)
        _write(_sessions(pl.scan_parquet(events)), sessions)
        return {name: _count(path) for name, path in (("events", events), ("sessions", sessions))}

    def bytes_read(self) -> int | None:
        return read_by_this_process()

    def output(self) -> Output:
        return Output([str(self.out / "events.parquet")], [str(self.out / "sessions.parquet")])


def _write(frame: pl.LazyFrame, file: Path) -> None:
    frame.sink_parquet(file, compression="zstd", compression_level=1, engine="streaming")


def _first_arrivals(sources: str) -> pl.LazyFrame:
    records = pl.scan_parquet(f"{sources}/*.parquet").select(EVENT_COLUMNS)
    repeated = (
        records.group_by(_KEY)
        .agg(pl.len().alias("count"), pl.col("arrival_time").min().alias("first_arrival"))
        .filter(pl.col("count") > 1)
        .drop("count")
    )
    joined = records.join(repeated, on=_KEY, how="left")
    is_first = pl.col("first_arrival").is_null() | (pl.col("arrival_time") == pl.col("first_arrival"))
    return joined.filter(is_first).select(EVENT_COLUMNS)


def _sessions(events: pl.LazyFrame) -> pl.LazyFrame:
    changes = pl.col("entity_id") != pl.col("entity_id").shift()
    gap = pl.col("event_time") - pl.col("event_time").shift()
    splits = (changes | (gap > pl.duration(minutes=TIMEOUT_MINUTES))).fill_null(True)
    return (
        events.select("entity_id", "event_time", "page", "amount")
        .sort("entity_id", "event_time")
        .with_columns(splits.cum_sum().alias("number"))
        .group_by("number")
        .agg(
            pl.col("entity_id").first(),
            pl.col("event_time").min().alias("started_at"),
            pl.col("event_time").max().alias("ended_at"),
            pl.len().alias("event_count"),
            pl.col("amount").sum().alias("revenue"),
            pl.col("page").count().alias("pages"),
        )
        .select(SESSION_COLUMNS)
    )


def _count(path: Path) -> int:
    return int(pl.scan_parquet(path).select(pl.len()).collect().item())
