"""The command that brings feeds and sinks up to date."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from dedup_platform.changes import Published
from dedup_platform.cli import values
from dedup_platform.cli.deployment import Deployment, JsonOption, Outcome, StreamsOption, for_each, out
from dedup_platform.orchestration.publish import sentence, told
from dedup_platform.stream import Stream


def publish(
    streams: StreamsOption = None,
    stream: Annotated[str | None, typer.Option("--stream", metavar="NAME", help="Only this stream.")] = None,
    sink: Annotated[str | None, typer.Option("--sink", metavar="NAME", help="Only the sinks of this name.")] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Also try rows again that a store refused.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring feeds and sinks up to date with the tables; `run` and the sensors do it by themselves."""
    deployment = Deployment.of(streams)
    platform = deployment.platform()
    chosen = deployment.chosen(stream)
    if sink and not any(sink in each.publish.sinks for each in chosen):
        raise typer.BadParameter(f"no stream that was chosen has a sink named {sink}", param_hint="--sink")
    feeds = for_each(chosen, lambda each: platform.publish_changes(each.name))
    written: dict[str, list[Published]] = {}
    failures = [*feeds.failures]
    for each in chosen:
        for name in _sinks(each, sink):
            # A sink that is down holds no other one back.
            try:
                written.setdefault(each.name, []).append(platform.publish(each.name, name, retry))
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


def _value(feeds: list[Any], sinks: list[Published]) -> dict[str, Any]:
    return {"feeds": [asdict(feed) for feed in feeds], "sinks": [asdict(sink) for sink in sinks]}
