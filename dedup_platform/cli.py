"""The command line: arguments -> call -> print."""

import os
import sys
import traceback
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Annotated

import typer
from rich.console import Console

from dedup_platform import connect_server, errors, printing, tables
from dedup_platform.export import EXPORTED, STDOUT, WRITERS, export as write_rows
from dedup_platform.maintenance import Upkeep
from dedup_platform.platform import Platform, Status
from dedup_platform.progress import shown
from dedup_platform.redecoding import DROPPED, Choice
from dedup_platform.rejected import REJECTED_EVENTS, Outcome
from dedup_platform.settings import Settings, load_settings
from dedup_platform.spark import spark_session
from dedup_platform.stream import Stream, load_streams

NOT_EQUAL = 1
REFUSED = 4
FAILED = 5
INTERRUPTED = 130
EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (errors.StreamFileError, 2),
    (errors.SettingsError, 2),
    (errors.UnknownStreamError, 2),
    (errors.UnknownFileError, 2),
    (errors.UnknownRecordError, 2),
    (errors.ConflictError, 3),
    (errors.SourceChangedError, 3),
    (errors.IncompatibleChangeError, 4),
    (errors.ConservationError, 4),
    (errors.HeldBatchError, 4),
    (errors.LostRecordsError, 4),
)
HELP = """Deduplicated events and sessions with stable ids, in Apache Iceberg, kept right while events arrive late.

Exit codes:

0  done

1  not equal: `verify` found differences, or `demo` did not find the truth

2  arguments, settings or stream files are wrong

3  someone else committed first, or a file changed while it was read: run again

4  refused, and nothing was published: a change that needs another stream, counts that do not balance, records that the
source has lost, a batch that is held because too much of it would be rejected, or your no

5  anything else that failed

130  interrupted
"""

