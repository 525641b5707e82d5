"""Commands about a stream as a whole: begin it anew, or take it away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dedup_platform.cli.asking import confirm
from dedup_platform.cli.console import err, out
from dedup_platform.cli.deployment import Deployment
from dedup_platform.cli.grid import plain_table, print_table
from dedup_platform.cli.options import StreamArgument, StreamsOption
from dedup_platform.cli.output import size
from dedup_platform.errors import StreamFileError, StreamInUseError, UnknownStreamError
from dedup_platform.orchestration.progress import shown

if TYPE_CHECKING:
    from pathlib import Path

    from dedup_platform.platform.removal import Extent, Removal
    from dedup_platform.stream import Stream

app = typer.Typer(help="Begin a stream anew, or take it away.", no_args_is_help=True)

YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.command()
def reset(stream: StreamArgument, yes: YesOption = False, streams: StreamsOption = None) -> None:
    """Forget all that was taken in, and all that was made of it: the next run reads the source from its beginning.

    Says what goes, then asks. Exit codes: 2 if there is no such stream, 3 while somebody works on it, 4 for a no.
    """
    deployment = Deployment.of(streams)
    [chosen] = deployment.chosen(stream)
    removal = _removal(deployment, stream)
    extent = removal.extent()
    _print_extent(stream, extent)
    for line in _read_again(chosen, extent):
        out.print(line, markup=False, soft_wrap=True)
    if not extent and not removal.is_known():
        out.print(f"{stream}: nothing was taken in yet; there is nothing to forget.", markup=False)
        return
    if not yes:
        confirm(f"Forget all that was taken in of {stream}?")
    _refuse_while_in_work(deployment, stream, removal)
    with shown(err, f"{stream}: taking its tables away", None):
        removal.reset()
    out.print(f"{stream} begins anew with the next run.", markup=False)


@app.command()
def drop(stream: StreamArgument, yes: YesOption = False, streams: StreamsOption = None) -> None:
    """Take a stream out of the lake: its tables, their history and its positions. Its stream file may be gone already.

    Says what goes, then asks. Exit codes: 2 if there is no such stream, 3 while somebody works on it, 4 for a no.
    """
    deployment = _deployment(streams)
    removal = _removal(deployment, stream)
    if stream not in deployment.streams and not removal.is_known():
        raise UnknownStreamError(stream, deployment.streams)
    extent = removal.extent()
    _print_extent(stream, extent)
    for line in _stays(deployment.streams.get(stream), extent):
        out.print(line, markup=False, soft_wrap=True)
    if not yes:
        confirm(f"Take {stream} out of the lake?")
    _refuse_while_in_work(deployment, stream, removal)
    with shown(err, f"{stream}: taking its tables away", None):
        removal.drop()
    out.print(f"{stream} is gone from the lake.", markup=False)


def _removal(deployment: Deployment, stream: str) -> Removal:
    from dedup_platform.platform.removal import Removal

    return Removal(deployment.platform(), stream)


def _deployment(streams: Path | None) -> Deployment:
    """Also where the last stream file is gone, or none can be read."""
    from dedup_platform.settings import load_settings

    try:
        return Deployment.of(streams)
    except StreamFileError:
        return Deployment(load_settings(), {}, ())


def _refuse_while_in_work(deployment: Deployment, stream: str, removal: Removal) -> None:
    from dedup_platform.orchestration.writers import written_now

    removal.refuse_while_in_work()
    if written := written_now(deployment.settings, stream):
        raise StreamInUseError(stream, [f"a run writes {table}" for table in written])


def _print_extent(stream: str, extent: Extent) -> None:
    table = plain_table("goes", "rows#", "files#", "size#")
    for each in extent.tables:
        table.add_row(each.table, f"{each.rows:,}", f"{each.files:,}", size(each.bytes))
    if extent.tables:
        print_table(out, table)
    for other in extent.others:
        out.print(f"{stream}.{other} is none of the platform's tables, and stays.", markup=False, soft_wrap=True)


def _read_again(stream: Stream, extent: Extent) -> list[str]:
    """What becomes of the source and of the sinks of a stream that begins anew."""
    if not extent:
        return []
    if stream.source.kind == "kafka":
        begins = "from its beginning" if stream.kafka.start == "earliest" else "from where it ends by then"
        lines = [f"The topic {stream.kafka.topic} is read {begins}. What it holds no more cannot be read again."]
    else:
        lines = [f"{extent.files_read:,} files were read, and are read again: {stream.files.place}"]
    files, records = extent.gone
    if files:
        lines.append(f"{files:,} of them are there no more: their {records:,} records cannot be read again.")
    if extent.trouble:
        lines.append(f"Nobody knows what is still there: {extent.trouble}")
    if extent.skipped:
        lines.append(f"{extent.skipped:,} files that were skipped wait again.")
    for sink in extent.sinks:
        if sink.version is None and not sink.trouble:
            continue
        lines.append(
            f"The sink {sink.sink} ({sink.kind}) holds {sink.follows}. The next run that publishes gives it all rows "
            "once more, and then takes away what is there no more."
        )
    return lines


def _stays(stream: Stream | None, extent: Extent) -> list[str]:
    """What is not taken away with a stream."""
    if stream is None:
        return []
    lines = [f"The sink {sink.sink} ({sink.kind}) keeps what it holds of {sink.follows}." for sink in extent.sinks]
    lines.append(f"The stream file stays: {stream.origin}. As long as it is there, a run begins the stream anew.")
    return lines
