"""Commands that tell why an event, a session or a record is as it is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dedup_platform.cli import values
from dedup_platform.cli.console import err, out
from dedup_platform.cli.deployment import Deployment
from dedup_platform.cli.options import JsonOption, StreamArgument, StreamsOption
from dedup_platform.orchestration.progress import shown

if TYPE_CHECKING:
    from dedup_platform.explain import EventAnswer, RecordAnswer, SessionAnswer
    from dedup_platform.explain.sentences import Told, Words
    from dedup_platform.stream import Stream

app = typer.Typer(help="Tell why an event, a session or a record is as it is. Needs no Spark.", no_args_is_help=True)

WIDTH = 80
"""Columns of a terminal; an id or a path that is longer stays whole."""

EntityOption = Annotated[
    str | None, typer.Option("--entity", metavar="ENTITY", help="Whose it is; an empty text is no entity's.")
]
AtOption = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="WHEN", help="A time in its partition (UTC), or the partition's key: looked in first."
    ),
]


@app.command()
def event(
    stream: StreamArgument,
    event_id: Annotated[str, typer.Argument(metavar="ID", help="The event_id.")],
    entity: EntityOption = None,
    at: AtOption = None,
    streams: StreamsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Which records an event was delivered in, which one is kept, which are not and why, and its session."""
    from dedup_platform.explain.event_words import told_of_event
    from dedup_platform.explain.plain import event_value

    deployment = Deployment.of(streams)
    [chosen] = deployment.chosen(stream)
    with shown(err, f"{stream}: looking for the event", None):
        answer = deployment.platform().explained.event(stream, event_id, _entity(entity), _ordinal(chosen, at))
        words = _words(deployment, chosen, answer)
    told = told_of_event(answer, words)
    _show(told, event_value(answer, told, words) if as_json else None)


@app.command()
def session(
    stream: StreamArgument,
    session_id: Annotated[str, typer.Argument(metavar="ID", help="The session_id, of now or of any time before.")],
    entity: EntityOption = None,
    at: AtOption = None,
    streams: StreamsOption = None,
    as_json: JsonOption = False,
) -> None:
    """The events of a session, where its id comes from, its earlier ids and its changes; what a retired id became."""
    from dedup_platform.explain.plain import session_value
    from dedup_platform.explain.session_words import told_of_session

    deployment = Deployment.of(streams)
    [chosen] = deployment.chosen(stream)
    with shown(err, f"{stream}: looking for the session", None):
        answer = deployment.platform().explained.session(stream, session_id, _entity(entity), _ordinal(chosen, at))
        words = _words(deployment, chosen, answer)
    told = told_of_session(answer, words)
    _show(told, session_value(answer, told, words) if as_json else None)


@app.command()
def record(
    stream: StreamArgument,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The file's path below the root, or the topic.")],
    offset: Annotated[int, typer.Argument(metavar="OFFSET")],
    partition: Annotated[int, typer.Option("--partition", metavar="N", help="The record's source_partition.")] = 0,
    index: Annotated[int, typer.Option("--index", metavar="N", help="The record's source_index.")] = 0,
    streams: StreamsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Which event a delivered record is of and what was decided about it, or why it was rejected."""
    from dedup_platform.explain.plain import record_value
    from dedup_platform.explain.record_words import told_of_record

    deployment = Deployment.of(streams)
    [chosen] = deployment.chosen(stream)
    with shown(err, f"{stream}: looking for the record", None):
        answer = deployment.platform().explained.record(stream, (source, partition, offset, index))
        words = _words(deployment, chosen, answer)
    told = told_of_record(answer, words)
    _show(told, record_value(answer, told, words) if as_json else None)


def _words(deployment: Deployment, stream: Stream, answer: EventAnswer | RecordAnswer | SessionAnswer) -> Words:
    from dedup_platform.explain.sentences import Words
    from dedup_platform.orchestration.runs_behind import runs_behind

    return Words(stream, runs_behind(deployment.settings, stream, answer.partitions(stream)))


def _entity(text: str | None) -> object:
    from dedup_platform.explain import ANY_ENTITY

    return ANY_ENTITY if text is None else text or None


def _ordinal(stream: Stream, when: str | None) -> int | None:
    """The partition of a key, or of a time in it."""
    if when is None:
        return None
    try:
        return stream.partitions.ordinal_of(when)
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(when)
    except ValueError:
        example = stream.partitions.key(stream.partitions.ordinal(stream.partitions.start))
        raise typer.BadParameter(f"{when!r} is no time and no partition; write {example}", param_hint="--at") from None
    return stream.partitions.ordinal(time if time.tzinfo else time.replace(tzinfo=UTC))


def _show(told: Told, value: Any) -> None:
    """What is told, for people; for programs a value in its place."""
    if value is not None:
        values.print_json(value)
        return
    for line in _lines(told):
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def _lines(told: Told) -> Iterator[str]:
    yield from _wrapped(told.sentence, "", "")
    yield ""
    for number, step in enumerate(told.steps, start=1):
        for place, line in enumerate(step):
            yield from _wrapped(line, "    " if place else f"{number:2}. ", "    " if not place else "      ")


def _wrapped(text: str, first: str, others: str) -> list[str]:
    from dedup_platform.explain.sentences import COMMAND

    if text.startswith(COMMAND):
        return [f"{first}{text}"]
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
