"""Which rows of a table somebody wants to be sent again."""

from dataclasses import dataclass

import polars as pl
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, In
from pyiceberg.expressions.parser import parse

from dedup_platform.rules.partitions import partition_ordinal
from dedup_platform.stream import Stream
from dedup_platform.tables import PARTITION_TIME


@dataclass(frozen=True)
class Choice:
    """Rows that fit every kind of which something is named; all rows where nothing is."""

    entities: frozenset[str] = frozenset()
    partitions: frozenset[int] = frozenset()
    sessions: frozenset[str] = frozenset()

    @property
    def is_everything(self) -> bool:
        """Whether nothing is named."""
        return not (self.entities or self.partitions or self.sessions)

    @property
    def is_of_sessions(self) -> bool:
        """Whether nothing but sessions is named."""
        return bool(self.sessions) and not (self.entities or self.partitions)

    def fits(self, stream: Stream, table: str) -> pl.Expr:
        """Whether a row is chosen."""
        ordinal = partition_ordinal(pl.col(PARTITION_TIME[table]), stream.partitions.length)
        named = {"entity_id": self.entities, "session_id": self.sessions}
        kinds = [pl.col(name).is_in(sorted(values)) for name, values in named.items() if values]
        kinds += [ordinal.is_in(sorted(self.partitions))] if self.partitions else []
        return pl.all_horizontal(kinds) if kinds else pl.lit(value=True)

    def prunes(self, stream: Stream, table: str) -> BooleanExpression:
        """What holds of all chosen rows, and lets Iceberg leave out files."""
        found: BooleanExpression = AlwaysTrue()
        if self.entities:
            found = In("entity_id", self.entities)  # type: ignore[call-arg]  # pydantic hides its own __init__
        if self.partitions:
            column = PARTITION_TIME[table]
            first, end = stream.partitions.bounds(min(self.partitions), max(self.partitions))
            found = And(found, parse(f"{column} >= '{first.isoformat()}'"))
            found = And(found, parse(f"{column} < '{end.isoformat()}'")) if end else found
        return found
