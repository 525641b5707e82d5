"""Records made by hand: what tests feed to the platform and to the oracle."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

Coordinate = tuple[str, int, int, int]


@dataclass(frozen=True)
class Record:
    """One delivered event: times are aware UTC datetimes, attributes are typed values (None where absent)."""

    entity_id: str | None
    event_id: str
    event_time: datetime
    arrival_time: datetime
    source: str = "events.json"
    source_partition: int = 0
    source_offset: int = 0
    source_index: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def coordinate(self) -> Coordinate:
        return (self.source, self.source_partition, self.source_offset, self.source_index)

    @property
    def arrival_order(self) -> tuple[datetime, Coordinate]:
        """The total order of arrival: arrival time, then coordinates."""
        return (self.arrival_time, self.coordinate)


def utc(text: str) -> datetime:
    """An ISO 8601 time, read as UTC: `utc("2024-03-01T23:59:59.999999")`."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def record(
    entity_id: str | None, event_id: str, event_time: datetime, arrival_time: datetime | None = None, **attributes: Any
) -> Record:
    """An event that arrived when it happened, unless said otherwise; `lay_out` gives it its place in a file."""
    return Record(entity_id, event_id, event_time, arrival_time or event_time, attributes=attributes)


def lay_out(records: Iterable[Record], source: str = "events.json") -> list[Record]:
    """The records as lines of one file, in this order."""
    return [replace(each, source=source, source_offset=number) for number, each in enumerate(records)]
