"""How many rejected records could be events by now: some are decoded again, and nothing is written."""

from dataclasses import dataclass

from dedup_platform.errors import SourceError
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.ledger import Ledger
from dedup_platform.replay.rejected import COLUMNS
from dedup_platform.replay.rewrite import DROPPED
from dedup_platform.sources.decoding import EventDecoder
from dedup_platform.sources.records import ENDED_PROCESS
from dedup_platform.stream import Stream
from dedup_platform.tables import RAW_EVENTS

__all__ = ["Trial", "try_rejected"]

_MOST = 1000
_LARGEST = 64 * 1024
"""Bytes of a payload; larger ones are left out, as is what ended a process before."""


@dataclass(frozen=True)
class Trial:
    """So many records were tried, and so many of them would be events."""

    tried: int = 0
    events: int = 0


def try_rejected(lake: Lakehouse, ledger: Ledger, stream: Stream) -> Trial:
    """Decode the first rejected records as today's stream file says. No Spark. A registry that is away ends it."""
    tried = events = 0
    if not (heads := ledger.sync(stream.name)):
        return Trial()
    decoder, table = EventDecoder(stream), lake.table_files(stream, RAW_EVENTS)
    for file in lake.rejected_files(stream, heads[RAW_EVENTS].snapshot_id):
        for batch in table.batches(file, COLUMNS):
            for row in batch.to_pylist():
                if row["payload"] is None or len(row["payload"]) > _LARGEST or _is_left_out(row["rejection_reason"]):
                    continue
                try:
                    kept = decoder.kept(row["payload"], row["payload_context"], row["source"], row["arrival_time"])
                except SourceError:
                    return Trial(tried, events)
                tried += 1
                events += decoder.decode(*kept)[-1] is None
                if tried == _MOST:
                    return Trial(tried, events)
    return Trial(tried, events)


def _is_left_out(reason: str) -> bool:
    return reason.startswith((ENDED_PROCESS, DROPPED))
