"""Stream files: from YAML to streams, with errors that name the file, the line and the key."""

from pathlib import Path

from pydantic import ValidationError

from dedup_platform.errors import StreamFileError
from dedup_platform.stream.describe import describe_errors
from dedup_platform.stream.model import Stream
from dedup_platform.stream.positions import Document, parse_yaml

__all__ = ["load_stream", "load_streams"]


def load_streams(path: Path) -> dict[str, Stream]:
    """The streams of a file, or of a folder's `*.yaml` and `*.yml`, by name in the order of the file names.

    Raises StreamFileError with every problem of every file; two streams of one name are a problem too.
    """
    streams: dict[str, Stream] = {}
    problems: list[str] = []
    for file in _stream_files(path):
        try:
            stream, document = _load(file)
        except StreamFileError as error:
            problems += error.problems
            continue
        first = streams.setdefault(stream.name, stream)
        if first is not stream:
            line, _ = document.locate(["name"])
            taken = f"{stream.name!r} is already the name of the stream in {first.origin.name}"
            problems.append(f"{file}:{line}: name: {taken}; every stream needs its own")
    if problems:
        raise StreamFileError(*problems)
    return streams


def load_stream(path: Path) -> Stream:
    """The stream of one file. Raises StreamFileError with every problem, as `file:line: key: what is wrong`."""
    return _load(path)[0]


def _stream_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(f for f in path.iterdir() if f.suffix in (".yaml", ".yml") and not f.name.startswith("."))
    if not files:
        raise StreamFileError(f"{path}: the folder has no stream file (*.yaml or *.yml)")
    return files


def _load(path: Path) -> tuple[Stream, Document]:
    document, problems = parse_yaml(_text(path))
    if not problems and not isinstance(document.value, dict):
        problems = [(1, f"must be a mapping with the keys {', '.join(Stream.model_fields)}")]
    if not problems:
        try:
            return Stream.model_validate(document.value, context={"origin": path}), document
        except ValidationError as error:
            problems = describe_errors(error, document, Stream)
    raise StreamFileError(*(f"{path}:{line}: {problem}" for line, problem in problems))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise StreamFileError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise StreamFileError(f"{path}:{line}: is not UTF-8: {error.reason}") from None
