"""What sinks hold: rows, and what they were told one after the other, which must be the feed's changes, once each."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from confluent_kafka import Message

from dedup_platform.sinks.kafka_log import Log
from dedup_platform.testing.servers import PostgresServer
from dedup_platform_tests.lives.state import Row

Shown = Mapping[str, Any]


class Told(NamedTuple):
    """One change as a sink tells it."""

    place: tuple[int, int]
    """Version and ordinal; of a beginning, the number of the row."""
    key: str
    before: Shown | None
    after: Shown | None
    is_read: bool
    """Whether it was there when the sink began."""
    lane: int = 0
    """Changes of one lane are in order."""


def shown(row: Mapping[str, Any], names: Iterable[str]) -> Shown:
    """A row as JSON can hold it."""
    return {name: _plain(row.get(name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return str(value) if isinstance(value, Decimal) else value


def in_postgres(server: PostgresServer, database: str, table: str, names: Sequence[str]) -> list[Shown]:
    """The rows of a table, or of a view."""
    connection = server.connect(database)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(names)} FROM {table}")
            return [shown(dict(zip(names, row, strict=True)), names) for row in cursor.fetchall()]
    finally:
        connection.close()


def in_kafka(brokers: str, topic: str) -> list[Shown]:
    """The newest row of each key, of those whose newest message is no tombstone."""
    newest = {message.key(): json.loads(message.value() or b"null") for message in _committed(brokers, topic)}
    return [told["after"] for told in newest.values() if told]


def told_by_kafka(brokers: str, topic: str) -> Iterator[Told]:
    """What committed messages tell, each partition in its order. A tombstone tells nothing that was not told before."""
    for message in _committed(brokers, topic):
        if message.value() is not None:
            told = json.loads(message.value() or b"")
            source, key = told["source"], (message.key() or b"").decode()
            place, is_read = (source["version"], source["ordinal"]), told["op"] == "r"
            yield Told(place, key, told["before"], told["after"], is_read, message.partition() or 0)


def _committed(brokers: str, topic: str) -> Iterator[Message]:
    return Log(topic, {"bootstrap.servers": brokers})._committed(topic)


def told_by_files(folder: Path, key: Sequence[str], names: Sequence[str]) -> Iterator[Told]:
    """What objects tell that manifests name, in their order."""
    is_read = False
    for manifest in sorted((folder / "manifests").glob("*.json")):
        said = json.loads(manifest.read_text())
        is_read |= said.get("begins", False)
        for each in said.get("objects", ()):
            yield from _changes(_rows(folder / each["name"]), key, names, is_read)
        is_read &= not said.get("completes", False)


def _rows(file: Path) -> Sequence[Row]:
    if file.suffix == ".parquet":
        return pl.read_parquet(BytesIO(file.read_bytes())).to_dicts()
    return [json.loads(line) for line in file.read_text().splitlines()]


def _changes(rows: Sequence[Row], key: Sequence[str], names: Sequence[str], is_read: bool) -> Iterator[Told]:
    before = None
    for row in rows:
        kind, image = row["_change_type"], shown(row, names)
        if kind == "update_preimage":
            before = image
            continue
        was, now = (image, None) if kind == "delete" else (before, image)
        place = (row["_commit_version"], row["_change_ordinal"])
        yield Told(place, str([row[each] for each in key]), was, now, is_read)
        before = None


def folded(changes: Iterable[Told]) -> list[Shown]:
    """The rows that changes come to."""
    found: dict[str, Shown] = {}
    for each in changes:
        found.pop(each.key, None)
        if each.after is not None:
            found[each.key] = each.after
    return list(found.values())


def wrong_order(changes: Sequence[Told], feed: Iterable[Row]) -> Iterator[str]:
    """What is wrong with what a sink was told, given all rows of its feed, a line each."""
    read, followed = ([each for each in changes if each.is_read is kind] for kind in (True, False))
    if sorted(each.place[1] for each in read) != list(range(len(read))):
        yield f"the table did not come once: {sorted(each.place for each in read)}"
    began = max((each.place[0] for each in read), default=0)
    expected = sorted(
        (row["_commit_version"], row["_change_ordinal"])
        for row in feed
        if row["_commit_version"] > began and row["_change_type"] != "update_preimage"
    )
    if (places := sorted(each.place for each in followed)) != expected:
        yield f"not the changes since version {began}: {_odd(places, expected)}"
    for _, lane in groupby(sorted(changes, key=lambda each: each.lane), lambda each: each.lane):
        yield from _wrong_lane(list(lane))


def _wrong_lane(lane: Sequence[Told]) -> Iterator[str]:
    found: dict[str, Shown] = {}
    for before, after in pairwise(lane):
        if (not before.is_read, before.place) >= (not after.is_read, after.place):
            yield f"{after.place} comes after {before.place}"
    for each in lane:
        there = found.pop(each.key, None)
        if each.before != there:
            yield f"{each.place} is of {each.before}, but there was {there}"
        if each.after is not None:
            found[each.key] = each.after


def _odd(found: Sequence[tuple[int, int]], expected: Sequence[tuple[int, int]]) -> str:
    twice = [before for before, after in pairwise(found) if before == after]
    return f"{twice} twice, {sorted({*expected} - {*found})} not, {sorted({*found} - {*expected})} of no version"
