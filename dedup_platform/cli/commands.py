"""The commands of every stream, and how the command line is run."""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dedup_platform import tables
from dedup_platform.cli import explain, output, rejected, sinks, sources, stream as stream_commands, values
from dedup_platform.cli.console import err, out
from dedup_platform.cli.deployment import Deployment, ordinals
from dedup_platform.cli.exits import NOT_EQUAL, UNHEALTHY
from dedup_platform.cli.infer import infer
from dedup_platform.cli.init import init
from dedup_platform.cli.metrics import metrics
from dedup_platform.cli.options import JsonOption, OnlyStreamOption, StreamArgument, StreamsOption
from dedup_platform.cli.process import ON_INTERRUPT, let_be_interrupted, run_to_its_end
from dedup_platform.cli.publish import publish
from dedup_platform.cli.report import report
from dedup_platform.cli.sql import sql
from dedup_platform.cli.statuses import print_status
from dedup_platform.orchestration.progress import ROWS, shown, shown_together
from dedup_platform.spark import CONNECT_PORT

if TYPE_CHECKING:
    from dedup_platform.maintenance.upkeep import Upkeep
    from dedup_platform.stream import Stream

HELP = """Deduplicated events and sessions with stable ids, in Apache Iceberg, kept right while events arrive late.

Exit codes:

0  done

1  not so: `verify` found differences, `demo` did not find the truth, or `status --check` found a stream unhealthy

2  arguments, settings, stream files or a question in SQL are wrong

3  someone else committed first or is at work, or a file changed while it was read: run again

4  refused, and nothing was published: a change that needs another stream, counts that do not balance, records that the
source has lost, a batch that is held because too much of it would be rejected, or your no

5  anything else that failed

130  interrupted
"""

STREAMS_AT_ONCE = 8
"""Most of a run is waiting: for Spark, which all share, for sources and for sinks."""

app = typer.Typer(help=HELP, no_args_is_help=True, pretty_exceptions_enable=False)
app.add_typer(sources.files_app, name="files")
app.add_typer(sources.offsets_app, name="offsets")
app.add_typer(rejected.app, name="rejected")
app.add_typer(explain.app, name="explain")
app.add_typer(sources.batches_app, name="batches")
app.add_typer(sinks.app, name="sinks")
app.add_typer(stream_commands.app, name="stream")
app.command()(publish)
app.command()(init)
app.command()(infer)
app.command()(report)
app.command()(sql)
app.command()(metrics)


def main() -> None:
    """Run the command that the arguments name; the process ends with it."""
    run_to_its_end(app)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"dedup_platform {version('dedup_platform')}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
    of_version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Options of every command."""


@app.command()
def check(
    streams: StreamsOption = None,
    sample: Annotated[
        Path | None, typer.Option("--sample", metavar="FILE", help="Show what the first records of a file become.")
    ] = None,
    stream: OnlyStreamOption = None,
    offline: Annotated[bool, typer.Option("--offline", help="Ask no source: look at the stream files only.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Validate the stream files, against tables that exist and records that wait; or show a sample, field by field."""
    deployment = Deployment.of(streams)
    if sample:
        from dedup_platform.cli.sample import tell_sample

        tell_sample(deployment, sample, stream, as_json)
    else:
        from dedup_platform.cli.preflight import check_streams

        check_streams(deployment, stream, as_json, offline)


