"""Commands about sources: how far they have been read, and what people decide about files, offsets and batches."""

import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated

import typer

from dedup_platform.cli import output, values
from dedup_platform.cli.console import out
from dedup_platform.cli.deployment import Deployment
from dedup_platform.cli.options import JsonOption, StreamArgument, StreamsOption

files_app = typer.Typer(help="Decide about files that the platform left alone.", no_args_is_help=True)
offsets_app = typer.Typer(
    help="Look at how far a topic has been read, and decide about what it lost.", no_args_is_help=True
)
batches_app = typer.Typer(help="Decide about batches that are held.", no_args_is_help=True)

PathsArgument = Annotated[
    list[str], typer.Argument(metavar="PATH...", help="Absolute, an s3:// URL, or below the source's folder.")
]

_OFFSETS = re.compile(r"([0-9]{1,19})(?:\.\.([0-9]{1,19}))?")


@files_app.command()
def accept(
    stream: StreamArgument,
    paths: PathsArgument,
    streams: StreamsOption = None,
) -> None:
    """Let files that changed after they were read be read again, as a new generation, by the next run."""
    deployment = Deployment.of(streams)
    relative = _below_root(deployment, stream, paths)
    deployment.platform().source.accept_files(stream, relative)
    out.print(f"{len(relative)} files accepted; the next run reads them again.")


@files_app.command("skip")
def skip_files(
    stream: StreamArgument,
    paths: PathsArgument,
    streams: StreamsOption = None,
) -> None:
    """Leave out files that wait, as they are now: they count as read. `files accept` reads them after all."""
    deployment = Deployment.of(streams)
    relative = _below_root(deployment, stream, paths)
    deployment.platform().source.skip_files(stream, relative)
    out.print(f"{len(relative)} files skipped; the next run goes on without them.")


@offsets_app.command("skip")
def skip_offsets(
    stream: StreamArgument,
    partition: Annotated[int, typer.Argument(min=0, metavar="PARTITION")],
    offsets: Annotated[str, typer.Argument(metavar="OFFSET|FIRST..LAST")],
    streams: StreamsOption = None,
) -> None:
    """Leave out messages that wait, for ever: all others are read, also those before them."""
    deployment = Deployment.of(streams)
    chosen = _offsets(offsets)
    deployment.platform().source.skip_offsets(deployment.of_topic(stream).name, partition, chosen)
    out.print(f"{len(chosen):,} offsets skipped; the next run goes on without them.")


@offsets_app.command("show")
def show_offsets(stream: StreamArgument, streams: StreamsOption = None, as_json: JsonOption = False) -> None:
    """How far each partition of a topic has been read, and what its consumer group was told."""
    deployment = Deployment.of(streams)
    offsets = deployment.platform().source.offsets(deployment.of_topic(stream).name)
    if as_json:
        values.print_json([asdict(each) for each in offsets])
    else:
        output.print_offsets(out, offsets)


@offsets_app.command("accept")
def accept_losses(stream: StreamArgument, streams: StreamsOption = None) -> None:
    """Go on behind what a topic has lost; one that began anew is read from its beginning."""
    deployment = Deployment.of(streams)
    commit = deployment.platform().source.accept_losses(deployment.of_topic(stream).name)
    out.print("Nothing is lost." if commit is None else "Accepted; the next run goes on from there.")


@batches_app.command("accept")
def accept_batch(stream: StreamArgument, streams: StreamsOption = None) -> None:
    """Let the batch that is held be taken in as it is, with all that is rejected of it, by the next run."""
    deployment = Deployment.of(streams)
    deployment.chosen(stream)
    commit = deployment.platform().source.accept_batch(stream)
    out.print("No batch is held." if commit is None else "Accepted; the next run takes it in.")


def _below_root(deployment: Deployment, stream: str, paths: Iterable[str]) -> list[str]:
    """The paths as records' `source` has them."""
    source = deployment.of_files(stream).files
    return [source.below_root(path) for path in paths]


def _offsets(text: str) -> range:
    told = _OFFSETS.fullmatch(text)
    first, last = (int(told[1]), int(told[2] or told[1])) if told else (1, 0)
    if last < first:
        raise typer.BadParameter(f"{text!r}: write one offset, or the first and the last of several: 7..9")
    return range(first, last + 1)
