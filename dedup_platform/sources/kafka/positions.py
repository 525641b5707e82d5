"""How far a topic has been read: what every commit's summary carries (rule 1)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Place", "Positions"]


@dataclass(frozen=True)
class Place:
    """The next offset to read of one partition. Offsets that began anew belong to another generation."""

    offset: int
    generation: int = 0

    def source(self, topic: str) -> str:
        """The `source` of records that are read from here: no two records share their coordinates."""
        return f"{topic}@{self.generation}" if self.generation else topic


@dataclass(frozen=True)
class Positions:
    """The places in all partitions that were ever read, of all lanes; `topic_id` is unknown if they were derived."""

    topic: str
    topic_id: str | None
    places: Mapping[int, Place]

    def to_text(self) -> str:
        """As it stands in a snapshot's summary."""
        places = {str(partition): [place.offset, place.generation] for partition, place in sorted(self.places.items())}
        return json.dumps({"topic": self.topic, "id": self.topic_id, "next": places}, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> "Positions":
        """What `to_text` wrote."""
        value = json.loads(text)
        places = {int(partition): Place(*place) for partition, place in value["next"].items()}
        return cls(value["topic"], value["id"], places)

    def moved_to(self, topic_id: str, places: Mapping[int, Place]) -> "Positions":
        """The same positions, but for these partitions."""
        return Positions(self.topic, topic_id, {**self.places, **places})
