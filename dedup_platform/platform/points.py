"""The door to points: snapshots of all tables that agree, under one name."""

import logging

from dedup_platform.lake.points import Point, PointTags, differs
from dedup_platform.ledger.agreement import agreeing_snapshots
from dedup_platform.platform.context import Context
from dedup_platform.retries import retry_on_conflict
from dedup_platform.rules.fingerprints import fingerprint
from dedup_platform.stream import Stream
from dedup_platform.tables import derived

_LOG = logging.getLogger(__name__)


class Points:
    """The points of a platform's streams; from metadata alone, no Spark."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def complete(self, stream: str) -> list[Point]:
        """All points that can be read, the newest last."""
        return self._tags(stream).complete()

    def newest(self, stream: str) -> Point | None:
        """The newest point that can be read; None if there is none yet."""
        return next(reversed(self.complete(stream)), None)

    def make(self, stream: str) -> Point | None:
        """Make a point of the tables as they are, if they agree and are not what the newest one has already.

        Returns the newest one. Finishes what a process left that died, and drops what need not be kept any more.
        """
        definition = self._context.stream(stream)
        retry_on_conflict(self._make)(definition)
        self.drop_old(stream)
        return self.newest(stream)

    def make_if_possible(self, stream: str) -> None:
        """The same for whoever has done the work already: what fails is logged."""
        try:
            self.make(stream)
        except Exception as error:
            _LOG.warning("%s: no point was made, the next run tries again: %s", stream, error)

    def drop_old(self, stream: str) -> None:
        """Drop the points that need not be kept any more."""
        definition = self._context.stream(stream)
        self._tags(stream).drop_old(definition.publish.points, self._context.clock())

    def _make(self, stream: Stream) -> None:
        tags = self._tags(stream.name)
        tags.finish()
        claimed, complete = tags.claimed(), tags.complete()
        fingerprints = {table: fingerprint(stream, table) for table in derived(stream)}
        found = agreeing_snapshots(self._context.ledger, stream, fingerprints)
        if found and (not complete or self._is_new(stream, complete[-1], found)):
            tags.claim(found, claimed[-1] if claimed else None, self._context.clock())
            tags.finish()

    def _is_new(self, stream: Stream, newest: Point, found: dict[str, int]) -> bool:
        if newest.snapshots.keys() != found.keys():
            return True
        catalog = self._context.lake.catalog
        return any(
            differs(catalog.load_table(stream.name, table), newest.snapshots[table], at) for table, at in found.items()
        )

    def _tags(self, stream: str) -> PointTags:
        return PointTags(self._context.lake.catalog, self._context.stream(stream))
