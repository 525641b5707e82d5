"""JSON files that hold lists of events: a document a line, a document over many lines, or one list that is the file.

A list is taken apart as it is read: each event keeps the very bytes that came, one that is broken harms no other, and
no more than one of them is in memory, however long the file is; or some megabytes of them, that are read together.
"""

from collections.abc import Callable, Iterator, Sequence

import polars as pl

from dedup_platform.sources.contents import Batch, listed
from dedup_platform.sources.frame_sizes import MAX_BYTES, rows_of
from dedup_platform.sources.interleaved import interleaved
from dedup_platform.sources.records import (
    MALFORMED_RECORD,
    MAX_RECORD_BYTES,
    Content,
    Fields,
    Record,
    bounded,
    context_text,
    damaged,
    undivided,
)
from dedup_platform.sources.repeated import Repeated, Values
from dedup_platform.sources.text.json_lines import JsonContents
from dedup_platform.sources.text.json_records import json_content
from dedup_platform.sources.text.json_scanner import BrokenTextError, JsonScanner
from dedup_platform.sources.text.json_shapes import JsonShapes

__all__ = ["Placed", "PlacedBatch", "json_event_batches", "json_events"]

Placed = tuple[Record, int, int]
"""A record, the number of its document in the file, and its place in the document's list."""
PlacedBatch = tuple[Batch, Sequence[int], Values[int]]
"""Records that were read together, with the numbers of what they were in, and their places in that."""

_FACTS = {"format": "json"}
_CONTEXT = context_text(**_FACTS)
_REST = context_text(**_FACTS, rest=True)
_UNREAD: Fields = {}


def json_events(chunks: Iterator[bytes], steps: Sequence[str]) -> Iterator[Placed]:
    """The events of one file, whose documents have their lists where these names lead; none: they are the lists.

    A document without such a list is one rejected record. So is a line that is no JSON, and all that follows the place
    where a document of many lines breaks off: nobody can tell where an event begins there.
    """
    return _events(chunks, steps, json_content)


def json_event_batches(chunks: Iterator[bytes], steps: Sequence[str], shapes: JsonShapes) -> Iterator[PlacedBatch]:
    """The same records, some together; `shapes` are those of their stream."""
    waiting: list[Placed] = []
    size, rows = 0, rows_of(len(_CONTEXT))
    for placed in _events(chunks, steps, lambda _: _UNREAD):
        if size >= MAX_BYTES or len(waiting) == rows:
            yield _together(waiting, shapes)
            waiting, size = [], 0
        waiting.append(placed)
        size += len(placed[0][0])
    if waiting:
        yield _together(waiting, shapes)


def _together(placed: Sequence[Placed], shapes: JsonShapes) -> PlacedBatch:
    records, numbers, indexes = zip(*placed, strict=True)
    unread: list[int] = []
    read: list[int] = []
    for place, (_, content, _) in enumerate(records):
        (unread if content is _UNREAD else read).append(place)
    parts: list[tuple[pl.Series, Batch]] = []
    if unread:
        payloads = pl.Series([records[place][0] for place in unread], dtype=pl.Binary)
        batch = payloads, JsonContents(payloads, shapes), Repeated(_CONTEXT, len(payloads))
        parts.append((pl.Series(unread), batch))
    if read:
        parts.append((pl.Series(read), listed([records[place] for place in read])))
    return interleaved(parts), numbers, indexes


def _events(chunks: Iterator[bytes], steps: Sequence[str], read: Callable[[bytes], Content]) -> Iterator[Placed]:
    text = JsonScanner(chunks)
    number = index = 0
    while text.peek():
        text.ends_of_lines = 0
        text.keep()
        try:
            for record in _document(text, steps, read):
                yield record, number, index
                index += 1
        except BrokenTextError:
            _pass_broken(text)
            if text.damage:
                break
            yield (text.kept[:MAX_RECORD_BYTES].rstrip(), MALFORMED_RECORD, _REST), number, index
        text.keep()
        number, index = number + 1, 0
    if text.damage:
        yield damaged(text.kept, text.damage, **_FACTS), number, index


def _document(text: JsonScanner, steps: Sequence[str], read: Callable[[bytes], Content]) -> Iterator[Record]:
    depth, is_there = _enter(text, steps)
    if not is_there:
        text.pass_brackets(depth)
        yield undivided(text.kept, MALFORMED_RECORD, **_FACTS)
        return
    for event in text.elements():
        text.ends_of_lines += b"\n" in event
        yield bounded(event, read, _CONTEXT, _FACTS)
    for step in reversed(steps):
        if text.to_member(step):
            raise BrokenTextError  # the name stands twice


def _enter(text: JsonScanner, steps: Sequence[str]) -> tuple[int, bool]:
    """How many objects of a document were entered and not left, and whether the list comes next."""
    for depth, step in enumerate(steps):
        if text.peek() != b"{":
            text.pass_value()
            return depth, False
        text.take(b"{")
        if not text.to_member(step):
            return depth, False
    if text.peek() == b"[":
        return len(steps), True
    text.pass_value()
    return len(steps), False


def _pass_broken(text: JsonScanner) -> None:
    """Pass what belongs to a document that breaks off: its line, if it has not passed one, or the rest of the file."""
    if text.ends_of_lines == 0:
        text.pass_line()
    elif text.ends_of_lines > 1 or not text.is_at_line:
        text.pass_rest()
