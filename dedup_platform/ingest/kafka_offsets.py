"""How far a stream has read its topics: said by the receipts of commits, else derived from what is in `raw_events`.

The summary of each commit that takes in messages names its receipt, which tells the positions of all topics that the
stream ever read. A property of the table says where the reading of each topic began. It is written once for each topic,
in the commit that begins it, so neither the expiry of snapshots nor the loss of receipts makes a known topic a new one.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import polars as pl
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from dedup_platform import tables
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.receipts import PositionsReceipt
from dedup_platform.lake.snapshots import POSITIONS, SUMMARY, ancestry, positions_receipt, summary
from dedup_platform.sources.kafka import Place, Positions, Standing
from dedup_platform.stream import Stream

TOPICS = f"{SUMMARY}topics"
"""The property of `raw_events` that says where reading began."""

_ACCEPTED: Final = "accepted"  # what is accepted, in summaries of before there were receipts of positions
_COORDINATES = ("source", "source_partition", "source_offset")


@dataclass(frozen=True)
class Begun:
    """The topics ever read into a table, each with the offsets before which all is read or accepted as lost."""

    topics: Mapping[str, Positions] = field(default_factory=dict)
    is_complete: bool = False
    """Whether no other topic was ever begun: tables of before this property may have forgotten some."""

    def with_news_of(self, standing: Standing) -> "Begun":
        """The same, and the topics of this standing that are new, or some of whose offsets began anew."""
        told = {each.topic: self._told(each) for each in standing.positions.values()}
        return replace(self, topics={**self.topics, **told})

    def _told(self, positions: Positions) -> Positions:
        known = self.topics.get(positions.topic)
        if known is None:
            return positions
        never = Place(0)
        anew = {
            number: place
            for number, place in positions.places.items()
            if place.generation > known.places.get(number, never).generation
        }
        return known.moved_to(positions.topic_id, anew) if anew or known.topic_id is None else known

    def to_text(self) -> str:
        """As it stands in the table's property."""
        topics = [each.to_value() for each in self.topics.values()]
        return json.dumps({"complete": self.is_complete, "topics": topics}, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> "Begun":
        """What `to_text` wrote."""
        value = json.loads(text)
        found = map(Positions.from_value, value["topics"])
        return cls({each.topic: each for each in found}, value["complete"])


class Standings:
    """What the tables of any stream tell."""

    def __init__(self, lake: Lakehouse) -> None:
        self.lake = lake
        self._newest: dict[str, tuple[str, Standing]] = {}

    def at(self, stream: Stream, snapshot_id: int) -> Standing:
        """As of one snapshot of `raw_events`. A topic is missing if it was never read, or what told of it is lost."""
        newer: list[Snapshot] = []
        for snapshot in ancestry(self._table(stream), snapshot_id):
            if name := positions_receipt(snapshot):
                return _of_summaries(newer, self._of_receipt(stream, name))
            newer.append(snapshot)
        return _of_summaries(newer, Standing())

    def found_again(self, stream: Stream, snapshot_id: int) -> Standing | None:
        """As of a snapshot that does not tell of the stream's topic, although it was read; None if it never was.

        Rule 1: the coordinates in raw tell what was read, and the table where reading began; never zero.
        """
        topic, table, standing = stream.kafka.topic, self._table(stream), self.at(stream, snapshot_id)
        begun = _begun(table)
        if topic not in begun.topics and (begun.is_complete or _is_whole(table, snapshot_id)):
            return None
        missing = {topic, *begun.topics} - standing.positions.keys()
        read = self._read(stream, snapshot_id, missing)
        for each in missing & (begun.topics.keys() | read.keys()):
            known = begun.topics.get(each, Positions(each, None, {}))
            standing = standing.at(known.furthest(read.get(each, {})))
        return standing if topic in standing.positions else None

    def table_properties(self, stream: Stream, snapshot_id: int, standing: Standing) -> dict[str, str]:
        """What a commit on top of a snapshot sets, so that the table knows these topics: nothing if it does.

        The standing is one before which all has been decided: for an append, the one before it.
        """
        table = self._table(stream)
        known = _begun(table) if TOPICS in table.properties else Begun(is_complete=_is_whole(table, snapshot_id))
        told = known.with_news_of(standing)
        return {TOPICS: told.to_text()} if told != known else {}

    def _of_receipt(self, stream: Stream, name: str) -> Standing:
        known, standing = self._newest.get(stream.name, ("", Standing()))
        if known != name:
            receipt = self.lake.catalog.read_receipt(stream.name, name)
            if not isinstance(receipt, PositionsReceipt):
                return Standing()
            standing = Standing.from_value(receipt.model_dump())
            self._newest[stream.name] = name, standing
        return standing

    def _read(self, stream: Stream, snapshot_id: int, topics: Collection[str]) -> dict[str, dict[int, Place]]:
        """Topic -> the places behind its rows in raw."""
        places: dict[str, dict[int, Place]] = {}
        newest = pl.col("source_offset").max()
        for rows in self.lake.batches(stream, tables.RAW_EVENTS, snapshot_id, _COORDINATES):
            for source, partition, offset in rows.group_by(_COORDINATES[:2]).agg(newest).iter_rows():
                topic, _, generation = source.partition("@")
                if topic in topics:
                    known = places.setdefault(topic, {})
                    known[partition] = Place(offset + 1, int(generation or 0)).further(known.get(partition))
        return places

    def _table(self, stream: Stream) -> Table:
        return self.lake.catalog.load_table(stream.name, tables.RAW_EVENTS)


def _begun(table: Table) -> Begun:
    text = table.properties.get(TOPICS)
    return Begun.from_text(text) if text else Begun()


def _is_whole(table: Table, snapshot_id: int) -> bool:
    """Whether nothing of a snapshot's history has expired: it goes back to the commit that created the table."""
    # Not all that expire snapshots leave the number of the parent that went.
    return [*ancestry(table, snapshot_id)][-1].sequence_number == 1


def _of_summaries(newest_first: Iterable[Snapshot], standing: Standing) -> Standing:
    """What the version before wrote into summaries, each about one topic, on top of an older standing."""
    positions: dict[str, Positions] = {}
    accepted: list[Positions] = []
    seen: tuple[str, ...] = ()
    for snapshot in newest_first:
        text = summary(snapshot, POSITIONS)
        # There may be many of one topic, and only the newest counts.
        if text and not text.startswith(seen):
            told = Positions.from_text(text)
            positions[told.topic] = told
            seen = (*seen, f'{{"topic":{json.dumps(told.topic)},')
        if text := summary(snapshot, _ACCEPTED):
            accepted.append(Positions.from_text(text))
    for each in reversed(accepted):
        standing = standing.accepting(each)
    for each in positions.values():
        standing = standing.at(each)
    return standing
