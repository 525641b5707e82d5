"""Points: tags of one name, `v1`, `v2` …, on snapshots of all tables of a stream that agree with each other.

Tables are tagged one after the other, so a name must never mean two sets of snapshots, whoever dies or sleeps then.
`raw_events` is tagged first, by compare-and-set, and the same commit writes down the whole set as a property of the
table: that claims the number. Whoever finds a claim whose tags are not all there makes the others. So a reader finds
the tables of one set under a name, or misses a tag; what has a tag in the last table is complete.

Numbers are used once: claims require the newest point that was there, it is dropped only after there is a newer one,
and points are dropped oldest first.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
)

from dedup_platform.errors import ConflictError
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.publishing import retry_commit
from dedup_platform.lake.snapshots import SUMMARY, ancestry, changes, head
from dedup_platform.stream import Points as Rules, Stream
from dedup_platform.tables import ALL, RAW_EVENTS

__all__ = ["Point", "PointTags", "differs"]

_PROPERTY = f"{SUMMARY}point."
"""Of a tagged table: this and the name of the tag -> the point, as JSON."""
_NAME = re.compile(r"v([0-9]{1,18})")


@dataclass(frozen=True)
class Point:
    """A snapshot of each table, by name in the order of tagging, that agree as of that of `raw_events`."""

    number: int
    made_at: datetime
    snapshots: Mapping[str, int]

    @property
    def name(self) -> str:
        """The name of its tags."""
        return f"v{self.number}"

    @property
    def as_of(self) -> int:
        """The snapshot of `raw_events` that all others are made of."""
        return self.snapshots[RAW_EVENTS]


def differs(table: Table, old: int, new: int) -> bool:
    """Whether the data files of a snapshot are others than those of one before it, or that is not known any more."""
    for snapshot in ancestry(table, new):
        if snapshot.snapshot_id == old:
            return False
        if next(iter(changes(table, snapshot)), None) is not None:
            return True
    return True


class PointTags:
    """The points of one stream."""

    def __init__(self, catalog: Catalog, stream: Stream) -> None:
        self.catalog = catalog
        self.stream = stream

    def claimed(self) -> list[Point]:
        """All points whose number is taken, the newest last, complete or not."""
        raw = self.catalog.load(self.stream.name, RAW_EVENTS)
        return list(_points_of(raw)) if raw else []

    def complete(self) -> list[Point]:
        """The points whose tags are all there, the newest last."""
        # Before raw: what is tagged by now is claimed by then.
        loaded = self._loaded()
        return [point for point in self.claimed() if _is_complete(point, loaded)]

    def finish(self) -> None:
        """Tag what is not tagged yet of the newest point, unless one of its snapshots is gone or the name is taken."""
        for point in self.claimed()[-1:]:
            for table in point.snapshots:
                if not self._tag(table, point):
                    return

    @retry_commit
    def claim(self, snapshots: Mapping[str, int], newest: Point | None, now: datetime) -> Point:
        """Take the next number for these snapshots. ConflictError if there is a newer point than the newest known."""
        raw = self._load(RAW_EVENTS)
        latest = next(reversed(list(_points_of(raw))), None)
        if latest != newest:
            if latest and latest.snapshots == snapshots:
                return latest
            raise ConflictError(f"{self.stream.name}: another process made or dropped points meanwhile. Run again.")
        point = Point(1 + max(_numbers(raw), default=0), now, snapshots)
        # Of the first one: that nobody made, and dropped, others while we slept.
        last = (newest.name, newest.as_of) if newest else ("main", head(raw).snapshot_id)
        self._commit(raw, point, (_at(*last),))
        return point

    def drop_old(self, rules: Rules, now: datetime) -> None:
        """Drop what need not be kept any more, oldest first, and tags that came late of points that are gone."""
        loaded = self._loaded()
        points = self.claimed()
        for point in _old(points, loaded, rules, now):
            # Its number last: until then it is found again.
            for table in reversed(tuple(point.snapshots)):
                self._untag(table, point.name)
        for table, found in loaded.items():
            for name in {each.name for each in _points_of(found)} - {each.name for each in points}:
                self._untag(table, name)

    @retry_commit
    def _tag(self, table: str, point: Point) -> bool:
        """Whether the table has the tag by now."""
        found = self.catalog.load(self.stream.name, table)
        if found and (there := found.refs().get(point.name)):
            return there.snapshot_id == point.snapshots[table]
        if found is None or found.snapshot_by_id(point.snapshots[table]) is None:
            return False
        self._commit(found, point)
        return True

    def _commit(self, table: Table, point: Point, requirements: Sequence[TableRequirement] = ()) -> None:
        tag = {"ref-name": point.name, "type": SnapshotRefType.TAG, "snapshot-id": point.snapshots[table.name()[-1]]}
        self.catalog.iceberg.commit_table(
            table,
            (AssertTableUUID(uuid=table.metadata.table_uuid), _at(point.name, None), *requirements),
            (
                SetSnapshotRefUpdate.model_validate(tag),
                SetPropertiesUpdate(updates={_PROPERTY + point.name: _text(point)}),
            ),
        )

    @retry_commit
    def _untag(self, table: str, name: str) -> None:
        found = self.catalog.load(self.stream.name, table)
        if found is None or _PROPERTY + name not in found.properties:
            return  # it has none, or one that is not ours
        at = found.refs().get(name)
        ours = {each.name: each.snapshots[table] for each in _points_of(found)}
        removed = [RemoveSnapshotRefUpdate(ref_name=name)] if at and ours.get(name) == at.snapshot_id else []
        self.catalog.iceberg.commit_table(
            found,
            (AssertTableUUID(uuid=found.metadata.table_uuid), _at(name, at.snapshot_id if at else None)),
            (*removed, RemovePropertiesUpdate(removals=[_PROPERTY + name])),
        )

    def _loaded(self) -> dict[str, Table]:
        # Of those, too, that the stream file no longer asks for: older points hold them.
        return {name: table for name in ALL if (table := self.catalog.load(self.stream.name, name))}

    def _load(self, table: str) -> Table:
        return self.catalog.load_table(self.stream.name, table)


def _old(points: Sequence[Point], loaded: Mapping[str, Table], rules: Rules, now: datetime) -> Iterator[Point]:
    complete = [number for number, point in enumerate(points) if _is_complete(point, loaded)]
    for number, point in enumerate(points):
        # Until the next one was made readers took it for the newest.
        followed = next((points[later].made_at for later in complete if later > number), None)
        if followed is None or (now - followed <= rules.keep and len(points) - number <= rules.at_most):
            return
        yield point


def _is_complete(point: Point, loaded: Mapping[str, Table]) -> bool:
    return all(
        (table := loaded.get(name)) and (at := table.refs().get(point.name)) and at.snapshot_id == snapshot_id
        for name, snapshot_id in point.snapshots.items()
    )


def _points_of(table: Table) -> Iterator[Point]:
    """The points whose tags a table has, by its own word, the newest last."""
    refs, name = table.refs(), table.name()[-1]
    for number in sorted(_numbers(table)):
        point = _parsed(number, table.properties.get(f"{_PROPERTY}v{number}", ""))
        at = refs.get(f"v{number}")
        if point and at and at.snapshot_id == point.snapshots.get(name):
            yield point


def _numbers(table: Table) -> Iterable[int]:
    """The numbers that were taken, by whomsoever."""
    names = {*table.refs(), *(key.removeprefix(_PROPERTY) for key in table.properties if key.startswith(_PROPERTY))}
    return {int(found[1]) for name in names if (found := _NAME.fullmatch(name))}


def _text(point: Point) -> str:
    # As text: a snapshot id has more digits than the numbers of most readers of JSON.
    tables = {table: str(snapshot_id) for table, snapshot_id in point.snapshots.items()}
    return json.dumps({"made_at": point.made_at.astimezone(UTC).isoformat(), "snapshots": tables})


def _parsed(number: int, text: str) -> Point | None:
    """None for what is no point: anybody can write a property."""
    try:
        value = json.loads(text)
        snapshots = {str(table): int(snapshot_id) for table, snapshot_id in value["snapshots"].items()}
        return Point(number, datetime.fromisoformat(value["made_at"]), snapshots)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _at(ref: str, snapshot_id: int | None) -> AssertRefSnapshotId:
    return AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": snapshot_id})