app = typer.Typer(help=HELP, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
files_app = typer.Typer(help="Decide about files that the platform left alone.", no_args_is_help=True)
app.add_typer(files_app, name="files")
offsets_app = typer.Typer(
    help="Look at how far a topic has been read, and decide about what it lost.", no_args_is_help=True
)
app.add_typer(offsets_app, name="offsets")
rejected_app = typer.Typer(help="Look at rejected records, decode them again, drop them.", no_args_is_help=True)
app.add_typer(rejected_app, name="rejected")
batches_app = typer.Typer(help="Decide about batches that are held.", no_args_is_help=True)
app.add_typer(batches_app, name="batches")

out = Console()
err = Console(stderr=True)

StreamsOption = Annotated[
    Path | None,
    typer.Option("--streams", metavar="PATH", help="A stream file or a folder of them; else DEDUP_PLATFORM_STREAMS."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document for programs.")]
StreamArgument = Annotated[str, typer.Argument(metavar="STREAM")]
ReasonOption = Annotated[str | None, typer.Option("--reason", metavar="GLOB", help="Those with such a reason.")]
SourceOption = Annotated[str | None, typer.Option("--source", metavar="GLOB", help="Those from such a source.")]
SinceOption = Annotated[
    datetime | None, typer.Option("--since", metavar="TIME", help="Those that arrived then or later (UTC).")
]
UntilOption = Annotated[datetime | None, typer.Option("--until", metavar="TIME", help="Those that arrived before.")]
LimitOption = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="The first N of them, in order of arrival.")
]


@dataclass(frozen=True)
class Deployment:
    """The settings and streams that a command works on."""

    settings: Settings
    streams: dict[str, Stream]

    @classmethod
    def of(cls, path: Path | None) -> "Deployment":
        settings = load_settings()
        found = path or settings.streams
        if found is None:
            raise errors.SettingsError("there are no stream files: give --streams PATH or set DEDUP_PLATFORM_STREAMS")
        return cls(settings, load_streams(found))

    def platform(self) -> Platform:
        return Platform.open(self.settings, self.streams, spark=lambda: spark_session(self.settings))

    def chosen(self, name: str | None) -> list[Stream]:
        """The named stream, or all."""
        if name is not None and name not in self.streams:
            raise errors.UnknownStreamError(name, self.streams)
        return [self.streams[name]] if name else list(self.streams.values())

    def of_topic(self, name: str) -> Stream:
        """The named stream, which must read a topic."""
        return self._of_kind(name, "kafka")

    def of_files(self, name: str) -> Stream:
        """The named stream, which must read files."""
        return self._of_kind(name, "files")

    def _of_kind(self, name: str, kind: str) -> Stream:
        [stream] = self.chosen(name)
        if stream.source.kind != kind:
            raise typer.BadParameter(f"{name} has a source of kind {stream.source.kind}; this is about kind {kind}")
        return stream


def main() -> None:
    """Run the command line; every failure becomes one message and an exit code.

    The work has a thread of its own: in the main one, Spark would answer an interrupt itself, with pages of traceback.
    """
    codes: list[int] = []
    worker = Thread(target=lambda: codes.append(_run()), daemon=True)
    worker.start()
    try:
        worker.join()
    except KeyboardInterrupt:
        err.print("\ninterrupted; what was committed stays, and the next run goes on from there")
        # Not sys.exit, which would wait for Spark; Dagster's record of the run is put right by the next one.
        os._exit(INTERRUPTED)
    sys.exit(codes[0])


def _run() -> int:
    try:
        app()
    except SystemExit as ended:
        return int(ended.code or 0)
    except Exception as error:
        if "--debug" in sys.argv:
            traceback.print_exc()
        else:
            err.print("[bold red]error:[/bold red] ", end="")
            err.print(message_of(error), markup=False, highlight=False, soft_wrap=True)
        return exit_code(error)
    return 0


def exit_code(error: Exception) -> int:
    """What HELP promises for a failure."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), FAILED)


def message_of(error: Exception) -> str:
    """What to print of a failure: all that the platform says, the first line of what anybody else says."""
    if isinstance(error, errors.DedupPlatformError):
        return str(error)
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first} (--debug before the command shows where)"


@app.callback()
def options(debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False) -> None:
    """Options of every command."""


@app.command()
def check(streams: StreamsOption = None, as_json: JsonOption = False) -> None:
    """Validate the stream files, also against tables that exist."""
    deployment = Deployment.of(streams)
    platform = deployment.platform()
    for stream in deployment.streams.values():
        platform.lake.check(stream)
    if as_json:
        printing.print_json([stream.model_dump(mode="json") for stream in deployment.streams.values()])
    else:
        printing.print_streams(out, deployment.streams.values())


@app.command()
def run(
    streams: StreamsOption = None,
    stream: Annotated[str | None, typer.Option("--stream", metavar="NAME", help="Only this stream.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Ingest all that waits, then recompute until nothing is stale. Dagster's UI shows the run."""
    from dedup_platform.orchestration.embedded import STEPS, run_stream

    deployment = Deployment.of(streams)
    failures = []
    for each in deployment.chosen(stream):
        with shown(err, each.name, STEPS) as listener:
            try:
                run_stream(deployment.settings, deployment.streams, each.name, listener)
            except errors.DedupPlatformError as error:
                # One stream's trouble is not another's.
                failures.append(error)
                listener.say(f"{each.name}: {error}")
    _print_status(deployment, stream, as_json)
    if failures:
        raise failures[0]


@app.command()
def plan(streams: StreamsOption = None, as_json: JsonOption = False) -> None:
    """What is stale, why, how much, and which runs would repair it. Runs nothing."""
    deployment = Deployment.of(streams)
    platform = deployment.platform()
    plans = [(stream, each) for stream in deployment.streams.values() for each in platform.plan(stream.name)]
    if as_json:
        printing.print_json([printing.plan_value(stream, each) for stream, each in plans])
    else:
        printing.print_plans(out, plans)


@app.command()
def status(streams: StreamsOption = None, as_json: JsonOption = False) -> None:
    """The tables in numbers, and what waits at the sources."""
    _print_status(Deployment.of(streams), None, as_json)


@app.command()
def export(
    stream: StreamArgument,
    table: Annotated[str, typer.Argument(metavar="TABLE", help=", ".join(EXPORTED))],
    to: Annotated[
        Path, typer.Option("--to", metavar="FILE", help="A .csv or .parquet file; - is csv to standard output.")
    ],
    streams: StreamsOption = None,
) -> None:
    """Write a table's current rows to a file."""
    if table not in EXPORTED:
        raise typer.BadParameter(f"{table!r} is no table; tables: {', '.join(EXPORTED)}")
    if to != STDOUT and to.suffix not in WRITERS:
        raise typer.BadParameter(f"{to}: must end in {' or '.join(WRITERS)}, or be - for csv on standard output")
    deployment = Deployment.of(streams)
    deployment.chosen(stream)
    platform = deployment.platform()
    expected = platform.count_rejected(stream) if table == REJECTED_EVENTS else platform.rows(stream, table)
    with shown(err, f"{stream}.{table}", expected) as listener:
        rows = write_rows(platform, stream, table, to, listener.done)
        listener.say(f"{rows:,} rows of {stream}.{table} written to {to if to != STDOUT else 'standard output'}")


@app.command()
def verify(
    stream: Annotated[str | None, typer.Argument(metavar="[STREAM]")] = None,
    streams: StreamsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute everything from raw_events and compare it with the tables row for row; writes nothing."""
    deployment = Deployment.of(streams)
    platform = deployment.platform()
    found: dict[str, list[str]] = {}
    for each in deployment.chosen(stream):
        with shown(err, f"{each.name}: recomputing from {tables.RAW_EVENTS}", None):
            found[each.name] = platform.verify(each.name)
    if as_json:
        printing.print_json(found)
    else:
        for name, differences in found.items():
            out.print("\n".join([f"{name}: {'differs' if differences else 'equal'}", *differences]), markup=False)
    if any(found.values()):
        raise typer.Exit(NOT_EQUAL)


@app.command()
def maintain(
    streams: StreamsOption = None,
    stream: Annotated[str | None, typer.Option("--stream", metavar="NAME", help="Only this stream.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compact small files, expire old snapshots and remove orphaned files; changes no row."""
    deployment = Deployment.of(streams)
    platform = deployment.platform()
    done: dict[str, list[Upkeep]] = {}
    for each in deployment.chosen(stream):
        with shown(err, f"{each.name}: looking after its tables", None):
            done[each.name] = platform.maintain(each.name)
    if as_json:
        printing.print_json({name: [asdict(table) for table in found] for name, found in done.items()})
    else:
        printing.print_upkeep(out, done)


@app.command()
def buckets(
    stream: StreamArgument,
    number: Annotated[
        int | None,
        typer.Argument(metavar="[N]", help="A power of two; without it, what the stream file says.", min=1, max=4096),
    ] = None,
    streams: StreamsOption = None,
) -> None:
    """Change the number of buckets of a stream's tables; no row changes. Called again, it goes on where it was."""
    deployment = Deployment.of(streams)
    [chosen] = deployment.chosen(stream)
    wanted = number or chosen.buckets
    if not wanted or wanted & (wanted - 1):
        raise typer.BadParameter(f"{wanted or 'none'}: the number of buckets must be a power of two, up to 4096")
    if chosen.buckets not in (0, wanted):
        said = f"the file says buckets: {chosen.buckets}; write {wanted} there first"
        raise typer.BadParameter(f"{said}: {chosen.origin}")
    with shown(err, f"{stream}: {wanted} buckets", None) as listener:
        deployment.platform().change_buckets(
            stream, wanted, lambda table, done, all_: listener.say(f"{table}: {done} of {all_} partitions copied")
        )
    out.print(f"The tables of {stream} have {wanted} buckets.")


@app.command()
def redecode(
    stream: StreamArgument,
    partitions: Annotated[str, typer.Option("--partitions", metavar="FIRST..LAST", help="Keys, as 2026-01-31.")],
    streams: StreamsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Decode the events of some partitions again, after a correction of `fields`; the next run repairs what changed."""
    deployment = Deployment.of(streams)
    [chosen] = deployment.chosen(stream)
    ordinals = _ordinals(chosen, partitions)
    with shown(err, f"{stream}: decoding {partitions} again", None):
        outcome = deployment.platform().redecode(stream, ordinals)
    _print_outcome(chosen, outcome, as_json)


@app.command()
def demo(
    events: Annotated[
        int, typer.Option("--events", metavar="N", min=1, help="How many different clicks to make up.")
    ] = 200_000,
) -> None:
    """Generate a click stream with known truth, run it, print found against truth, then repair after a late file."""
    from dedup_platform.demo.rehearsal import rehearse

    if not rehearse(load_settings(), events, out, err):
        raise typer.Exit(NOT_EQUAL)


@app.command("connect-server")
def run_connect_server(
    port: Annotated[int, typer.Option("--port", help="To listen on.")] = connect_server.DEFAULT_PORT,
) -> None:
    """Run a warm Spark for the runs of other processes: a Spark Connect server, until it is interrupted."""
    settings = load_settings()
    environment = connect_server.prepare(settings, port)
    err.print(f"DEDUP_PLATFORM_SPARK_REMOTE={connect_server.address(port)} uses this server, process {os.getpid()}")
    program, *arguments = connect_server.command(settings)
    os.execve(program, [program, *arguments], environment)


@files_app.command()
def accept(
    stream: StreamArgument,
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Absolute, an s3:// URL, or below the source's folder.")
    ],
    streams: StreamsOption = None,
) -> None:
    """Let files that changed after they were read be read again, as a new generation, by the next run."""
    deployment = Deployment.of(streams)
    source = deployment.of_files(stream).files
    relative = [source.below_root(path) for path in paths]
    deployment.platform().accept(stream, relative)
    out.print(f"{len(relative)} files accepted; the next run reads them again.")


@offsets_app.command("show")
def show_offsets(stream: StreamArgument, streams: StreamsOption = None, as_json: JsonOption = False) -> None:
    """How far each partition of a topic has been read, and what its consumer group was told."""
    deployment = Deployment.of(streams)
    offsets = deployment.platform().offsets(deployment.of_topic(stream).name)
    if as_json:
        printing.print_json([asdict(each) for each in offsets])
    else:
        printing.print_offsets(out, offsets)


@offsets_app.command("accept")
def accept_losses(stream: StreamArgument, streams: StreamsOption = None) -> None:
    """Go on behind what a topic has lost; one that began anew is read from its beginning."""
    deployment = Deployment.of(streams)
    commit = deployment.platform().accept_losses(deployment.of_topic(stream).name)
    out.print("Nothing is lost." if commit is None else "Accepted; the next run goes on from there.")


@rejected_app.command("list")
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
    reasons = platform.rejected_reasons(stream, choice)
    is_chosen = limit is not None or choice != Choice()
    records = platform.rejected_records(stream, choice, limit or printing.RECORDS_SHOWN) if is_chosen else []
    if as_json:
        printing.print_json(printing.rejected_value(reasons, records))
    else:
        printing.print_rejected(out, reasons, records)


@rejected_app.command("show")
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
    record = deployment.platform().rejected_record(stream, source, partition, offset, index)
    if as_json:
        printing.print_json(printing.record_value(record))
    else:
        printing.print_record(out, record)


@rejected_app.command()
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
        outcome = deployment.platform().replay(stream, _choice(reason, source, since, until), limit)
    _print_outcome(chosen, outcome, as_json)


@rejected_app.command()
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
    deployment = Deployment.of(streams)
    [chosen] = deployment.chosen(stream)
    platform, choice = deployment.platform(), _choice(reason, source, since, until)
    reasons = platform.rejected_reasons(stream, choice)
    waiting = sum(each.records for each in reasons if not each.reason.startswith(DROPPED))
    if waiting and not yes:
        _confirm(f"Drop {min(waiting, limit or waiting):,} rejected records of {stream}? Their payloads will be gone")
    with shown(err, f"{stream}: dropping rejected records", None):
        outcome = platform.drop(stream, choice, limit)
    _print_outcome(chosen, outcome, as_json)


def _choice(reason: str | None, source: str | None, since: datetime | None, until: datetime | None) -> Choice:
    first, end = (time.replace(tzinfo=UTC) if time else None for time in (since, until))
    return Choice(reason, source, first, end)


def _confirm(question: str) -> None:
    """Go on if the answer is yes; none is a no."""
    try:
        is_agreed = typer.confirm(question, err=True)
    except typer.Abort:
        is_agreed = False
    if not is_agreed:
        err.print("nothing was changed; --yes says yes beforehand")
        raise typer.Exit(REFUSED)


def _ordinals(stream: Stream, keys: str) -> range:
    """The partitions of `FIRST..LAST`, or of one key alone."""
    first, _, last = keys.partition("..")
    try:
        ends = [stream.partitions.ordinal_of(key) for key in (first, last or first)]
    except ValueError as error:
        raise typer.BadParameter(f"{keys}: {error}; write FIRST..LAST or one key") from None
    if ends[0] > ends[1]:
        raise typer.BadParameter(f"{keys}: the first partition comes after the last one")
    return range(ends[0], ends[1] + 1)


def _print_outcome(stream: Stream, outcome: Outcome, as_json: bool) -> None:
    if as_json:
        printing.print_json(printing.outcome_value(stream, outcome))
    else:
        printing.print_outcome(out, stream, outcome)


@batches_app.command("accept")
def accept_batch(stream: StreamArgument, streams: StreamsOption = None) -> None:
    """Let the batch that is held be taken in as it is, with all that is rejected of it, by the next run."""
    deployment = Deployment.of(streams)
    deployment.chosen(stream)
    commit = deployment.platform().accept_batch(stream)
    out.print("No batch is held." if commit is None else "Accepted; the next run takes it in.")


def _print_status(deployment: Deployment, name: str | None, as_json: bool) -> None:
    platform = deployment.platform()
    statuses: list[Status] = []
    failures: list[errors.DedupPlatformError] = []
    for stream in deployment.chosen(name):
        try:
            statuses.append(platform.status(stream.name))
        except errors.DedupPlatformError as error:
            # One stream's trouble is not another's.
            failures.append(error)
    if as_json:
        printing.print_json([printing.status_value(each) for each in statuses])
    else:
        printing.print_status(out, statuses)
    if failures:
        raise failures[0]
