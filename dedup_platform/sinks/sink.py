"""What a sink is: a copy of one table somewhere else, which versions of the table's feed keep right."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Protocol, runtime_checkable

import polars as pl

from dedup_platform.rules.changes import DELETE, PREIMAGE
from dedup_platform.tables import Column

__all__ = ["Batch", "Looks", "Position", "Refusal", "Sink", "SinkState", "Target", "Totals", "net"]


@dataclass(frozen=True)
class Position:
    """How far a sink has come in a feed."""

    feed: str
    """The feed's own id: one that was made anew counts its versions anew."""
    version: int
    ordinal: int | None = None
    """The last change of this version that is in the sink; None if all of it are."""
    snapshot_id: int | None = None
    """Where the sink has begun and not yet got all rows of the table: the snapshot that they are read from. Ordinals
    are then the rows' numbers."""


@dataclass(frozen=True)
class Refusal:
    """A row that the store does not take."""

    key: str
    """The row's key, as JSON."""
    version: int
    ordinal: int
    reason: str


def _none() -> Iterator[pl.DataFrame]:
    return iter(())


@dataclass(frozen=True)
class Batch:
    """What is to be written at once: changes, and how far the sink has come with them."""

    before: Position | None
    """The position that the sink is at. If it is at any other, nothing may be written."""
    after: Position
    changes: pl.DataFrame
    """Rows of a feed, in their order; of an update both images."""
    begins: bool = False
    """Whether the table comes whole from here on: what the sink holds may be of any age, of another feed even."""
    completes: bool = False
    """Whether the sink has got the whole table with it: what it was not given since the beginning has to go."""
    refused: Sequence[Refusal] = ()
    """Rows that are left out. The sink keeps them, one for each key, with the position."""
    healed: Sequence[str] = ()
    """Keys that are refused no longer."""
    retired: Callable[[], Iterator[pl.DataFrame]] = _none
    """With `completes`, for sinks that keep old ids of sessions: those that were retired by then, as deletes of a feed
    (`session_id`, `merged_into`, `reason`, `_commit_version` and `_commit_timestamp`). Some may be there again."""
    forced: bool = False
    """Whether somebody wants these rows again: they are written whatever the sink knows of them. The position stays,
    unless the batch is of a beginning."""
    suppressed: int = 0
    """Changes that matter to nobody downstream, and were left out."""

    def still_refused(self, before: Mapping[str, Refusal]) -> dict[str, Refusal]:
        """What is refused after this batch, by key, of what was before it."""
        kept = {key: each for key, each in before.items() if key not in self.healed}
        return kept | {each.key: each for each in self.refused}


@dataclass(frozen=True)
class Totals:
    """What a sink was given since it has a position, counted with it: each change once, both images of an update."""

    sent: int = 0
    suppressed: int = 0
    """Changes that matter to nobody downstream, and were not sent."""
    known: int = 0
    """Rows that the store left as they were, because it knew newer ones."""
    forced: int = 0
    """Those of the changes sent that somebody wanted again."""

    def after(self, batch: Batch, known: int = 0) -> "Totals":
        """With a batch, of which the store left so many rows as they were."""
        sent = len(batch.changes)
        forced = sent if batch.forced else 0
        return Totals(self.sent + sent, self.suppressed + batch.suppressed, self.known + known, self.forced + forced)


@dataclass(frozen=True)
class SinkState:
    """What a sink knows of itself."""

    position: Position | None = None
    """None before it got anything."""
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    """By key."""
    totals: Totals = Totals()
    moved_at: datetime | None = None
    """When it was last written to; None if it does not tell."""


@dataclass(frozen=True)
class Target:
    """What a sink is to hold."""

    stream: str
    sink: str
    table: str
    columns: tuple[Column, ...]
    """Those of the table, without what a feed tells besides."""
    key: tuple[str, ...]
    """The columns that tell a row from all others."""
    numbers: Mapping[str, int] | None = None
    """Column -> the id of its field in the table, which never changes. A column without one is not there yet; None: as
    a table has them that is made anew, 1, 2, 3 …"""

    @property
    def numbered(self) -> list[tuple[int, Column]]:
        """The columns that are there, each behind its number, in the order of the numbers."""
        numbers = self.numbers or {column.name: number for number, column in enumerate(self.columns, 1)}
        there = [(numbers[column.name], column) for column in self.columns if column.name in numbers]
        return sorted(there, key=itemgetter(0))


class Sink(Protocol):
    """One copy of a table. A sink of one's own has these three methods; `testing.sinks` says whether it does right.

    All of them raise SinkError where the store does not answer, or answers too late to know what it did: then the sink
    is closed and opened anew.
    """

    def open(self) -> SinkState:
        """Take the sink over, and tell how far it has come.

        Whoever had it open before can write to it no longer, be it that it only slept.
        """

    def write(self, batch: Batch) -> None:
        """Write a batch: all of it and its position, or nothing.

        Raises RefusedRowsError if the store does not take some row, and SinkTakenError if somebody else has opened the
        sink since, or it is at another position than the batch says.
        """

    def close(self) -> None:
        """Let go of the store. Never fails."""


@runtime_checkable
class Looks(Protocol):
    """A sink that can be asked how far it has come and is not taken over by that. One of one's own need not be."""

    def look(self) -> SinkState:
        """What it knows of itself; that of a new one, where nothing is there. Writes nothing."""


def net(changes: pl.DataFrame, key: Sequence[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What some changes come to: the rows to be written, and those to be taken away, one for each key."""
    newest = changes.filter(pl.col("_change_type") != PREIMAGE).unique(key, keep="last", maintain_order=True)
    is_gone = pl.col("_change_type") == DELETE
    return newest.filter(~is_gone), newest.filter(is_gone)
