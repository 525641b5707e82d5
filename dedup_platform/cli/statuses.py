"""The status of streams, printed; and what it makes of a run that was before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dedup_platform.cli import output, values
from dedup_platform.cli.console import out
from dedup_platform.cli.deployment import Deployment, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dedup_platform.planning.health import Check
    from dedup_platform.platform import Platform, Status
    from dedup_platform.platform.figures import PartitionFigures
    from dedup_platform.stream import Stream


def print_status(
    deployment: Deployment, name: str | None, as_json: bool, of_run: Outcome[None] | None = None
) -> list[Check]:
    """The status of streams; their checks. Behind a run, what came of that decides how the command ends."""
    platform = deployment.platform()

    def look(stream: Stream) -> tuple[Status, list[Check], Mapping[int, PartitionFigures]]:
        status = platform.status(stream.name)
        return status, platform.health.of_status(status), platform.figures.of_all(stream.name) if as_json else {}

    outcome = deployment.for_each(name, look)
    statuses = [(deployment.streams[name], status, checks) for name, (status, checks, _) in outcome.done.items()]
    if as_json:
        values.print_json([values.status_value(deployment.streams[name], *each) for name, each in outcome.done.items()])
    else:
        output.print_status(out, statuses)
    if of_run:
        of_run.failures.extend(_without_events(platform, statuses))
        of_run.end()
    outcome.end()
    return [check for _, _, checks in statuses for check in checks]


def _without_events(
    platform: Platform, statuses: Sequence[tuple[Stream, Status, Sequence[Check]]]
) -> Iterator[Exception]:
    # Loaded only after a run.
    from dedup_platform.cli import preflight

    for stream, status, _ in statuses:
        if problem := preflight.without_events(platform, stream, status):
            yield problem
