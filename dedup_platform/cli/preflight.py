"""What records tell of a stream file: names that none of them has, and that none becomes an event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dedup_platform import tables
from dedup_platform.cli import output, values
from dedup_platform.cli.console import out
from dedup_platform.cli.deployment import Deployment, Outcome
from dedup_platform.cli.file_changes import changes_value, print_changes_of_file
from dedup_platform.cli.sample import columns_value, print_columns, rejected_in
from dedup_platform.errors import EmptyStreamError, SourceError, StreamFileError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dedup_platform.platform import Platform, Status
    from dedup_platform.platform.file_changes import FileChanges
    from dedup_platform.sources.sample import Sample
    from dedup_platform.stream import Stream


def check_streams(deployment: Deployment, name: str | None, as_json: bool, offline: bool) -> None:
    """Validate stream files, and unless `offline` some of the records that wait; print what was found of each."""
    platform = deployment.platform()
    streams = {each.name: each for each in deployment.chosen(name)}
    changes = {each: changed(platform, each) for each in streams}
    outcome: Outcome[Sample] = (
        Outcome({}, [] if name else list(deployment.broken))
        if offline
        else deployment.for_each(name, lambda stream: looked_at(platform, stream))
    )
    problems = (refused(streams[name], sample) for name, sample in outcome.done.items())
    outcome.failures.extend(problem for problem in problems if problem)
    if as_json:
        told = {name: {"sample": columns_value(sample)} for name, sample in outcome.done.items()}
        values.print_json(
            [
                stream.model_dump(mode="json")
                | {"stream_file": changes_value(stream, changes[stream.name])}
                | told.get(stream.name, {})
                for stream in streams.values()
            ]
        )
    else:
        output.print_streams(out, streams.values())
        for each in streams:
            output.print_switched_off(out, each, platform.switched_off(each))
            print_changes_of_file(out, streams[each], changes[each])
        for each, sample in outcome.done.items():
            print_columns(out, each, sample)
    outcome.end()


def looked_at(platform: Platform, stream: Stream) -> Sample:
    """Some of the records that wait. SourceError if no file matches, and none was ever read."""
    sample = platform.source.sample(stream.name)
    if not sample.reasons and stream.source.kind == "files" and not platform.source.has_read_files(stream.name):
        raise SourceError(stream.files.place, "no file matches that can be read; is source.path right?")
    return sample


def changed(platform: Platform, name: str) -> FileChanges:
    """What a change of the stream file does to what is there already."""
    stream = platform.stream(name)
    # A plan creates the tables that are missing beside others.
    is_whole = len(platform.lake.check(stream)) == len(tables.all_of(stream))
    return platform.stream_file.changes(name, platform.plan(name) if is_whole else (), platform.rejected.count(name))


def refused(stream: Stream, sample: Sample) -> StreamFileError | None:
    """Why the stream file does not fit the records; None if it does."""
    problems = [f"{stream.origin}: fields.{each}" for each in _wrong_names(stream, sample)]
    if sample.reasons and not sample.reasons[None] and not problems:
        total = sample.reasons.total()
        problems = [f"{stream.origin}: all of the first {total:,} records would be rejected: {rejected_in(sample)}"]
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


def _wrong_names(stream: Stream, sample: Sample) -> Iterator[str]:
    for column, problem in sample.wrong_names:
        yield f"attributes.{column}: {problem}" if column in stream.attributes else f"{column}: {problem}"
