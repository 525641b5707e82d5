"""The command that serves metrics beside a deployment's daemon."""

from __future__ import annotations

from threading import Event
from typing import Annotated

import typer

from dedup_platform.cli.console import err
from dedup_platform.cli.deployment import Deployment
from dedup_platform.cli.options import StreamsOption

PORT = 9464
"""Where metrics are served unless somebody says otherwise."""


def metrics(
    streams: StreamsOption = None,
    port: Annotated[
        int | None, typer.Option("--port", help=f"To listen on; else DEDUP_PLATFORM_METRICS_PORT, or {PORT}.")
    ] = None,
) -> None:
    """Serve the streams' numbers and checks for Prometheus, at /metrics, until it is interrupted."""
    from dedup_platform.platform.metrics_server import following, metrics_server

    settings, files = Deployment.place(streams)
    address = str(settings.metrics_address)
    with metrics_server(following(settings, files), address, port or settings.metrics_port or PORT) as chosen:
        err.print(f"http://{address}:{chosen}/metrics tells how the streams are; Ctrl-C ends it", markup=False)
        Event().wait()
