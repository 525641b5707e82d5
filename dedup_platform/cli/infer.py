"""`infer`: from a sample of records to a stream file, where a person or options choose."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dedup_platform.cli.console import out
from dedup_platform.errors import AlreadyThereError
from dedup_platform.escapes import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dedup_platform.infer import Choose, Option
    from dedup_platform.settings import Settings
    from dedup_platform.stream import Stream

__all__ = ["infer"]

_SHOWN = 8
_TOGETHER = " + "
_OF_AVRO = (".avsc", ".json")
_QUESTIONS = {
    "time": "When did an event happen?",
    "timezone": "In which time zone are these times?",
    "id": "What tells one event from another (* is the whole record)?",
    "entity": "Whose sessions are these?",
}

Fields = list[str] | None
EntityOption = Annotated[
    Fields, typer.Option("--entity", metavar="FIELD", help="Whose sessions these are; twice: the first there is.")
]
IdOption = Annotated[
    Fields, typer.Option("--id", metavar="FIELD", help="What tells an event from others; once or more, or *.")
]
TimeOption = Annotated[
    Fields, typer.Option("--time", metavar="FIELD", help="When it happened; given twice: a date and a time of day.")
]
BrokersOption = Annotated[
    str | None, typer.Option("--brokers", metavar="HOST:PORT", help="Of the topic that is named.")
]
SchemaOption = Annotated[
    Path | None, typer.Option("--schema", metavar="FILE", help="Of Protobuf (.proto), or of Avro in messages (.avsc).")
]
MessageOption = Annotated[
    str | None, typer.Option("--message", metavar="NAME", help="The message in FILE.proto that is read.")
]
ExplodeOption = Annotated[
    str | None, typer.Option("--explode", metavar="FIELD", help="The list in a record whose values are the events.")
]
RegistryOption = Annotated[
    str | None, typer.Option("--registry", metavar="URL", help="Of the schemas by whose ids messages begin.")
]


def infer(
    place: Annotated[str, typer.Argument(metavar="PATH|TOPIC", help="A file, a folder, a pattern, or a topic.")],
    entity: EntityOption = None,
    event_id: IdOption = None,
    event_time: TimeOption = None,
    timezone: Annotated[str | None, typer.Option("--timezone", metavar="ZONE", help="Of times that tell none.")] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Of the stream.")] = None,
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="The stream file to write.")] = None,
    brokers: BrokersOption = None,
    schema: SchemaOption = None,
    message: MessageOption = None,
    explode: ExplodeOption = None,
    registry: RegistryOption = None,
) -> None:
    """Read a sample, write a commented stream file for it, and show what the records become. Overwrites nothing."""
    from dedup_platform.infer import proposed, stream_text
    from dedup_platform.infer.place import name_of, pattern_of, seen_from
    from dedup_platform.planning.moments import utc_now
    from dedup_platform.platform.sampling import sample_of
    from dedup_platform.settings import load_settings
    from dedup_platform.stream import stream_of_text

    settings = load_settings()
    pattern = place if brokers else pattern_of(place)
    chosen_name = name or name_of(pattern)
    file = to or _folder(settings) / f"{chosen_name}.yaml"
    _refuse(file)
    source = {"kind": "kafka", "brokers": brokers, "topic": place} if brokers else _files(pattern)
    source |= {"registry": {"url": registry}} if registry else {}
    said = _said_of_format(schema, message, explode)
    sampled = sample_of(settings, place, source | said)
    flags = {"entity": entity, "id": event_id, "time": event_time, "timezone": [timezone] if timezone else None}
    proposal = proposed(sampled, _chooser(flags), utc_now())
    where = {} if brokers else {"path": seen_from(pattern, file.parent)}
    written = source | where | sampled.layout.source | said | _seen_from(said, schema, file.parent)
    text = stream_text(chosen_name, written, proposal)
    # A schema is looked for from this folder.
    file.parent.mkdir(parents=True, exist_ok=True)
    stream = stream_of_text(text, file)
    _write(file, text)
    out.print(f"{file} is written.", markup=False)
    _preview(settings, stream)
    out.print(f"Next: read {file}, mend what is not right, then `dedup-platform run --streams {file}`.", markup=False)


def _files(pattern: str) -> dict[str, Any]:
    return {"kind": "files", "path": pattern if pattern.startswith("s3://") else os.path.abspath(pattern)}


def _said_of_format(schema: Path | None, message: str | None, explode: str | None) -> dict[str, Any]:
    """What options say that `source` should of the format. InferenceError if the schema is none that can be used."""
    exploded = {"explode": explode} if explode else {}
    if schema is None:
        return exploded
    from dedup_platform.errors import InferenceError
    from dedup_platform.stream.schemas import outermost_message, read_protobuf

    said = {"schema": str(schema.absolute())}
    if schema.suffix in _OF_AVRO:
        return {"format": "avro", "avro": said} | exploded
    try:
        said["message"] = message or outermost_message(read_protobuf(schema))
    except OSError as error:
        raise InferenceError(schema, f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InferenceError(schema, f"{error} (--message NAME)") from None
    return {"format": "protobuf", "protobuf": said | ({"records": explode} if explode else {})}


def _seen_from(said: Mapping[str, Any], schema: Path | None, folder: Path) -> dict[str, Any]:
    """The parts that name the schema, as a stream file in this folder has it."""
    from dedup_platform.infer.place import seen_from

    parts = (kind for kind in ("avro", "protobuf") if kind in said)
    return {kind: said[kind] | {"schema": seen_from(str(schema), folder)} for kind in parts}


def _folder(settings: Settings) -> Path:
    """Where stream files lie; where there are none yet, in `streams`, where commands look for them."""
    found = settings.stream_files
    if found is None:
        return Path("streams")
    folder = found if found.is_dir() else found.parent
    return Path(os.path.relpath(folder)) if folder.is_relative_to(Path.cwd()) else folder


def _refuse(file: Path) -> None:
    if os.path.lexists(file):
        raise AlreadyThereError(file, "name another file with --to, or another stream with --name")


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        _refuse(file)
        raise


def _chooser(flags: Mapping[str, Fields]) -> Choose:
    """What options say; on a terminal a person is asked for what they do not, elsewhere the likeliest is taken."""
    is_asked = sys.stdin.isatty() and sys.stdout.isatty()

    def choose(key: str, options: Sequence[Option]) -> Sequence[str]:
        if said := flags[key]:
            return said
        return _ask(_QUESTIONS[key], options) if is_asked else ()

    return choose


def _ask(question: str, options: Sequence[Option]) -> Sequence[str]:
    for each in options[:_SHOWN]:
        out.print(f"  {each.text}  ({each.evidence})", markup=False)
    shown = {one_line(each.text): each.text for each in options}
    first = next(iter(shown), None)
    answer: str = typer.prompt(question, default=first).strip()
    if answer == first:
        return ()
    return shown.get(answer, answer).split(_TOGETHER)


def _preview(settings: Settings, stream: Stream) -> None:
    from dedup_platform.cli.preflight import looked_at, refused
    from dedup_platform.cli.sample import print_columns
    from dedup_platform.platform.sampling import preview

    sample: Any = preview(settings, stream, looked_at)
    print_columns(out, stream.name, sample)
    if problem := refused(stream, sample):
        raise problem
