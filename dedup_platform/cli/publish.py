"""The command that brings feeds and sinks up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dedup_platform.cli import values
from dedup_platform.cli.console import out
from dedup_platform.cli.deployment import Deployment, Outcome, ordinals
from dedup_platform.cli.options import JsonOption, OnlyStreamOption, StreamsOption
from dedup_platform.orchestration.publish_words import sentence, told
from dedup_platform.tables import SESSIONS

if TYPE_CHECKING:
    from dedup_platform.changes import Choice, Published
    from dedup_platform.stream import Stream


def publish(
    streams: StreamsOption = None,
    stream: OnlyStreamOption = None,
    sink: Annotated[str | None, typer.Option("--sink", metavar="NAME", help="Only the sinks of this name.")] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Also try rows again that a store refused.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also send rows again as they are now: those named below, or all.")
    ] = False,
    entity: Annotated[list[str] | None, typer.Option("--entity", metavar="ID", help="Of this entity.")] = None,
    partition: Annotated[
        list[str] | None, typer.Option("--partition", metavar="KEY", help="Of this partition, or FIRST..LAST.")
    ] = None,
    session: Annotated[list[str] | None, typer.Option("--session", metavar="ID", help="Of this session.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Bring feeds and sinks up to date with the tables; `run` and the sensors do it by themselves."""
    deployment = Deployment.of(streams)
    platform = deployment.platform()
    chosen = deployment.chosen(stream)
    again = _choice(deployment, (stream, sink), force, (entity or [], partition or [], session or []))
    known = sorted({name for each in chosen for name in each.publish.sinks})
    if sink and sink not in known:
        reason = f"no stream that was chosen has a sink named {sink}; sinks: {', '.join(known) or 'none'}"
        raise typer.BadParameter(reason, param_hint="--sink")
    feeds = deployment.for_each(stream, lambda each: platform.publish_changes(each.name))
    written: dict[str, list[Published]] = {}
    failures = [*feeds.failures]
    for each in chosen:
        for name in _sinks(each, sink):
            # A sink that is down holds no other one back.
            try:
                written.setdefault(each.name, []).append(platform.publish(each.name, name, retry, again))
            except Exception as error:
                failures.append(error)
    if as_json:
        values.print_json({name: _value(found, written.get(name, [])) for name, found in feeds.done.items()})
    else:
        for name, found in feeds.done.items():
            for line in (*map(sentence, found), *map(told, written.get(name, []))):
                out.print(f"{name}: {line}", markup=False)
    Outcome[None]({}, failures).end()


def _sinks(stream: Stream, only: str | None) -> list[str]:
    return [name for name in stream.publish.sinks if only in (None, name)]


def _choice(
    deployment: Deployment, place: tuple[str | None, str | None], force: bool, named: tuple[list[str], ...]
) -> Choice | None:
    """The rows that `--force` is about; None without it."""
    from dedup_platform.changes import Choice

    entities, partitions, sessions = named
    if not force:
        if any(named):
            raise typer.BadParameter("--entity, --partition and --session say which rows --force sends again")
        return None
    name, sink = place
    if name is None or sink is None:
        raise typer.BadParameter("say by --stream and --sink what it is sent to", param_hint="--force")
    [stream] = deployment.chosen(name)
    follows = stream.publish.sinks[sink].follows if sink in stream.publish.sinks else SESSIONS
    if sessions and follows != SESSIONS:
        raise typer.BadParameter(f"{sink} follows {follows}", param_hint="--session")
    chosen = (ordinal for keys in partitions for ordinal in ordinals(stream, keys))
    return Choice(frozenset(entities), frozenset(chosen), frozenset(sessions))


def _value(feeds: list[Any], sinks: list[Published]) -> dict[str, Any]:
    # Not `asdict`, which makes a Counter of pairs of a Counter.
    return {"feeds": [vars(feed) for feed in feeds], "sinks": [vars(sink) for sink in sinks]}
