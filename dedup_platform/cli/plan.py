"""`plan`: what waits, what is stale and why, and what a change of a stream file does, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dedup_platform.cli.console import out
from dedup_platform.cli.file_changes import changes_value, print_changes_of_file
from dedup_platform.cli.output import print_plans, size
from dedup_platform.cli.values import plan_value, print_json
from dedup_platform.tables import RAW_EVENTS

if TYPE_CHECKING:
    from dedup_platform.cli.deployment import Deployment
    from dedup_platform.ingest.pending import Waiting
    from dedup_platform.planning.planner import TablePlan
    from dedup_platform.platform import Platform
    from dedup_platform.platform.file_changes import FileChanges
    from dedup_platform.stream import Stream

__all__ = ["tell_plans"]


@dataclass(frozen=True)
class _Planned:
    stream: Stream
    plans: list[TablePlan]
    waiting: Waiting | None
    trouble: str | None
    changes: FileChanges


def tell_plans(deployment: Deployment, name: str | None, as_json: bool) -> None:
    """Print the plans of the named stream or of all; fails as the first stream does whose plan fails."""
    platform = deployment.platform()
    outcome = deployment.for_each(name, lambda stream: _planned(platform, stream))
    planned = list(outcome.done.values())
    if as_json:
        print_json([value for each in planned for value in _values(each)])
    elif planned or not outcome.failures:
        for each in planned:
            if waiting := _waiting(each):
                out.print(f"{each.stream.name}: {waiting}", markup=False)
        print_plans(out, [(each.stream, plan) for each in planned for plan in each.plans])
        for each in planned:
            print_changes_of_file(out, each.stream, each.changes)
    outcome.end()


def _planned(platform: Platform, stream: Stream) -> _Planned:
    plans = platform.plan(stream.name)
    waiting, trouble = platform.source.waiting_or_trouble(stream.name)
    changes = platform.stream_file.changes(stream.name, plans, platform.rejected.count(stream.name))
    return _Planned(stream, plans, waiting, trouble, changes)


def _waiting(planned: _Planned) -> str | None:
    if planned.waiting is None:
        return f"the source cannot be asked: {planned.trouble}"
    if not planned.waiting.items:
        return None
    of_bytes = f" ({size(planned.waiting.bytes)})" if planned.waiting.bytes else ""
    return f"{planned.waiting.amount}{of_bytes} wait at the source; `dedup-platform run` takes them in"


def _values(planned: _Planned) -> list[dict[str, Any]]:
    """A plan for each derived table, and last what waits for `raw_events`."""
    waiting = planned.waiting
    raw: dict[str, Any] = {
        "stream": planned.stream.name,
        "table": RAW_EVENTS,
        "stale": [],
        "runs": [],
        "waiting": {"items": list(waiting.items), "amount": waiting.amount, "bytes": waiting.bytes}
        if waiting
        else None,
        "trouble": planned.trouble,
        "stream_file": changes_value(planned.stream, planned.changes),
    }
    return [*(plan_value(planned.stream, each) for each in planned.plans), raw]
