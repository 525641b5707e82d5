"""JSON files that hold lists of events: a document a line, a document over many lines, or one list that is the file.

A list is taken apart as it is read: each event keeps the very bytes that came, one that is broken harms no other, and
no more than one of them is in memory, however long the file is.
"""

from collections.abc import Iterator, Sequence

from dedup_platform.sources.records import (
    MALFORMED_RECORD,
    MAX_RECORD_BYTES,
    Record,
    bounded,
    context_text,
    damaged,
    undivided,
)
from dedup_platform.sources.text.json_records import json_content
from dedup_platform.sources.text.json_scanner import BrokenTextError, JsonScanner

__all__ = ["Placed", "json_events"]

Placed = tuple[Record, int, int]
"""A record, the number of its document in the file, and its place in the document's list."""

_FACTS = {"format": "json"}
_CONTEXT = context_text(**_FACTS)
_REST = context_text(**_FACTS, rest=True)


def json_events(chunks: Iterator[bytes], steps: Sequence[str]) -> Iterator[Placed]:
    """The events of one file, whose documents have their lists where these names lead; none: they are the lists.

    A document without such a list is one rejected record. So is a line that is no JSON, and all that follows the place
    where a document of many lines breaks off: nobody can tell where an event begins there.
    """
    text = JsonScanner(chunks)
    number = index = 0
    while text.peek():
        text.ends_of_lines = 0
        text.keep()
        try:
            for record in _document(text, steps):
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


def _document(text: JsonScanner, steps: Sequence[str]) -> Iterator[Record]:
    depth, is_there = _enter(text, steps)
    if not is_there:
        text.pass_brackets(depth)
        yield undivided(text.kept, MALFORMED_RECORD, **_FACTS)
        return
    for event in text.elements():
        text.ends_of_lines += b"\n" in event
        yield bounded(event, json_content, _CONTEXT, _FACTS)
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
