"""Rule 3 over cells in memory: a record is a duplicate if another of its key, at most `window` away, arrived before it.

The work is "find, then resolve": most keys occur once, so only the few records that share one are ordered and compared.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

import polars as pl

from dedup_platform.planning.moments import in_microseconds
from dedup_platform.stream import Stream
from dedup_platform.tables import ARRIVAL_ORDER, COORDINATES, DEDUPLICATED_EVENTS, DUPLICATE_EVENTS, column_names


@dataclass(frozen=True)
class Verdicts:
    """The two halves of a cell's records; together they hold each record once."""

    events: pl.DataFrame
    duplicates: pl.DataFrame


def deduplicate(
    cells: Mapping[int, pl.DataFrame], around: Mapping[int, pl.DataFrame], stream: Stream
) -> dict[int, Verdicts]:
    """The verdicts on the records of some partitions (by ordinal) of one bucket.

    All frames have the columns of `deduplicated_events`. `around` holds the other partitions within the window's reach:
    their records can beat, but are not judged.
    """
    rivals = _rivals(cells, around, stream)
    losers = _beaten(rivals, stream) if rivals is not None else None
    return {partition: _split(partition, records, losers, stream) for partition, records in cells.items()}


def _rivals(
    cells: Mapping[int, pl.DataFrame], around: Mapping[int, pl.DataFrame], stream: Stream
) -> pl.DataFrame | None:
    """The records whose key may occur more than once, with their place; hashes choose, they do not decide."""
    frames = [(True, partition, records) for partition, records in cells.items()]
    frames += [(False, partition, records) for partition, records in around.items()]
    hashes = [records.select(stream.deduplicate.key).hash_rows() for _, _, records in frames]
    if not hashes:
        return None
    every = pl.concat(hashes)
    repeated = every.filter(every.is_duplicated()).unique().implode()
    found = []
    for (is_judged, partition, records), hashed in zip(frames, hashes, strict=True):
        chosen = records.with_row_index("_row").filter(hashed.is_in(repeated))
        found.append(chosen.with_columns(_partition=pl.lit(partition), _is_judged=pl.lit(is_judged)))
    rivals = pl.concat(found)
    return rivals if rivals.height else None


def _beaten(rivals: pl.DataFrame, stream: Stream) -> pl.DataFrame:
    """The judged rivals that another one beats, with the further columns of `duplicate_events`."""
    in_order = rivals.sort(ARRIVAL_ORDER).with_row_index("_rank")
    winners = _winners(in_order, stream)
    winner = in_order[winners]
    typed = ["entity_id", "event_id", "event_time", *stream.attributes]
    is_same = reduce(and_, (in_order[name].eq_missing(winner[name]) for name in typed))
    judged = in_order.with_columns(
        pl.when(is_same).then(pl.lit("copy")).otherwise(pl.lit("conflict")).alias("kind"),
        *(winner[name].alias(f"winner_{name}") for name in COORDINATES),
    )
    return judged.filter((winners != in_order["_rank"]) & in_order["_is_judged"])


def _winners(in_order: pl.DataFrame, stream: Stream) -> pl.Series:
    """For each rival (a row in arrival order) the first of its key within the window, as a row number."""
    key, window = list(stream.deduplicate.key), stream.deduplicate.window
    span = pl.col("event_time").max() - pl.col("event_time").min()
    groups = in_order.with_columns(_first=pl.col("_rank").min().over(key), _span=span.over(key))
    far = groups.filter(pl.col("_span") > window)
    if not far.height:
        return groups["_first"]
    # Only where records of one key lie further apart than the window does it matter which of them are near.
    ranks, firsts = [], []
    for group in far.sort("event_time").partition_by(key, maintain_order=True, include_key=True):
        times = group["event_time"].dt.epoch("us").to_list()
        ranks += group["_rank"].to_list()
        firsts += first_within(times, group["_rank"].to_list(), in_microseconds(window))
    near = pl.DataFrame({"_rank": ranks, "_near": firsts}, schema={"_rank": pl.UInt32, "_near": pl.UInt32})
    return groups.join(near, on="_rank", how="left", maintain_order="left").select(
        pl.coalesce("_near", "_first").alias("_first")
    )["_first"]


def first_within(times: Sequence[int], ranks: Sequence[int], window: int) -> list[int]:
    """For each of some times, ascending: the lowest rank among those at most `window` away. Linear in their number."""
    lowest: list[int] = []
    # Ranks that may yet be the lowest of a window, ascending, each at its time.
    candidates: deque[tuple[int, int]] = deque()
    ahead = 0
    for time in times:
        while ahead < len(times) and times[ahead] <= time + window:
            while candidates and candidates[-1][0] > ranks[ahead]:
                candidates.pop()
            candidates.append((ranks[ahead], times[ahead]))
            ahead += 1
        while candidates[0][1] < time - window:
            candidates.popleft()
        lowest.append(candidates[0][0])
    return lowest


def _split(partition: int, records: pl.DataFrame, losers: pl.DataFrame | None, stream: Stream) -> Verdicts:
    names = column_names(stream, DUPLICATE_EVENTS)
    if losers is None:
        return Verdicts(records, pl.DataFrame(schema=dict.fromkeys(names, pl.Null)))
    beaten = losers.filter(pl.col("_partition") == partition)
    keep = pl.Series([True]).new_from_index(0, records.height).scatter(beaten["_row"].to_list(), False)
    return Verdicts(records.filter(keep).select(column_names(stream, DEDUPLICATED_EVENTS)), beaten.select(names))
