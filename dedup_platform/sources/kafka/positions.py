"""How far topics have been read: what the receipts of commits carry (rule 1)."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["Place", "Positions", "Skipped", "Standing"]


@dataclass(frozen=True)
class Place:
    """The next offset to read of one partition. Offsets that began anew belong to another generation."""

    offset: int
    generation: int = 0

    def source(self, topic: str) -> str:
        """The `source` of records that are read from here: no two records share their coordinates."""
        return f"{topic}@{self.generation}" if self.generation else topic

    def further(self, other: "Place | None") -> "Place":
        """The one of two places of a partition that lies behind the other."""
        return self if other is None else max(self, other, key=lambda each: (each.generation, each.offset))


@dataclass(frozen=True)
class Positions:
    """The places in all partitions that were ever read, of all lanes; `topic_id` is unknown if they were derived."""

    topic: str
    topic_id: str | None
    places: Mapping[int, Place]

    def to_value(self) -> dict[str, Any]:
        """As it is written in JSON."""
        places = {str(partition): [place.offset, place.generation] for partition, place in sorted(self.places.items())}
        return {"topic": self.topic, "id": self.topic_id, "next": places}

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> "Positions":
        """What `to_value` made."""
        places = {int(partition): Place(*place) for partition, place in value["next"].items()}
        return cls(value["topic"], value["id"], places)

    def to_text(self) -> str:
        """The same as a text."""
        return json.dumps(self.to_value(), separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> "Positions":
        """What `to_text` wrote."""
        return cls.from_value(json.loads(text))

    def moved_to(self, topic_id: str | None, places: Mapping[int, Place]) -> "Positions":
        """The same positions, but for these partitions."""
        return Positions(self.topic, topic_id, {**self.places, **places})

    def furthest(self, places: Mapping[int, Place]) -> "Positions":
        """The same positions, but for partitions that these places are further in."""
        return self.moved_to(
            self.topic_id, {number: place.further(self.places.get(number)) for number, place in places.items()}
        )


@dataclass(frozen=True, order=True)
class Skipped:
    """Offsets of one partition that people had left out: from `first` on, up to and without `end`."""

    topic: str
    partition: int
    generation: int
    first: int
    end: int

    def __str__(self) -> str:
        offsets = f"offset {self.first}" if self.end == self.first + 1 else f"offsets {self.first} to {self.end - 1}"
        return f"{offsets} of partition {self.partition} of topic {self.topic}"


@dataclass(frozen=True)
class Standing:
    """How far a stream has read each topic that it ever read, and what people decided about what it is to read.

    `accepted` is up to where they accept all rejects, `skipped` all that they ever had left out, read past or not.
    """

    positions: Mapping[str, Positions] = field(default_factory=dict)
    accepted: Mapping[str, Positions] = field(default_factory=dict)
    skipped: tuple[Skipped, ...] = ()

    def to_value(self) -> dict[str, Any]:
        """As it stands in a receipt."""
        return {
            "positions": [each.to_value() for each in self.positions.values()],
            "accepted_up_to": [each.to_value() for each in self.accepted.values()],
            "skipped": [vars(each) for each in self.skipped] or None,
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> "Standing":
        """What `to_value` made."""
        skipped = tuple(Skipped(**each) for each in value.get("skipped") or ())
        return cls(_by_topic(value["positions"]), _by_topic(value["accepted_up_to"]), skipped)

    def at(self, positions: Positions) -> "Standing":
        """The same, with a topic at these positions; of what was accepted, only what is not read yet is kept."""
        accepted = {topic: _unread(each, positions) for topic, each in self.accepted.items()}
        return replace(
            self,
            positions={**self.positions, positions.topic: positions},
            accepted={topic: each for topic, each in accepted.items() if each.places},
        )

    def accepting(self, up_to: Positions) -> "Standing":
        """The same, with the rejects of a topic accepted up to these places."""
        known = self.accepted.get(up_to.topic, Positions(up_to.topic, up_to.topic_id, {}))
        return replace(self, accepted={**self.accepted, up_to.topic: known.moved_to(up_to.topic_id, up_to.places)})

    def skipping(self, skipped: Iterable[Skipped]) -> "Standing":
        """The same, with these offsets left out, too."""
        return replace(self, skipped=tuple(sorted({*self.skipped, *skipped})))

    def skipped_of(self, topic: str, partition: int, generation: int) -> list[range]:
        """Which offsets people had left out of a partition of a topic, in order."""
        of = topic, partition, generation
        return [
            range(each.first, each.end) for each in self.skipped if (each.topic, each.partition, each.generation) == of
        ]

    def accepted_of(self, topic: str) -> Mapping[int, Place]:
        """Up to where people accept all rejects of each partition of a topic."""
        return self.accepted[topic].places if topic in self.accepted else {}


def _by_topic(values: list[Mapping[str, Any]]) -> dict[str, Positions]:
    return {each["topic"]: Positions.from_value(each) for each in values}


def _unread(accepted: Positions, read: Positions) -> Positions:
    if accepted.topic != read.topic:
        return accepted
    places = {
        number: place
        for number, place in accepted.places.items()
        if (at := read.places.get(number)) is None or at.further(place) != at
    }
    return Positions(accepted.topic, accepted.topic_id, places)
