"""The command that makes a page of a stream's figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dedup_platform.cli.console import err, out
from dedup_platform.cli.deployment import Deployment
from dedup_platform.cli.options import StreamArgument, StreamsOption
from dedup_platform.orchestration.progress import shown


def report(
    stream: StreamArgument,
    html: Annotated[Path, typer.Option("--html", metavar="FILE", help="Where to write the page.")],
    streams: StreamsOption = None,
) -> None:
    """Write one page of a stream's figures: events, duplicates, late and rejected records, sessions, worst sources.

    It has no scripts, loads nothing and is the same for the same tables. Needs no Spark.
    """
    from dedup_platform.report import gather, page

    deployment = Deployment.of(streams)
    deployment.chosen(stream)
    if not html.parent.is_dir() or html.is_dir():
        raise typer.BadParameter(f"{html}: there is no such folder, or it is one", param_hint="--html")
    with shown(err, f"{stream}: reading its tables", None):
        text = page(gather(deployment.platform(), stream))
    part = html.with_name(f".{html.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(html)
    finally:
        part.unlink(missing_ok=True)
    out.print(f"The report of {stream} is in {html} ({len(text.encode()):,} bytes)", markup=False, soft_wrap=True)
