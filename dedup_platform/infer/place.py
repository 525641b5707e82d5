"""From what a person names, a file, a folder or a pattern, to the pattern and the name of a stream."""

import glob
import os
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from dedup_platform.errors import SourceError
from dedup_platform.infer.columns import words_of
from dedup_platform.sources.listing import unfinished

__all__ = ["name_of", "pattern_of", "seen_from"]

_GLOB = re.compile(r"[*?\[]")
_MOST_FILES = 10_000
_S3 = "s3://"
_NO_NAMES = {"system", "default", "information_schema", "global_temp"}


def pattern_of(named: str) -> str:
    """The glob of the files that are meant, of a folder those of the most frequent kind. SourceError without any."""
    path = Path(named)
    if named.startswith(_S3) or (_GLOB.search(named) and not path.exists()):
        return named
    if path.is_dir():
        return _pattern_in(path)
    if not path.exists():
        raise SourceError(named, "there is no such file or folder")
    return glob.escape(named)


def name_of(pattern: str) -> str:
    """A name for the stream: that of the file, or of the last folder in front of the pattern."""
    fixed = [part for part in pattern.removeprefix(_S3).split("/") if part and not _GLOB.search(part)]
    last = fixed[-1] if fixed else ""
    is_file = bool(fixed) and pattern.endswith(last)
    words = [word for word in words_of(last.split(".")[0] if is_file else last) if not word.isdigit()]
    name = "_".join(words)[:60]
    return name if re.match("[a-z]", name) and name not in _NO_NAMES else "events"


def seen_from(pattern: str, folder: Path) -> str:
    """The pattern as a stream file in this folder has it: relative where it was given so."""
    if pattern.startswith(_S3) or Path(pattern).is_absolute():
        return pattern
    return os.path.relpath(pattern, folder)


def _pattern_in(folder: Path) -> str:
    found = Counter((_ending(path.name), path.parent == folder) for path in islice(_files(folder), _MOST_FILES))
    if not found:
        raise SourceError(folder, "there is no file in this folder")
    endings = Counter[str]()
    for (ending, _), count in found.items():
        endings[ending] += count
    [(ending, _)] = endings.most_common(1)
    escaped = glob.escape(str(folder))
    return f"{escaped}/*{ending}" if not found[ending, False] else f"{escaped}/**/*{ending}"


def _files(folder: Path) -> Iterator[Path]:
    """Those that a stream would read: none with a name of hidden or unfinished ones."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not unfinished(each))
        yield from (Path(parent, each) for each in sorted(names) if not unfinished(each))


def _ending(name: str) -> str:
    """What tells the kind of a file: `.json.gz` of `2015-01-01-1.json.gz`."""
    found = re.search(r"(?:\.[A-Za-z][A-Za-z0-9]{0,9}){1,2}$", name)
    return glob.escape(found[0]) if found else ""
