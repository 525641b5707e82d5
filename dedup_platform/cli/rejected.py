"""Commands about rejected records: look at them, decode them again, drop them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from dedup_platform.cli import rejected_output, values
from dedup_platform.cli.asking import confirm
from dedup_platform.cli.console import err, out
from dedup_platform.cli.deployment import Deployment
from dedup_platform.cli.options import JsonOption, StreamArgument, StreamsOption
from dedup_platform.orchestration.progress import shown

if TYPE_CHECKING:
    from dedup_platform.replay.rejected import Outcome
    from dedup_platform.replay.rewrite import Choice
    from dedup_platform.stream import Stream

app = typer.Typer(help="Look at rejected records, decode them again, drop them.", no_args_is_help=True)

ReasonOption = Annotated[str | None, typer.Option("--reason", metavar="GLOB", help="Those with such a reason.")]
SourceOption = Annotated[str | None, typer.Option("--source", metavar="GLOB", help="Those from such a source.")]
SinceOption = Annotated[
    datetime | None, typer.Option("--since", metavar="TIME", help="Those that arrived then or later (UTC).")
]
UntilOption = Annotated[datetime | None, typer.Option("--until", metavar="TIME", help="Those that arrived before.")]
LimitOption = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="The first N of them, in order of arrival.")
]


@app.command("list")
def list_rejected(
    stream: StreamArgument,
    reason: ReasonOption = None,
    source: SourceOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = None,
    streams: StreamsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count rejected records by reason; where any option chooses some, list those too (20 without --limit)."""
    deployment = Deployment.of(streams)
    deployment.chosen(stream)
    platform, choice = deployment.platform(), _choice(reason, source, since, until)
    reasons = platform.rejected.reasons(stream, choice)
    is_chosen = limit is not None or choice != _choice(None, None, None, None)
    records = platform.rejected.first(stream, choice, limit or rejected_output.RECORDS_SHOWN) if is_chosen else []
    if as_json:
        values.print_json(values.rejected_value(reasons, records))
    else:
        rejected_output.print_rejected(out, reasons, records)


@app.command("show")
def show_rejected(
    stream: StreamArgument,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="As `rejected list` shows it.")],
    offset: Annotated[int, typer.Argument(metavar="OFFSET")],
    partition: Annotated[int, typer.Option("--partition", metavar="N", help="The record's source_partition.")] = 0,
    index: Annotated[int, typer.Option("--index", metavar="N", help="The record's source_index.")] = 0,
    streams: StreamsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one rejected record whole: its payload as text, or hexadecimal if it is none, and its context."""
    deployment = Deployment.of(streams)
    deployment.chosen(stream)
    record = deployment.platform().rejected.record(stream, source, partition, offset, index)
    if as_json:
        values.print_json(values.record_value(record))
    else:
        rejected_output.print_record(out, record)


@app.command()
def replay(
    stream: StreamArgument,
    reason: ReasonOption = None,
    source: SourceOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = None,
    streams: StreamsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Decode rejected records again with today's stream file, all or some; the next run repairs what changed."""
    deployment = Deployment.of(streams)
    [chosen] = deployment.chosen(stream)
    with shown(err, f"{stream}: decoding rejected records again", None):
        outcome = deployment.platform().rejected.replay(stream, _choice(reason, source, since, until), limit)
    print_outcome(chosen, outcome, as_json)


@app.command()
def drop(
    stream: StreamArgument,
    reason: ReasonOption = None,
    source: SourceOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    streams: StreamsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take the payloads from rejected records, all or those chosen, for good; the records themselves stay, marked."""
    from dedup_platform.replay.rewrite import DROPPED

    deployment = Deployment.of(streams)
    [chosen] = deployment.chosen(stream)
    platform, choice = deployment.platform(), _choice(reason, source, since, until)
    reasons = platform.rejected.reasons(stream, choice)
    waiting = sum(each.records for each in reasons if not each.reason.startswith(DROPPED))
    if waiting and not yes:
        confirm(f"Drop {min(waiting, limit or waiting):,} rejected records of {stream}? Their payloads will be gone")
    with shown(err, f"{stream}: dropping rejected records", None):
        outcome = platform.rejected.drop(stream, choice, limit)
    print_outcome(chosen, outcome, as_json)


def print_outcome(stream: Stream, outcome: Outcome, as_json: bool) -> None:
    """What became of records that were decoded again, or dropped."""
    if as_json:
        values.print_json(values.outcome_value(stream, outcome))
    else:
        rejected_output.print_outcome(out, stream, outcome)


def _choice(reason: str | None, source: str | None, since: datetime | None, until: datetime | None) -> Choice:
    from dedup_platform.replay.rewrite import Choice

    first, end = (time.replace(tzinfo=UTC) if time else None for time in (since, until))
    return Choice(reason, source, first, end)
