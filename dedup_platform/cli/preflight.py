"""What records tell of a stream file: names that none of them has, and that none becomes an event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dedup_platform import tables
from dedup_platform.cli.output import as_given, plain_table
from dedup_platform.errors import EmptyStreamError, SourceError, StreamFileError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from dedup_platform.platform import Platform, Status
    from dedup_platform.sources.sample import Sample
    from dedup_platform.stream import Stream

_WIDEST = 30


def looked_at(platform: Platform, stream: Stream) -> Sample:
    """Some of the records that wait. SourceError if no file matches, and none was ever read."""
    sample = platform.source.sample(stream.name)
    if not sample.reasons and stream.source.kind == "files" and not platform.source.has_read_files(stream.name):
        raise SourceError(stream.files.place, "no file matches that can be read; is source.path right?")
    return sample


def refused(stream: Stream, sample: Sample) -> StreamFileError | None:
    """Why the stream file does not fit the records; None if it does."""
    problems = [f"{stream.origin}: fields.{each}" for each in _wrong_names(stream, sample)]
    if sample.reasons and not sample.reasons[None] and not problems:
        total = sample.reasons.total()
        problems = [f"{stream.origin}: all of the first {total:,} records would be rejected: {_reasons(sample)}"]
    return StreamFileError(*problems) if problems else None


def without_events(platform: Platform, stream: Stream, status: Status) -> EmptyStreamError | None:
    """What to say of a stream of which records were taken in, and no event or no session came; else None.

    Where `reject` says which share of a batch may be rejected, that decides, and whoever accepts such a batch.
    """
    rows = {each.table: each.rows for each in status.tables}
    events = rows.get(tables.DEDUPLICATED_EVENTS, 0)
    if status.records_read and status.rejected == status.records_read and not stream.reject:
        counted = platform.rejected.reasons(stream.name)
        reasons = ", ".join(f"{each.reason} {each.records:,}" for each in counted)
        what = f"all {status.records_read:,} records were rejected: {reasons}"
        following = f"`dedup-platform rejected list {stream.name}` lists them; once the stream file is mended, "
        following += f"`dedup-platform rejected replay {stream.name}` takes them in"
    elif stream.sessions and events and not rows.get(tables.SESSIONS, 0):
        first, last = min(status.partitions), max(status.partitions)
        what = f"none of {events:,} events has an entity (fields.entity_id), so there are no sessions"
        following = f"once the stream file is mended, `dedup-platform redecode {stream.name} --partitions "
        following += f"{first}..{last}` and a run bring them"
    else:
        return None
    return EmptyStreamError(f"{stream.name}: {what}; {following}")


def print_columns(console: Console, name: str, sample: Sample) -> None:
    """How many of the records that were looked at have each field, and the first values."""
    if not sample.reasons:
        console.print(f"{name}: nothing waits to be read.", markup=False)
        return
    total = sample.reasons.total()
    rejected = f", others rejected: {_reasons(sample)}" if sample.reasons[None] < total else ""
    console.print(f"{name}: of {total:,} records that wait {sample.reasons[None]:,} are events{rejected}", markup=False)
    table = plain_table("column", "field~", "found#", "empty#", "absent#", "unreadable#", "values~")
    for column, each in sample.columns.items():
        numbers = [f"{number:,}" for number in (each.found, each.empty, each.absent, each.unreadable)]
        values = " | ".join(text if len(text) <= _WIDEST else f"{text[:_WIDEST]}…" for text in each.values)
        table.add_row(column, as_given(each.named), *numbers, as_given(values))
    if sample.columns:
        console.print(table)


def sample_value(sample: Sample) -> dict[str, Any]:
    """The same for programs."""
    columns = {
        column: {
            "field": each.named,
            "found": each.found,
            "empty": each.empty,
            "absent": each.absent,
            "unreadable": each.unreadable,
            "values": each.values,
        }
        for column, each in sample.columns.items()
    }
    rejected = {reason: count for reason, count in sample.reasons.items() if reason}
    return {"events": sample.reasons[None], "rejected": rejected, "columns": columns}


def _wrong_names(stream: Stream, sample: Sample) -> Iterator[str]:
    for column, problem in sample.wrong_names:
        yield f"attributes.{column}: {problem}" if column in stream.attributes else f"{column}: {problem}"


def _reasons(sample: Sample) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in sample.reasons.most_common() if reason)
