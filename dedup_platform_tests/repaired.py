"""A stream that is delivered to in random portions and repaired after each, with what its figures must be. No Spark."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random

from dedup_platform.platform import Platform
from dedup_platform.stream import Stream
from dedup_platform.testing import (
    HeldClock,
    Record,
    Rules,
    lay_out,
    light_platform,
    make_stream,
    oracle,
    record,
    utc,
    write_batch,
)
from dedup_platform.testing.figures import Figures, expected_figures

START = utc("2024-03-01T00:00")
DAYS = 4
FUTURE = utc("2090-01-01T00:00")
"""An event time that no record may have yet: it is rejected."""
DELAYS = (0, 60, 3600, 86_400, 40 * 86_400)
"""A record arrives within so many seconds."""


class Repaired:
    """A stream of four buckets, and all that was delivered to it: every repair takes in what came last."""

    def __init__(self, folder: Path, seed: int = 1) -> None:
        self.folder = folder
        self.stream = make_stream(folder, window="12h", buckets=4, start="2024-03-01")
        self.clock = HeldClock(START + timedelta(days=60))
        self.platform = self.another()
        self.random = Random(seed)
        self.records: list[Record] = []
        self._files = 0

    def another(self, stream: Stream | None = None) -> Platform:
        """Another process."""
        return light_platform(self.folder / "home", stream or self.stream, self.clock)

    def repair(self, name: str = "") -> None:
        """Many records come at first, then few at a time, mostly for one cell; they are taken in and repaired."""
        count = self.random.choice((1, 1, 2, 6)) if self.records else 40
        self._files += 1
        self.deliver([self._record() for _ in range(count)], name or f"{self._files:03}.json")
        self.platform.repair(self.stream.name)

    def deliver(self, records: Sequence[Record], name: str) -> None:
        """These come in a file, and are taken in."""
        new = lay_out(records, name)
        write_batch(self.stream, new)
        self.records += new
        self.platform.ingest(self.stream.name)

    def _record(self) -> Record:
        random = self.random
        time = START + timedelta(seconds=random.randrange(DAYS * 86_400), microseconds=random.randrange(10**6))
        delay = timedelta(seconds=random.choice(DELAYS) * random.random())
        if random.random() < 0.1:
            return record("x", "ahead", FUTURE, time)
        if self.records and random.random() < 0.4:
            sent = random.choice(self.records)
            changed = {"page": random.choice(("/", "/cart"))} if random.random() < 0.5 else sent.attributes
            return replace(sent, arrival_time=sent.arrival_time + delay, attributes=changed)
        entity = random.choice(("a", "b", "c", "d", "e", "f", None))
        return record(entity, f"{random.random()}", time, time + delay, page="/")

    def expected(self, grace: timedelta | None = None) -> dict[int, Figures]:
        """What the oracle says of all that was delivered."""
        accepted = [each for each in self.records if each.event_time != FUTURE]
        rows, by_place = oracle(accepted, Rules.of(self.stream)), {each.coordinate: each for each in accepted}
        return expected_figures(
            self.stream.partitions.length,
            self.stream.late.grace if grace is None else grace,
            records=[each.event_time for each in accepted],
            events=[(each.event_time, each.arrival_time) for each in rows.deduplicated],
            duplicates=[(by_place[place].event_time, kind) for place, (_, kind) in rows.duplicates.items()],
            sessions=[each.started_at for each in rows.sessions],
            rejected=[each.arrival_time for each in self.records if each.event_time == FUTURE],
        )

    def found(self, platform: Platform | None = None) -> dict[int, Figures]:
        """What a platform tells of all partitions."""
        told = (platform or self.platform).figures.of_all(self.stream.name)
        return {partition: each.plain() for partition, each in told.items()}

    def lose_what_is_kept(self) -> Platform:
        """A platform whose control database was lost; it remembers nothing."""
        for file in (self.folder / "home").glob("control.db*"):
            file.unlink()
        return self.another()
