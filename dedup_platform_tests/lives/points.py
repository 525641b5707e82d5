"""What must hold of points, whenever somebody looks: a name means one set of snapshots, and those agree."""

import re
from collections.abc import Iterator, Mapping, Sequence

from pyiceberg.table import Table
from pyiceberg.table.update import TableRequirement

from dedup_platform import tables
from dedup_platform.lake.points import Point, PointTags
from dedup_platform.lake.snapshots import files_by_cell
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream
from dedup_platform.testing.comparison import SessionIds, table_differences
from dedup_platform.testing.judge import as_record
from dedup_platform_tests.lives.state import Reader, Row

Snapshots = Mapping[str, int]


class PointLaws:
    """Remembers every point, and judges each once by the rules of whoever made it."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._makers: dict[tuple[str, frozenset[tuple[str, int]]], Stream] = {}
        self._known: dict[str, Snapshots] = {}
        self._was_complete = False
        self.judged = 0

    def watch(self, tags: PointTags) -> PointTags:
        """Note by which rules what it claims was made."""
        commit = tags._commit

        def noted(table: Table, point: Point, requirements: Sequence[TableRequirement] = ()) -> None:
            self._makers.setdefault((point.name, frozenset(point.snapshots.items())), tags.stream)
            commit(table, point, requirements)

        tags._commit = noted  # type: ignore[method-assign]
        return tags

    def wrong(self, judge: Platform, stream: Stream) -> Iterator[str]:
        """What does not hold now, a line each."""
        tags = PointTags(judge.lake.catalog, stream)
        claimed, complete = tags.claimed(), tags.complete()
        if self._was_complete and not complete:
            yield "the newest point is gone"
        self._was_complete |= bool(complete)
        last = max((int(name[1:]) for name in self._known), default=0)
        for point in claimed:
            if self._known.setdefault(point.name, point.snapshots) != point.snapshots:
                yield f"{point.name} was {self._known[point.name]} and is {point.snapshots}"
            elif point.number > last:
                yield from (f"{point.name}: {each}" for each in self._judge(judge, point))
        yield from self._misplaced(judge, stream)

    def _misplaced(self, judge: Platform, stream: Stream) -> Iterator[str]:
        """Tags that are elsewhere than their name says."""
        for table in tables.ALL:
            loaded = judge.lake.catalog.load(stream.name, table)
            for name, at in (loaded.refs() if loaded else {}).items():
                if re.fullmatch(r"v\d+", name) and self._known.get(name, {}).get(table) != at.snapshot_id:
                    yield f"{table}: {name} is at {at.snapshot_id}, and the point is {self._known.get(name)}"

    def _judge(self, judge: Platform, point: Point) -> list[str]:
        self.judged += 1
        stream = self._makers[point.name, frozenset(point.snapshots.items())]
        rows = {table: self._rows(judge, stream, table, at) for table, at in point.snapshots.items()}
        records = [as_record(row) for row in rows[tables.RAW_EVENTS]]
        return [*table_differences(stream, rows, records, SessionIds()), *unbalanced(rows)]

    def _rows(self, judge: Platform, stream: Stream, table: str, snapshot_id: int) -> list[Row]:
        """The rows of a snapshot; of raw those that are events."""
        found = files_by_cell(judge.lake.catalog.load_table(stream.name, table), snapshot_id)
        return self._reader.rows([file for files in found.values() for file in files])


def unbalanced(rows: Mapping[str, list[Row]]) -> list[str]:
    """Counts of tables that do not add up; of raw the rows that are no rejected records."""
    raw, kept, beaten = (
        len(rows[name]) for name in (tables.RAW_EVENTS, tables.DEDUPLICATED_EVENTS, tables.DUPLICATE_EVENTS)
    )
    wrong = [f"{raw} records, {kept} events and {beaten} duplicates"] if raw != kept + beaten else []
    inside = sum(row["entity_id"] is not None for row in rows[tables.DEDUPLICATED_EVENTS])
    counted = {name: sum(row["event_count"] for row in rows[name]) for name in tables.OF_SESSIONS if name in rows}
    return wrong + [f"{inside} events with an entity, {n} in {name}" for name, n in counted.items() if n != inside]
