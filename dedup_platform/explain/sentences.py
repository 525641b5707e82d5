"""Explanations for people: a sentence, then steps. Pure; whoever prints them numbers the steps and breaks the lines.

Ids, paths and values come from outside: what is no printable character of them is escaped.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from dedup_platform.explain.commits import TableCommit
from dedup_platform.explain.history import RowChange
from dedup_platform.explain.records import Coordinates
from dedup_platform.stream import KafkaSource, Stream, format_duration

Step = Sequence[str]
"""The lines of one step, each as long as it happens to be. One that is a command is to stay whole."""
COMMAND = "dedup-platform "
"""How such a line begins."""


@dataclass(frozen=True)
class Told:
    """What is told of an answer."""

    sentence: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Words:
    """How things of a stream are called; `runs` are the runs of Dagster's that made some snapshots."""

    stream: Stream
    runs: Mapping[int, str]

    def record(self, coordinates: Coordinates) -> str:
        """`record 12 of first.json`, `offset 7 of partition 0 of clicks`."""
        source, partition, offset, index = coordinates
        if isinstance(self.stream.source, KafkaSource):
            place = f", place {index}" if index else ""
            return f"offset {offset} of partition {partition} of {printable(source)}{place}"
        generation = f" (generation {partition})" if partition else ""
        return f"record {offset} of {printable(source)}{generation}"

    def commit(self, commit: TableCommit) -> str:
        """`sessions snapshot 12 (2026-01-03 10:00:00, late, from session_fragments@11, run 1f2e…)`."""
        at = moment(commit.at) if commit.at else "which has expired"
        built = f"from {commit.built_from}" if commit.built_from else None
        rewrite = "the same rows in other files" if commit.is_rewrite else None
        run = self.run(commit)
        told = [at, commit.reason, built, rewrite, f"run {run}" if run else None]
        return f"{commit.table} snapshot {commit.snapshot_id} ({', '.join(filter(None, told))})"

    def run(self, behind: TableCommit | RowChange) -> str | None:
        """The run that made a commit, if it is known."""
        pair = behind.published_with if isinstance(behind, TableCommit) else None
        return self.runs.get(behind.snapshot_id) or self.runs.get(pair or 0)

    def event(self, key: Mapping[str, Any]) -> str:
        """`7 of ada`, with what else its key has."""
        others = [f"{name} {printable(value)}" for name, value in key.items() if name not in ("entity_id", "event_id")]
        event = f"{printable(key['event_id'])} of" if "event_id" in key else "of"
        return ", ".join([f"{event} {entity(key['entity_id'])}", *others])

    def partition(self, time: datetime) -> str:
        """The key of the partition that a time lies in."""
        return self.stream.partitions.key(self.stream.partitions.ordinal(time))

    @property
    def window(self) -> str:
        return format_duration(self.stream.deduplicate.window)

    @property
    def timeout(self) -> str:
        return format_duration(self.stream.session_timeout)


def printable(value: object) -> str:
    """A value as text without control characters: `a\\nb` in place of a line break."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value))


def entity(value: str | None) -> str:
    """An entity, or that there is none."""
    return "no entity" if value is None else printable(value)


def moment(time: datetime) -> str:
    """A time in UTC, with microseconds where it has some."""
    text = time.astimezone(UTC).replace(tzinfo=None)
    return text.isoformat(" ", "microseconds" if time.microsecond else "seconds")


def span(duration: timedelta) -> str:
    """About how long, in its two largest units: `1d 23h`, `5m 3s`."""
    if duration < timedelta(seconds=1):
        return f"{duration / timedelta(milliseconds=1):g}ms"
    rest, parts = int(duration.total_seconds()), list[str]()
    for unit, letter in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        if rest >= unit:
            parts.append(f"{rest // unit}{letter}")
            rest %= unit
    return " ".join(parts[:2])


def many(count: int, what: str) -> str:
    """`1 record`, `2 records`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def capitalized(text: str) -> str:
    """The same text, as a sentence begins."""
    return text[:1].upper() + text[1:]


def quoted(word: object) -> str:
    """A value as a word of a command line that a shell takes as one, whatever is in it."""
    text = str(word)
    if text and all(c.isalnum() or c in "_-./:@%+=," for c in text) and text.isascii() and not text.startswith("-"):
        return text
    if text.isprintable():
        return "'" + text.replace("'", "'\\''") + "'"
    return "$'" + text.encode("unicode_escape").decode().replace("'", "\\'") + "'"


def looked_into(read: Mapping[str, int]) -> str:
    """In which data files all of it was found."""
    files = ", ".join(f"{name} {count:,}" for name, count in read.items())
    return f"Times are UTC. Data files looked into: {files or 'none'}."


def stale_tables(stale: Mapping[str, int]) -> Iterator[Step]:
    """That tables have not taken all in."""
    waiting = [f"{many(count, 'cell')} of {name}" for name, count in stale.items() if count]
    if waiting:
        yield [f"{', '.join(waiting)} are stale: `dedup-platform plan` tells why, `dedup-platform run` repairs them."]
