"""What old ids of sessions must find, in plain Python: a feed is read change by change, and merges one by one."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dedup_platform.lake.aliases import Place, alias_position, place_of_feed
from dedup_platform.lake.snapshots import head, live_files
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream
from dedup_platform.tables import SESSION_ALIASES, SESSION_CHANGES
from dedup_platform_tests.lives.state import Reader, Row

Alias = Mapping[str, Any]
"""A row of `session_aliases`."""


def expected(changes: Iterable[Row], place: Place | None) -> dict[str, Alias]:
    """The aliases that a feed of sessions makes up to a place in it, by id."""
    gone: dict[str, Row] = {}
    for row in sorted(changes, key=lambda row: (row["_commit_version"], row["_change_ordinal"])):
        if place and not _is_after(row, place):
            if row["_change_type"] == "delete":
                gone[row["session_id"]] = row
            elif row["_change_type"] == "insert":
                gone.pop(row["session_id"], None)
    return {each: _alias(gone, each) for each in gone}


def wrong_aliases(platform: Platform, stream: Stream, reader: Reader) -> Iterator[str]:
    """What is wrong with the table, a line each; nothing before there is one."""
    feed, table = (platform.lake.catalog.load(stream.name, name) for name in (SESSION_CHANGES, SESSION_ALIASES))
    if feed is None or table is None:
        return
    place, newest = alias_position(table).place, place_of_feed(feed)
    if place and (place.feed != newest.feed or place.version > newest.version):
        yield f"aliases are at {place}, their feed at {newest}"
    rows = reader.feed(platform, stream, SESSION_ALIASES)
    if repeated := [each for each, count in Counter(row["session_id"] for row in rows).items() if count > 1]:
        yield f"aliases: several rows of {repeated}"
    found = {row["session_id"]: row for row in rows}
    wanted = expected(reader.feed(platform, stream, SESSION_CHANGES), place)
    for each in sorted(found.keys() | wanted.keys()):
        if found.get(each) != wanted.get(each):
            yield f"the alias {each} is {found.get(each)}, expected {wanted.get(each)}"
    files = [reader.rows([file]) for file in live_files(table, head(table))]
    places = Counter(entity for rows in files for entity in {row["entity_id"] for row in rows})
    yield from (f"aliases of {entity} are in {count} files" for entity, count in places.items() if count > 1)


def _is_after(row: Row, place: Place) -> bool:
    if row["_commit_version"] != place.version or place.ordinal is None:
        return bool(row["_commit_version"] > place.version)
    return bool(row["_change_ordinal"] > place.ordinal)


def _alias(gone: Mapping[str, Row], session_id: str) -> Alias:
    path = [session_id]
    while (at := gone.get(path[-1])) and at["merged_into"] is not None:
        if at["merged_into"] in path:
            path = []
            break
        path.append(at["merged_into"])
    last = path[-1] if path else None
    row, end = gone[session_id], gone.get(last) if last else None
    return {
        "session_id": session_id,
        "entity_id": row["entity_id"],
        "current_id": None if end else last,
        "outcome": end["reason"] if end else "merged" if last else None,
        "last_id": last,
        "merges": len(path) - 1 if path else None,
        "merged_into": row["merged_into"],
        "reason": row["reason"],
        "retired_at": row["_commit_timestamp"],
        "retired_by_version": row["_commit_version"],
    }
