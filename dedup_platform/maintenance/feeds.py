"""Upkeep of feeds and of what is made of them: the rows stay, and the snapshots that nobody needs go."""

import time
from collections import Counter
from datetime import datetime, timedelta
from itertools import islice

from dedup_platform.lake.feeds import told_snapshots
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.snapshots import ancestry, head, live_files
from dedup_platform.maintenance import procedures
from dedup_platform.maintenance.history import cut_history, tagged_snapshots
from dedup_platform.maintenance.upkeep import Upkeep, extent
from dedup_platform.planning.moments import EPOCH
from dedup_platform.retries import retry_on_conflict
from dedup_platform.schemas import MEASURED
from dedup_platform.stream import Stream
from dedup_platform.tables import SESSION_ALIASES

DAY = timedelta(days=1)


def maintain_feed(lake: Lakehouse, stream: Stream, feed: str, now: datetime) -> Upkeep | None:
    """Look after one feed, what is made of one, or the audit; None if it has not begun."""
    if lake.catalog.load(stream.name, feed) is None:
        return None
    started = time.monotonic()
    before = extent(lake.catalog, stream, feed)
    expired = retry_on_conflict(_expire)(lake, stream, feed, now)
    # The files of aliases are put together by whoever brings them up to date.
    compacted = 0 if feed == SESSION_ALIASES else retry_on_conflict(_compact)(lake, stream, feed, now)
    orphans = procedures.remove_orphans(lake, stream, feed, stream.maintenance.orphan_age)
    after = extent(lake.catalog, stream, feed)
    return Upkeep(feed, compacted, expired, orphans, before, after, time.monotonic() - started)


def _expire(lake: Lakehouse, stream: Stream, feed: str, now: datetime) -> int:
    loaded = lake.catalog.load_table(stream.name, feed)
    # The newest one that says how far the feed has come: its rows tell it, too, but all of them had to be read.
    needed = {snapshot.snapshot_id for snapshot in islice(told_snapshots(loaded), 1)}
    history = cut_history(
        list(ancestry(loaded)),
        stream.maintenance,
        now,
        needed=needed,
        tagged=tagged_snapshots(loaded) - {head(loaded).snapshot_id},
        receipts=False,
    )
    if history.expired:
        procedures.expire_snapshots(lake, stream, feed, [each.snapshot_id for each in history.expired])
    return len(history.expired)


def _compact(lake: Lakehouse, stream: Stream, feed: str, now: datetime) -> int:
    """Put together the small files of days that are over."""
    loaded = lake.catalog.load_table(stream.name, feed)
    days = Counter(file.partition[0] for file in live_files(loaded, head(loaded)))
    over = (day for day, files in days.items() if files >= procedures.SMALL_FILES and EPOCH + (day + 1) * DAY <= now)
    firsts = [stream.partitions.ordinal(EPOCH + day * DAY) for day in sorted(over)]
    partitions = [first + each for first in firsts for each in range(DAY // stream.partitions.length)]
    # Whoever reads a feed holds what overlaps in memory, to have it in order.
    order = MEASURED[feed]
    return procedures.compact_files(lake, stream, feed, partitions, sorted_by=order) if partitions else 0
