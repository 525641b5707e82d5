"""Commands about sinks."""

from typing import Annotated

import typer

from dedup_platform.cli.deployment import Deployment
from dedup_platform.cli.options import StreamArgument, StreamsOption

app = typer.Typer(help="What consumers of sinks need to know.", no_args_is_help=True)


@app.callback()
def _has_commands() -> None:
    # One command alone would be the group itself.
    """What consumers of sinks need to know."""


@app.command()
def schema(
    stream: StreamArgument,
    sink: Annotated[str, typer.Option("--sink", metavar="NAME", help="The sink's name in the stream file.")],
    streams: StreamsOption = None,
) -> None:
    """Print the schema of the messages of a sink in Kafka: JSON of Avro, or a .proto file of Protobuf."""
    deployment = Deployment.of(streams)
    [chosen] = deployment.chosen(stream)
    if sink not in chosen.publish.sinks:
        known = ", ".join(chosen.publish.sinks) or "none"
        raise typer.BadParameter(f"{stream} has no sink named {sink}; sinks: {known}", param_hint="--sink")
    text = deployment.platform().sinks.schema(stream, sink)
    if text is None:
        raise typer.BadParameter(f"the messages of {sink} are not of Avro or Protobuf", param_hint="--sink")
    typer.echo(text)
