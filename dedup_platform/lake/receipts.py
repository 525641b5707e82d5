"""Receipts: what a commit read, accepted, rewrote or built, as JSON beside the tables. One model for each kind.

The summary of a commit's snapshot names its receipt, and each receipt the one before it, so that the chain outlives
snapshots that expire. Receipts are immutable. Those of older versions are read; one of a newer version is refused by
name, because whoever does not understand it would take what it says for not said. What is damaged is told by a digest;
to take it for a receipt that says less would be to read a file twice.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, cast
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from dedup_platform.errors import NewerVersionError
from dedup_platform.planning.cells import Cell

VERSION = 2
"""Goes up when an older reader would misread a receipt. Those that it reads right keep the version before."""
DIGEST = "digest"
"""Key of the digest of all that a receipt says besides."""
ANY_GENERATION = -1
"""Of acceptances in the oldest receipts, which do not tell."""

SummaryKey = Literal[
    "receipt",
    "positions",
    "accepted",
    "checkpoint",
    "reason",
    "built-from",
    "fingerprint",
    "duplicates-snapshot",
    "copied-from",
    "up-to",
    "version",
    "feed",
    "ordinal",
    "totals",
    "token",
]
"""What the summary of a snapshot tells of ours, each with a prefix.

`receipt` names one, `positions` one of topics (in old summaries: what it says, as `accepted` does).
`duplicates-snapshot` is what events are paired with, `copied-from` the snapshot of which a change of the number of
buckets made copies. Of a feed, `up-to` is the snapshot of its table that it has followed to, `version` its last one.
Of what is made of a feed, `feed` is the feed's own id, `version` the last one that it has, and `ordinal` the last
change of that one, if it has not got all of it. Of
`audit`, `up-to` says of each table how far its commits are counted, and `totals` what they come to, as JSON.
`token` is that of the claim under which a derived table was written.
"""
SummaryValues = dict[SummaryKey, str]
"""Of a commit: key of its summary -> value."""
PartKind = Literal["built", "untold", "files"]


def new_receipt_name() -> str:
    """A name that no other receipt has."""
    return f"{uuid4().hex}.json"


@dataclass(frozen=True)
class ReadFile:
    """One generation of a file that was read; size and etag are unknown if they had to be derived from raw."""

    path: str
    generation: int
    size: int | None
    etag: str | None
    records: int
    skipped: Annotated[bool, Field(exclude_if=lambda skipped: not skipped)] = False
    """Whether a person had it left out: it counts as read, and nothing of it is in `raw_events`."""


@dataclass(frozen=True, order=True)
class Acceptance:
    """A person's word that a file may be read, with this content, as this generation."""

    path: str
    etag: str
    generation: int = ANY_GENERATION


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class _Header(_Model):
    version: int = 1


class Input(_Model):
    """The snapshot of its input that a table was built from; of some only the sequence number is known."""

    snapshot: int | None
    sequence: int


class Part(_Model):
    """A file of Parquet that holds a part of a checkpoint."""

    name: str
    rows: int
    digest: str | None = None
    """SHA-256 of the file; the first parts do not tell."""


Parts = Mapping[PartKind, tuple[Part, ...]]


class Receipt(_Model):
    """What all kinds have in common. A field that is added must be None by default, or the version goes up."""

    version: int = 1
    name: str = Field(default_factory=new_receipt_name)
    reason: str = ""
    previous: str | None = None
    """The receipt of the table's commit before this one; None for the first, and for a checkpoint."""
    rewritten: tuple[Cell, ...] = ()
    """Cells whose rows changed."""
    disturbed: tuple[Cell, ...] = ()
    """Cells of which rows went, or which got rows from others of them: one commit must judge them all."""
    checkpoint: Parts | None = None
    """The parts that hold what all receipts before this one say."""


class BuildReceipt(Receipt):
    """Of a derived table: which cells were built, from which snapshot of the input and by which rules (rule 6)."""

    kind: Literal["build"] = "build"
    table: str
    built_from: Mapping[str, Input] = Field(min_length=1, max_length=1)
    """Of one table, by its name."""
    fingerprint: str
    checked: tuple[Cell, ...]
    """Every cell that was looked at, rewritten or not."""
    events: int | None = None
    """How many events all rows of the table count, where it is carried on."""
    longest_reach: int | None = None
    """At most so many partitions does any session go on beyond its first."""
    buckets: int | None = None
    """The table's new number of buckets: all cells before it are gone."""

    @property
    def input(self) -> Input:
        """The snapshot of the one input."""
        [source] = self.built_from.values()
        return source

    def properties(self) -> SummaryValues:
        """What the summary of the commit's snapshot tells of it, without our prefix."""
        [(source, read)] = self.built_from.items()
        return {
            "receipt": self.name,
            "built-from": f"{source}@{read.snapshot}",
            "fingerprint": self.fingerprint,
            "reason": self.reason,
        }


