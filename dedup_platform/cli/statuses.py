"""The status of streams, printed; and what it makes of a run that was before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dedup_platform.cli import output, values
from dedup_platform.cli.console import out
from dedup_platform.cli.deployment import Deployment, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dedup_platform.platform import Platform, Status
    from dedup_platform.platform.figures import PartitionFigures
    from dedup_platform.stream import Stream


def print_status(deployment: Deployment, name: str | None, as_json: bool, of_run: Outcome[None] | None = None) -> None:
    """The status of streams; behind a run, what came of that decides how the command ends."""
    platform = deployment.platform()

    def look(stream: Stream) -> tuple[Status, Mapping[int, PartitionFigures]]:
        return platform.status(stream.name), platform.figures.of_all(stream.name) if as_json else {}

    outcome = deployment.for_each(name, look)
    statuses = [(deployment.streams[name], status) for name, (status, _) in outcome.done.items()]
    if as_json:
        values.print_json([values.status_value(deployment.streams[name], *each) for name, each in outcome.done.items()])
    else:
        output.print_status(out, statuses)
    if of_run:
        of_run.failures.extend(_without_events(platform, statuses))
        of_run.end()
    outcome.end()


def _without_events(platform: Platform, statuses: Sequence[tuple[Stream, Status]]) -> Iterator[Exception]:
    # Loaded only after a run.
    from dedup_platform.cli import preflight

    for stream, status in statuses:
        if problem := preflight.without_events(platform, stream, status):
            yield problem
