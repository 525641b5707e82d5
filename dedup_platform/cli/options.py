"""The arguments that are the same for all commands."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["JsonOption", "OnlyStreamOption", "StreamArgument", "StreamsOption"]

StreamsOption = Annotated[
    Path | None,
    typer.Option(
        "--streams", metavar="PATH", help="A stream file or a folder; else DEDUP_PLATFORM_STREAMS or ./streams."
    ),
]
OnlyStreamOption = Annotated[str | None, typer.Option("--stream", metavar="NAME", help="Only this stream.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document for programs.")]
StreamArgument = Annotated[str, typer.Argument(metavar="STREAM")]
