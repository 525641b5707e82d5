"""Some rows of what a run changed, as tables that the UI shows with a materialization.

Rows come from outside. In a table of Dagster's a text is a text, so none becomes a link, a heading or a script; what a
terminal would obey is spelled out, in case that somebody copies it, and what is named like a secret is left out.
"""

import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import dagster as dg

from dedup_platform.escapes import one_line
from dedup_platform.platform import Platform
from dedup_platform.platform.samples import changed_sessions, newly_rejected
from dedup_platform.replay.rejected import RejectedRecord
from dedup_platform.stream import Stream

Context = dg.AssetExecutionContext | dg.OpExecutionContext
Preview = Mapping[str, dg.TableMetadataValue]
Row = Mapping[str, str | int | float | bool | None]

LONGEST: Final = 80
"""Letters of a value that are shown."""
LONGEST_COMMAND: Final = 400
MOST_COLUMNS: Final = 20
_HIDDEN: Final = "***"
_NAMED_SECRET = r"[\w.-]*(?:secret|passw|token|credential|access[_-]?key|api[_-]?key|authorization)[\w.-]*"
_SECRET = re.compile(
    rf"""({_NAMED_SECRET}\\?["']?\s*[:=]\s*)(?:(?:bearer|basic)\s+)?("[^"]*"?|'[^']*'?|[^\s,;&}}]+)""", re.IGNORECASE
)


def of_sessions(context: Context, platform: Platform, stream: Stream, snapshot_id: int | None) -> Preview:
    """Some of the sessions that a commit brought or changed."""
    if snapshot_id is None:
        return {}

    def rows() -> list[Row]:
        found = changed_sessions(platform, stream.name, snapshot_id)
        return [{name: _shown(name, each[name]) for name in list(each)[:MOST_COLUMNS]} for each in found]

    return _told(context, platform, "changed_sessions", rows)


def of_rejected(context: Context, platform: Platform, stream: Stream, snapshot_ids: Collection[int]) -> Preview:
    """Some of the records that ingests rejected, and what to type to see each whole, and to try its like again."""

    def rows() -> list[Row]:
        return [_rejected(stream, each) for each in newly_rejected(platform, stream.name, snapshot_ids)]

    return _told(context, platform, "rejected_records", rows)


def safe(text: str, longest: int = LONGEST) -> str:
    """A text from outside as it is shown: in one line, cut off, and without what is named like a secret."""
    told = one_line(_SECRET.sub(rf"\1{_HIDDEN}", text[: 4 * longest]))
    return told if len(told) <= longest else f"{told[: longest - 1]}…"


def _told(context: Context, platform: Platform, name: str, rows: Callable[[], Sequence[Row]]) -> Preview:
    """The rows as a table, none without rows. What fails here fails no run: the tables are written by now."""
    if not platform.settings.previews:
        return {}
    try:
        found = [dg.TableRecord(dict(row)) for row in rows()]
    except Exception as error:
        context.log.warning(f"{name}: no row can be shown: {type(error).__name__}: {one_line(str(error))}")
        return {}
    if not found:
        return {}
    columns = [
        dg.TableColumn(each, "int" if isinstance(value, int) else "string") for each, value in found[0].data.items()
    ]
    return {name: dg.MetadataValue.table(found, dg.TableSchema(columns))}


def _shown(name: str, value: Any) -> str | int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53):
        return value
    if re.fullmatch(_NAMED_SECRET, name, re.IGNORECASE):
        return _HIDDEN
    return f"{value:%Y-%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".") if isinstance(value, datetime) else safe(str(value))


def _rejected(stream: Stream, record: RejectedRecord) -> Row:
    payload = "" if record.payload is None else record.payload.decode("utf-8", "backslashreplace")
    return {
        "reason": safe(record.rejection_reason),
        "source": safe(record.source),
        "offset": record.source_offset,
        "payload begins": safe(payload),
        "show": _show(stream, record),
        "replay": shlex.join(
            ["dedup-platform", "rejected", "replay", stream.name, "--reason", record.rejection_reason]
        ),
    }


def _show(stream: Stream, record: RejectedRecord) -> str:
    command = ["dedup-platform", "rejected"]
    places = {"--partition": record.source_partition, "--index": record.source_index}
    options = [word for name, place in places.items() if place for word in (name, str(place))]
    coordinates = ["--", stream.name, record.source, str(record.source_offset)]
    told = shlex.join([*command, "show", *options, *coordinates[record.source[:1] != "-" :]])
    if told.isprintable() and len(told) <= LONGEST_COMMAND:
        return told
    # No shell takes such a name as it is; a pattern finds it, or what has the same reason.
    pattern = "".join(char if char.isprintable() else "?" for char in record.source)
    told = shlex.join([*command, "list", stream.name, f"--source={pattern}"])
    like = shlex.join([*command, "list", stream.name, f"--reason={record.rejection_reason}"])
    return told if len(told) <= LONGEST_COMMAND else like
