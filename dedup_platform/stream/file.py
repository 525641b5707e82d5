"""Stream files: from YAML to streams, with errors that name the file, the line and the key."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from dedup_platform.errors import StreamFileError
from dedup_platform.regular_files import opened
from dedup_platform.stream.describe import describe_errors
from dedup_platform.stream.model import Stream
from dedup_platform.stream.positions import Document, parse_yaml

__all__ = ["StreamFiles", "load_stream", "load_streams", "read_streams", "stream_of_text"]

_MOST_BYTES = 256 * 1024


@dataclass(frozen=True)
class StreamFiles:
    """What is in a folder of stream files: its streams, by name in the order of the files, and the files that are none.

    Of each broken file there is the error with all its problems.
    """

    streams: dict[str, Stream]
    broken: dict[Path, StreamFileError]


def read_streams(path: Path) -> StreamFiles:
    """The streams of a file, or of a folder's `*.yaml` and `*.yml`: what is wrong with one file is not another's.

    Files whose streams have the same name are broken, all of them: nobody knows which is meant. Raises StreamFileError
    with every problem if no stream is left.
    """
    read: dict[Path, tuple[Stream, Document]] = {}
    broken: dict[Path, StreamFileError] = {}
    for file in _stream_files(path):
        try:
            read[file] = _load(file)
        except StreamFileError as error:
            broken[file] = error
    owners: dict[str, list[Path]] = {}
    for file, (stream, _) in read.items():
        owners.setdefault(stream.name, []).append(file)
    for name, files in owners.items():
        for file in files if files[1:] else ():
            line, _ = read[file][1].locate(["name"])
            other = next(each for each in files if each != file)
            taken = f"{name!r} is the name of the stream in {other.name}, too; every stream needs its own"
            broken[file] = StreamFileError(f"{file}:{line}: name: {taken}")
    streams = {stream.name: stream for file, (stream, _) in read.items() if file not in broken}
    found = StreamFiles(streams, dict(sorted(broken.items())))
    if not streams:
        raise _all_of(found)
    return found


def load_streams(path: Path) -> dict[str, Stream]:
    """The same where no file may be broken: raises StreamFileError with every problem of every file."""
    found = read_streams(path)
    if found.broken:
        raise _all_of(found)
    return found.streams


def _all_of(found: StreamFiles) -> StreamFileError:
    return StreamFileError(*(problem for error in found.broken.values() for problem in error.problems))


def load_stream(path: Path) -> Stream:
    """The stream of one file. Raises StreamFileError with every problem, as `file:line: key: what is wrong`."""
    return _load(path)[0]


def stream_of_text(text: str, path: Path) -> Stream:
    """The stream of a text that is to be the file at `path`. Errors as those of `load_stream`."""
    return _stream_of(text, path)[0]


def _stream_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(f for f in path.iterdir() if f.suffix in (".yaml", ".yml") and not f.name.startswith("."))
    if not files:
        raise StreamFileError(f"{path}: the folder has no stream file (*.yaml or *.yml)")
    return files


def _load(path: Path) -> tuple[Stream, Document]:
    return _stream_of(_text(path), path)


def _stream_of(text: str, path: Path) -> tuple[Stream, Document]:
    document, problems = parse_yaml(text)
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
        with opened(path) as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise StreamFileError(f"{path}: is larger than {_MOST_BYTES // 1024} KiB, as no stream file is")
        return text.decode()
    except OSError as error:
        raise StreamFileError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise StreamFileError(f"{path}:{line}: is not UTF-8: {error.reason}") from None
