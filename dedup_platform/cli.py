"""The command line: arguments -> call -> print."""

import os
import sys
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread
from typing import Annotated

import typer
from rich.console import Console

from dedup_platform import connect_server, errors, printing, tables
from dedup_platform.export import STDOUT, WRITERS, export as write_rows
from dedup_platform.maintenance import Upkeep
from dedup_platform.platform import Platform, Status
from dedup_platform.progress import shown
from dedup_platform.settings import Settings, load_settings
from dedup_platform.spark import spark_session
from dedup_platform.stream import Stream, load_streams

NOT_EQUAL = 1
FAILED = 5
INTERRUPTED = 130
EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (errors.StreamFileError, 2),
    (errors.SettingsError, 2),
    (errors.UnknownStreamError, 2),
    (errors.UnknownFileError, 2),
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
source has lost, or a batch that is held because too much of it would be rejected

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
    table: Annotated[str, typer.Argument(metavar="TABLE", help=", ".join(tables.ALL))],
    to: Annotated[
        Path, typer.Option("--to", metavar="FILE", help="A .csv or .parquet file; - is csv to standard output.")
    ],
    streams: StreamsOption = None,
) -> None:
    """Write a table's current rows to a file."""
    if table not in tables.ALL:
        raise typer.BadParameter(f"{table!r} is no table; tables: {', '.join(tables.ALL)}")
    if to != STDOUT and to.suffix not in WRITERS:
        raise typer.BadParameter(f"{to}: must end in {' or '.join(WRITERS)}, or be - for csv on standard output")
    deployment = Deployment.of(streams)
    deployment.chosen(stream)
    platform = deployment.platform()
    with shown(err, f"{stream}.{table}", platform.rows(stream, table)) as listener:
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
    port: Annotated[int, typer.Option("--port", help="On 127.0.0.1.")] = connect_server.DEFAULT_PORT,
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
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Absolute, or below the source's folder.")],
    streams: StreamsOption = None,
) -> None:
    """Let files that changed after they were read be read again, as a new generation, by the next run."""
    deployment = Deployment.of(streams)
    root = deployment.of_files(stream).files.root
    relative = [_below(root, path) for path in paths]
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


@batches_app.command("accept")
def accept_batch(stream: StreamArgument, streams: StreamsOption = None) -> None:
    """Let the batch that is held be taken in as it is, with all that is rejected of it, by the next run."""
    deployment = Deployment.of(streams)
    deployment.chosen(stream)
    commit = deployment.platform().accept_batch(stream)
    out.print("No batch is held." if commit is None else "Accepted; the next run takes it in.")


def _below(root: Path, path: str) -> str:
    return Path(path).relative_to(root).as_posix() if Path(path).is_relative_to(root) else path


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