class FilesReceipt(Receipt):
    """Of `raw_events`: the files that were read, and those that people accepted."""

    kind: Literal["files"] = "files"
    files: tuple[ReadFile, ...] = ()
    accepted: tuple[Acceptance, ...] = ()
    derived: bool = False
    """Whether it tells all that was ever read, found in the rows themselves after receipts were lost."""


class RewriteReceipt(Receipt):
    """Of `raw_events`: records that were decoded again or dropped."""

    kind: Literal["rewrite"] = "rewrite"


class SkippedOffsets(_Model):
    """Offsets of one partition that people had left out: from `first` on, up to and without `end`."""

    topic: str
    partition: int
    generation: int
    first: int
    end: int


class TopicPositions(_Model):
    """How far a topic was read: partition -> the next offset and the topic's generation."""

    topic: str
    id: str | None
    next: Mapping[int, tuple[int, ...]]


class PositionsReceipt(Receipt):
    """Of `raw_events`: how far all topics that the stream ever read have been read."""

    kind: Literal["positions"] = "positions"
    positions: tuple[TopicPositions, ...]
    accepted_up_to: tuple[TopicPositions, ...]
    skipped: tuple[SkippedOffsets, ...] | None = None
    """Readers of version 1 would forget them, and read these offsets after all."""

    @model_validator(mode="before")
    @classmethod
    def _of_version_2_if_it_tells_of_skipped(cls, value: dict[str, Any]) -> dict[str, Any]:
        return {"version": 2, **value} if value.get("skipped") else value


AnyReceipt = BuildReceipt | FilesReceipt | RewriteReceipt | PositionsReceipt
_ANY: TypeAdapter[AnyReceipt] = TypeAdapter(Annotated[AnyReceipt, Field(discriminator="kind")])


def receipt_text(receipt: Receipt) -> bytes:
    """A receipt as it is stored."""
    # What a kind does not tell is left out: to the version before, a name alone said something.
    told = {name: value for name, value in receipt.model_dump(mode="json").items() if value is not None}
    return _text({**told, DIGEST: digest_of(_text(told))})


def parse_receipt(stream: str, name: str, text: bytes) -> AnyReceipt:
    """What is stored under a name. Raises NewerVersionError, and ValueError for what is no receipt or is damaged."""
    value = _parsed(text)
    version = _Header.model_validate(value).version
    if version > VERSION:
        raise NewerVersionError(
            f"{stream}: the receipt {name} is of version {version}, and this program knows versions up to {VERSION}: "
            "it was written by a newer one. Install that version or a newer one, and run again."
        )
    digest = value.pop(DIGEST, None)
    if digest is not None and digest != digest_of(_text(value)):
        raise ValueError("it does not say what its digest is of")
    if value.get("name", name) != name:
        raise ValueError(f"it is the receipt {value['name']}")
    # The first receipts told neither their version nor their kind.
    receipt = _ANY.validate_python({"kind": _kind(value), **value, "name": name})
    if "version" in value and (untold := _always_told(type(receipt)) - value.keys()):
        raise ValueError(f"it does not tell {', '.join(sorted(untold))}")
    return receipt


def digest_of(content: bytes) -> str:
    """By which damage is noticed: SHA-256."""
    return hashlib.sha256(content).hexdigest()


def _text(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _parsed(text: bytes) -> Any:
    """ValueError for what no receipt holds: numbers that no column takes, half characters, depth without end."""
    try:
        value = json.loads(text, parse_int=_of_64_bits)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def _of_64_bits(digits: str) -> int:
    number = int(digits)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{digits} is not a number of 64 bits")
    return number


def _kind(value: Mapping[str, Any]) -> str:
    for kind, keys in _TELLING.items():
        if value.keys() & keys:
            return kind
    raise ValueError("it tells nothing")


_TELLING = {
    "build": {"built_from"},
    "positions": {"positions"},
    "files": {"files", "accepted", "checkpoint"},
    "rewrite": {"rewritten"},
}
"""Kind -> the keys of which the first receipts of that kind have one."""


@cache
def _always_told(kind: type[Receipt]) -> frozenset[str]:
    """The keys that every receipt of a kind has: only what is None is left out."""
    fields = kind.model_fields.items()
    return frozenset(name for name, field in fields if field.get_default(call_default_factory=True) is not None)


def parts_of(receipt: Receipt | None) -> Parts:
    """The parts of a checkpoint; none of what is none."""
    return (receipt.checkpoint if receipt else None) or cast("Parts", {})
