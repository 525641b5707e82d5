"""How the records of a file are written, by its first bytes: the format and what a format needs besides its name."""

import re
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from dedup_platform.errors import InferenceError
from dedup_platform.infer.columns import columns_of
from dedup_platform.infer.times import time_columns
from dedup_platform.planning.moments import utc_now
from dedup_platform.sources.text.csv_records import USUAL, Dialect, parsed
from dedup_platform.sources.text.json_documents import json_events
from dedup_platform.sources.text.json_records import canonical, json_content
from dedup_platform.stream.paths import text_of_steps

__all__ = ["Layout", "layout_of"]

_MAGIC = {b"PAR1": "parquet", b"Obj\x01": "avro"}
_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_DIALECTS = tuple(Dialect(delimiter, quote) for quote in ('"', "'") for delimiter in (",", ";", "\t", "|", " "))
_UTF_8 = "utf-8"
_ONE_BYTE_A_CHARACTER = "windows-1252"
"""What texts are most often in that are not in UTF-8."""
_LINES = 200
_DOCUMENTS = 20
_LONG_LINE = 2**19
"""Of more bytes without an end of a line nobody knows whether they are one object."""
_EVENTS = 200
_ALIKE = 0.9
_CONTROL = re.compile(rb"[\x01-\x08\x0e-\x1f]")
"""Of characters that stand in no text there are many in what is none."""
_COMMENT = "#"
_LIST = re.compile(rb'"((?:[^"\\\x00-\x1f]|\\.){1,64})"\s*:\s*\[\s*\{')
_LISTS = 20
_NUMBER_OR_TIME = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)?|[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}.*|[0-9]+:[0-9]+.*")


@dataclass(frozen=True)
class Layout:
    """What a stream file's `source` says of the format."""

    format: str
    dialect: Dialect = USUAL
    encoding: str = _UTF_8
    comment: str | None = None
    columns: tuple[str, ...] | None = None
    """Names of csv columns, where there is no header."""
    explode: str | None = None
    evidence: str = ""

    @property
    def source(self) -> dict[str, Any]:
        """The keys of `source`."""
        csv: dict[str, Any] = dict(self.dialect.facts)
        if self.encoding != _UTF_8:
            csv["encoding"] = self.encoding
        if self.comment:
            csv["comment"] = self.comment
        if self.columns:
            csv["columns"] = list(self.columns)
        return (
            {"format": self.format}
            | ({"csv": csv} if csv else {})
            | ({"explode": self.explode} if self.explode else {})
        )


def layout_of(name: str, beginning: bytes) -> Layout:
    """The layout of a file of this name that begins, unpacked, by these bytes. InferenceError if none fits."""
    if magic := _MAGIC.get(beginning[:4]):
        return Layout(magic)
    text = beginning.removeprefix(_BOM).lstrip()
    if not text:
        raise InferenceError(name, "is empty, or cannot be unpacked")
    if beginning.startswith(_UTF_16):
        return _of_utf_16(name, beginning)
    if b"\0" in beginning or len(_CONTROL.findall(beginning)) > len(beginning) / 100:
        raise InferenceError(name, "is neither text nor Parquet nor Avro; Protobuf needs --schema FILE.proto")
    if text[:1] in b"{[":
        return _json(name, text)
    is_utf_8 = getincrementaldecoder(_UTF_8)("replace").decode(text).count("\ufffd") == 0
    return _csv(name, text, _UTF_8 if is_utf_8 else _ONE_BYTE_A_CHARACTER)


def _of_utf_16(name: str, beginning: bytes) -> Layout:
    text = getincrementaldecoder("utf-16")("replace").decode(beginning).lstrip().encode()
    if text[:1] in b"{[":
        raise InferenceError(name, "is JSON in UTF-16; convert it to UTF-8: iconv -f UTF-16 -t UTF-8")
    return _csv(name, text, "utf-16")


def _json(name: str, text: bytes) -> Layout:
    if text.startswith(b"["):
        if _events(text, ()):
            return Layout("json", explode="*", evidence="the file is a list of events")
        raise InferenceError(name, "begins by a list in which there are no objects")
    lines = [line for line in text.splitlines()[:_DOCUMENTS] if line.strip()]
    documents = [each for line in lines if isinstance(each := json_content(line), dict)]
    if len(documents) > len(lines) / 2:
        steps = next((each for each in _lists(documents[0]) if _is_most(documents, each)), None)
        return _exploded(steps) if steps else Layout("json", evidence="a JSON object a line")
    if len(lines) == 1 and len(text) > _LONG_LINE:
        raise InferenceError(
            name, f"begins by a line that does not end within {len(text):,} bytes; write the stream file by hand"
        )
    for found in dict.fromkeys(islice((each[1] for each in _LIST.finditer(text)), _LISTS)):
        steps = (found.decode("utf-8", "replace"),)
        if _has_times(_events(text, steps)):
            return _exploded(steps)
    raise InferenceError(
        name,
        "begins as JSON, but no line is an object, and it has no list of objects with times that `explode` could name",
    )