@app.command()
def run(
    streams: StreamsOption = None,
    stream: OnlyStreamOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ingest all that waits, recompute until nothing is stale, and publish to sinks. Dagster's UI shows the runs.

    Streams are worked on side by side, up to eight at once: one whose source does not answer keeps no other waiting.
    """
    from dedup_platform.orchestration.embedded import note_interrupted, open_instance, run_stream_in, steps_of

    deployment = Deployment.of(streams)
    ON_INTERRUPT.append(partial(note_interrupted, deployment.platform()))
    chosen = deployment.chosen(stream)
    with (
        open_instance(deployment.settings, keeps_output=len(chosen) == 1) as instance,
        shown_together(err, {each.name: steps_of(each) for each in chosen}) as listener_of,
    ):

        def run_one(each: Stream) -> None:
            with listener_of(each.name) as listener:
                run_stream_in(instance, deployment.settings, each, listener)

        outcome = deployment.for_each(stream, run_one, at_once=STREAMS_AT_ONCE)
    print_status(deployment, stream, as_json, of_run=outcome)


@app.command()
def plan(streams: StreamsOption = None, stream: OnlyStreamOption = None, as_json: JsonOption = False) -> None:
    """What waits at the source, what is stale, why, how much, and which runs would repair it. Runs nothing."""
    from dedup_platform.cli.plan import tell_plans

    tell_plans(Deployment.of(streams), stream, as_json)


@app.command()
def status(
    streams: StreamsOption = None,
    stream: OnlyStreamOption = None,
    is_check: Annotated[
        bool, typer.Option("--check", help="End with code 1 if a stream is unhealthy, and say what to type.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """The tables in numbers, what waits at the sources, and what is not as it should be."""
    checks = print_status(Deployment.of(streams), stream, as_json)
    if is_check and any(each.is_unhealthy for each in checks):
        raise typer.Exit(UNHEALTHY)


@app.command()
def export(
    stream: StreamArgument,
    table: Annotated[str, typer.Argument(metavar="TABLE", help=", ".join(tables.EXPORTED))],
    to: Annotated[
        Path, typer.Option("--to", metavar="FILE", help="A .csv or .parquet file; - is csv to standard output.")
    ],
    streams: StreamsOption = None,
    safe_csv: Annotated[
        bool, typer.Option("--safe-csv", help="Put ' before texts that a spreadsheet would run as formulas.")
    ] = False,
) -> None:
    """Write a table's current rows to a file."""
    from dedup_platform.cli.export import STDOUT, WRITERS, export as write_rows

    if table not in tables.EXPORTED:
        raise typer.BadParameter(f"{table!r} is no table; tables: {', '.join(tables.EXPORTED)}")
    if to != STDOUT and to.suffix not in WRITERS:
        raise typer.BadParameter(f"{to}: must end in {' or '.join(WRITERS)}, or be - for csv on standard output")
    if safe_csv and to != STDOUT and to.suffix != ".csv":
        raise typer.BadParameter(f"{to}: is no csv, so --safe-csv changes nothing")
    deployment = Deployment.of(streams)
    deployment.chosen(stream)
    platform = deployment.platform()
    expected = platform.rejected.count(stream) if table == tables.REJECTED_EVENTS else platform.rows(stream, table)
    with shown(err, f"{stream}.{table}", expected, ROWS) as listener:
        rows = write_rows(platform, stream, table, to, listener.done, safe_csv)
        listener.say(f"{rows:,} rows of {stream}.{table} written to {to if to != STDOUT else 'standard output'}")


@app.command()
def verify(
    stream: Annotated[str | None, typer.Argument(metavar="[STREAM]")] = None,
    streams: StreamsOption = None,
    only: OnlyStreamOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute everything from raw_events and compare it with the tables row for row; writes nothing."""
    deployment = Deployment.of(streams)
    platform = deployment.platform()

    def verify_one(each: Stream) -> list[str]:
        with shown(err, f"{each.name}: recomputing from {tables.RAW_EVENTS}", None):
            return platform.verify(each.name)

    if stream and only not in (None, stream):
        raise typer.BadParameter(f"it is another stream than {stream}", param_hint="--stream")
    outcome = deployment.for_each(stream or only, verify_one)
    if as_json:
        values.print_json(outcome.done)
    else:
        for name, differences in outcome.done.items():
            for line in (f"{name}: {'differs' if differences else 'equal'}", *differences):
                out.print(line, markup=False)
    outcome.end()
    if any(outcome.done.values()):
        raise typer.Exit(NOT_EQUAL)


@app.command()
def maintain(
    streams: StreamsOption = None,
    stream: OnlyStreamOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compact small files, expire old snapshots and remove orphaned files; changes no row."""
    deployment = Deployment.of(streams)
    platform = deployment.platform()

    def maintain_one(each: Stream) -> list[Upkeep]:
        with shown(err, f"{each.name}: looking after its tables", None):
            return platform.maintain(each.name)

    outcome = deployment.for_each(stream, maintain_one)
    if as_json:
        values.print_json({name: [asdict(table) for table in found] for name, found in outcome.done.items()})
    else:
        output.print_upkeep(out, outcome.done)
    outcome.end()


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
        changed = deployment.platform().change_buckets(
            stream, wanted, lambda table, done, all_: listener.say(f"{table}: {done} of {all_} partitions copied")
        )
    out.print(f"The tables of {stream} have {wanted} buckets{'' if changed else ' already'}.")


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
    chosen_partitions = ordinals(chosen, partitions)
    with shown(err, f"{stream}: decoding {partitions} again", None):
        outcome = deployment.platform().rejected.redecode(stream, chosen_partitions)
    rejected.print_outcome(chosen, outcome, as_json)


@app.command()
def demo(
    events: Annotated[
        int, typer.Option("--events", metavar="N", min=1, help="How many different clicks to make up.")
    ] = 200_000,
) -> None:
    """Generate a click stream with known truth, run it, print found against truth, then repair after a late file."""
    from dedup_platform.cli.demo import rehearse
    from dedup_platform.settings import load_settings

    if not rehearse(load_settings(), events, out, err):
        raise typer.Exit(NOT_EQUAL)


@app.command("connect-server")
def run_connect_server(
    port: Annotated[int, typer.Option("--port", help="To listen on.")] = CONNECT_PORT,
) -> None:
    """Run a warm Spark for the runs of other processes: a Spark Connect server, until it is interrupted."""
    from dedup_platform.settings import load_settings
    from dedup_platform.spark import connect_server

    settings = load_settings()
    environment = connect_server.prepare(settings, port)
    err.print(f"DEDUP_PLATFORM_SPARK_REMOTE={connect_server.address(port)} uses this server, process {os.getpid()}")
    program, *arguments = connect_server.command(settings)
    let_be_interrupted()
    os.execve(program, [program, *arguments], environment)
