"""Commands about sources: how far they have been read, and what people decide about files, offsets and batches."""

from dataclasses import asdict
from typing import Annotated

import typer

from dedup_platform.cli import output, values
from dedup_platform.cli.deployment import Deployment, JsonOption, StreamArgument, StreamsOption, out

files_app = typer.Typer(help="Decide about files that the platform left alone.", no_args_is_help=True)
offsets_app = typer.Typer(
    help="Look at how far a topic has been read, and decide about what it lost.", no_args_is_help=True
)
batches_app = typer.Typer(help="Decide about batches that are held.", no_args_is_help=True)


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
    deployment.platform().source.accept_files(stream, relative)
    out.print(f"{len(relative)} files accepted; the next run reads them again.")


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
