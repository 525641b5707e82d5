"""The stream files by which a stream's records were taken in, as a property of `raw_events` remembers them.

It only serves to tell people what a change does. No row depends on it: it may be lost, and then nothing is told.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from dedup_platform.lake.snapshots import SUMMARY

__all__ = ["PROPERTY", "Known", "known_from", "remembered", "text_of"]

PROPERTY = f"{SUMMARY}stream-files"
_MOST = 5
_MOST_BYTES = 32 * 1024
"""Every commit writes the property again; of larger stream files nothing is remembered."""


@dataclass(frozen=True)
class Known:
    """What a stream file said (`stream.deciding`), and how many records there were when it began to hold."""

    says: Mapping[str, str]
    records: int


def known_from(properties: Mapping[str, str]) -> list[Known]:
    """The stream files that a table remembers, the newest last; none of a table that does not, or that is damaged."""
    try:
        return [Known(dict(each["says"]), int(each["records"])) for each in json.loads(properties.get(PROPERTY, "[]"))]
    except (ValueError, TypeError, KeyError):
        return []


def remembered(known: Sequence[Known], says: Mapping[str, str], records: int) -> list[Known]:
    """The same once another stream file holds, of so many records in the table. One that took in none is forgotten."""
    if not known:
        return [Known(says, 0)]
    if known[-1].says == says:
        return list(known)
    before = [each for each in known if each.records < records]
    if before and before[-1].says == says:
        return before
    return [*before, Known(says, records if before else 0)][-_MOST:]


def text_of(known: Sequence[Known]) -> str:
    """As it stands in the property."""
    text = json.dumps([asdict(each) for each in known], ensure_ascii=False, separators=(",", ":"))
    if len(text) <= _MOST_BYTES:
        return text
    return text_of(known[1:]) if known[1:] else "[]"