def _exploded(steps: tuple[str, ...]) -> Layout:
    return Layout("json", explode=text_of_steps(steps), evidence=f"each event is in the list {text_of_steps(steps)}")


def _lists(document: Any, steps: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where in a document lists of objects are, outside of other lists."""
    for name, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield (*steps, name)
        elif isinstance(value, dict) and len(steps) < 2:
            yield from _lists(value, (*steps, name))


def _is_most(documents: Sequence[Any], steps: tuple[str, ...]) -> bool:
    """Whether a list is most of what the documents hold, and its objects have times, so that they are the events."""
    lists = [_at(each, steps) for each in documents]
    held = sum(len(canonical(each)) for each in lists if each)
    events = [event for each in lists for event in each if isinstance(event, dict)]
    return held > sum(len(canonical(each)) for each in documents) / 2 and _has_times(events)


def _at(document: Any, steps: Sequence[str]) -> list[Any]:
    for step in steps:
        document = document.get(step) if isinstance(document, dict) else None
    return document if isinstance(document, list) else []


def _events(text: bytes, steps: tuple[str, ...]) -> list[Any]:
    placed = islice(json_events(iter([text]), steps), _EVENTS)
    return [content for (_, content, _), _, _ in placed if isinstance(content, dict)]


def _has_times(events: Sequence[Any]) -> bool:
    times = time_columns(columns_of(events[:_EVENTS], is_flat=False), utc_now()) if events else []
    return any(each.has_clock and each.moments.null_count() == 0 for each in times)


def _csv(name: str, text: bytes, encoding: str) -> Layout:
    lines = [line for line in text.splitlines(keepends=True)[: _LINES + 1] if line.strip()]
    # The last may have been cut.
    lines = lines[:-1] if len(lines) > 1 and not text.endswith((b"\n", b"\r")) else lines
    comments = [line for line in lines if line.startswith(_COMMENT.encode())]
    lines = [line for line in lines if not line.startswith(_COMMENT.encode())]
    if not lines:
        raise InferenceError(name, "has no lines but comments")
    dialect, rows = max(((each, _rows(lines, each)) for each in _DIALECTS), key=lambda each: _fit(*each))
    if _fit(dialect, rows) <= 0 or not rows[0]:
        raise InferenceError(name, "is no csv: its lines do not have equally many fields, whatever stands between them")
    comment = _COMMENT if comments else None
    found = partial(Layout, "csv", dialect, encoding, comment)
    if named := _named_in(comments, dialect.delimiter, rows):
        return found(named, evidence="names of the columns from its comment #Fields:")
    if repeated := _repeated_names(rows):
        raise InferenceError(
            name,
            f"the first line names {', '.join(repeated)} more than once, so that none of these can be read; "
            "mend it, or write the stream file by hand, with csv: {columns: […]}",
        )
    if _is_header(rows):
        return found(evidence="the first line names the columns")
    columns = tuple(f"column_{number}" for number in range(1, len(rows[0]) + 1))
    return found(columns, evidence="no header was found, so the names are made up")


def _rows(lines: list[bytes], dialect: Dialect) -> list[Sequence[str]]:
    """The fields of each record; of a malformed one none."""
    return [row or () for _, _, row, _ in parsed(lines, dialect, final=True) if row != []]


def _fit(dialect: Dialect, rows: Sequence[Sequence[str]]) -> float:
    """How well lines have equally many fields by a delimiter; 0 if they do not."""
    [(width, count)] = Counter(map(len, rows)).most_common(1) or [(0, 0)]
    if width < 2 or count < _ALIKE * len(rows):
        return 0.0
    # Spaces stand in texts, too.
    return count / len(rows) + 0.001 * width - (0.5 if dialect.delimiter == " " else 0.0)


def _named_in(comments: Sequence[bytes], delimiter: str, rows: Sequence[Sequence[str]]) -> tuple[str, ...] | None:
    for line in comments:
        if line.startswith(b"#Fields:"):
            names = line.removeprefix(b"#Fields:").decode("utf-8", "replace").strip().split(delimiter)
            return tuple(names) if len({*names}) == len(names) == len(rows[0]) else None
    return None


def _repeated_names(rows: Sequence[Sequence[str]]) -> list[str]:
    """The names that stand more than once in a header; none where the first row is like the others."""
    first = rows[0]
    repeated = [cell for cell, count in Counter(first).items() if count > 1]
    distinct = [f"{cell} {number}" for number, cell in enumerate(first)]
    return repeated if repeated and _is_header([distinct, *rows[1:]]) else []


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row is unlike the others: it has names where they have numbers or times, or only names."""
    first, others = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    if any(_NUMBER_OR_TIME.fullmatch(cell.strip()) for cell in first) or len({*first}) < len(first):
        return False
    columns = list(zip(*others, strict=True))
    typed = [any(each) and all(_NUMBER_OR_TIME.fullmatch(cell.strip()) for cell in each if cell) for each in columns]
    return not others or any(typed) or not any(cell in each for cell, each in zip(first, columns, strict=True))
