"""What there is to read at a source of files: what it lists, compared with what was read.

A folder is listed whole every time. Of an S3 bucket all keys are listed now and then, `source.relist`; in between a
listing starts behind the keys that are known, so that it costs what is new. What arrives before that place is found by
the next listing of all keys.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pydantic import TypeAdapter, ValidationError

from dedup_platform.ingest.pending import CHANGED
from dedup_platform.lake.receipts import ANY_GENERATION, Acceptance, ReadFile
from dedup_platform.ledger import Ledger
from dedup_platform.sources.files import SourceFile, list_files
from dedup_platform.sources.listing import unsettled
from dedup_platform.sources.s3.access import S3Access
from dedup_platform.sources.s3.listing import ListedKey, list_keys
from dedup_platform.stream import S3Path, Stream

__all__ = ["OVERLAP", "Generations", "Look", "judged", "look_at_bucket", "look_at_folder"]

OVERLAP = timedelta(minutes=10)
"""Keys that are younger may still be joined by others before them: of several writers, or that a listing left out."""
_CHANGED_KEPT = 1000

Generations = list[tuple[SourceFile, int]]
"""Files, each with the generation that it is read as."""
Verdict = int | str | ReadFile
"""The generation to read a file as, or why it is left to a person, or as what it was read."""


@dataclass
class Look:
    """Files to read, in order, and the others with the reason; `changed` are those that a person must decide about."""

    files: Generations = field(default_factory=list)
    reasons: list[tuple[str, str]] = field(default_factory=list)
    changed: list[SourceFile] = field(default_factory=list)
    doubtful: list[SourceFile] = field(default_factory=list)
    """Files that were read, but of which it is no longer known what they held then."""
    skipped: list[SourceFile] = field(default_factory=list)
    """Files that people had left out."""

    def add(self, file: SourceFile, verdict: Verdict) -> None:
        """Take in one file that can be read."""
        if isinstance(verdict, int):
            self.files.append((file, verdict))
        elif isinstance(verdict, str):
            self.reasons.append((file.path, verdict))
            self.changed.append(file)
        elif verdict.size is None:
            self.doubtful.append(file)
        elif verdict.skipped:
            self.skipped.append(file)

    def sort(self) -> None:
        """Bring files into the order in which they are read, and reasons into that of their paths."""
        self.files.sort(key=lambda each: (each[0].modified, each[0].path))
        self.reasons.sort()


def look_at_folder(stream: Stream, ledger: Ledger, now: datetime) -> Look:
    """The files of the stream's folder. SourceError if it cannot be read."""
    listing = list_files(stream, now)
    look = judged(stream, ledger, listing.ready)
    look.reasons = [*listing.waiting, *look.reasons]
    return look


def judged(stream: Stream, ledger: Ledger, files: Sequence[SourceFile]) -> Look:
    """Of these files those that are to be read, in the same order, and those that changed after they were."""
    look = Look()
    for file, verdict in _verdicts(stream, ledger, files):
        look.add(file, verdict)
    return look


def look_at_bucket(stream: Stream, ledger: Ledger, s3: S3Access, now: datetime, whole: bool = False) -> Look:
    """The files of the stream's S3 bucket: of all keys if that is due or `whole`, else of those that may be new.

    SourceError if the bucket cannot be listed.
    """
    path = stream.files.s3
    assert path, f"{stream.name} is not on S3"
    recent = path.prefixes(now - path.step, now + OVERLAP)
    last = None if whole else _last(stream, ledger, now)
    found = _BucketLook(stream, ledger, now, path, _Listed(stream.files.path, now) if last is None else last.again())
    starts = {path.prefix: ""} if last is None else dict.fromkeys(recent, "") | last.starts
    for prefix, start in starts.items():
        for page in list_keys(s3, path, prefix, start):
            found.add(page)
    if last:
        found.add_known(last.changed)
    listed = found.listed(recent)
    if listed != last:
        ledger.keep_listing(stream.name, listed.to_text())
    found.look.sort()
    return found.look


@dataclass
class _Listed:
    """What one listing leaves for the next: lost or outdated, it costs requests, and nothing else.

    `starts` tells for each prefix the key behind which to go on: all keys up to there were read, or left alone.
    """

    path: str
    """The `path` of the stream file. With another one all of this is worthless."""
    whole_at: datetime
    """When all keys were listed."""
    starts: dict[str, str] = field(default_factory=dict)
    changed: list[SourceFile] = field(default_factory=list)
    """What is left to a person, who is reminded of it also when it is not listed."""

    def to_text(self) -> str:
        return _LISTED.dump_json(self).decode()

    def again(self) -> "_Listed":
        """To be filled by another listing."""
        return _Listed(self.path, self.whole_at, dict(self.starts))


_LISTED = TypeAdapter(_Listed)


def _last(stream: Stream, ledger: Ledger, now: datetime) -> _Listed | None:
    """What the last listing left; None if all keys are to be listed."""
    try:
        last = _LISTED.validate_json(ledger.listing(stream.name) or "")
    except ValidationError:
        # There is none, or another version of the platform wrote it.
        return None
    is_usable = last.path == stream.files.path and last.whole_at <= now < last.whole_at + stream.files.relist
    return last if is_usable else None


class _BucketLook:
    """Pages of keys, judged one after the other, so that only what is to be read or decided stays in memory."""

    def __init__(self, stream: Stream, ledger: Ledger, now: datetime, path: S3Path, listed: _Listed) -> None:
        self.look = Look()
        self._stream = stream
        self._ledger = ledger
        self._now = now
        self._path = path
        self._listed = listed
        self._open: set[str] = set()
        self._seen: set[str] = set()

    def add(self, page: Sequence[ListedKey]) -> None:
        """Take in one page. Each prefix's keys come in their order."""
        files = [each.file for each in page if each.file and not each.waits]
        verdicts = {file.path: verdict for file, verdict in _verdicts(self._stream, self._ledger, files)}
        for each in page:
            is_unread = False
            if each.waits:
                self.look.reasons.append((each.path, each.waits))
            elif each.file:
                is_unread = self._add_file(each.file, verdicts[each.path])
            self._move_start(each, is_unread)

    def add_known(self, changed: Iterable[SourceFile]) -> None:
        """Take in files that changed, as they were last listed, unless they were listed now."""
        left = [file for file in changed if file.path not in self._seen]
        for file, verdict in _verdicts(self._stream, self._ledger, left):
            self.look.add(file, verdict)

    def listed(self, recent: Sequence[str]) -> _Listed:
        """What this look leaves for the next; of prefixes that are not recent, those that hold something unread."""
        starts = dict.fromkeys(self._open, "") | self._listed.starts
        kept = {prefix: start for prefix, start in starts.items() if prefix in self._open or prefix in recent}
        changed = sorted(self.look.changed, key=lambda file: file.path)[:_CHANGED_KEPT]
        return _Listed(self._listed.path, self._listed.whole_at, kept, changed)

    def _add_file(self, file: SourceFile, verdict: Verdict) -> bool:
        """Whether it is to be read, now or once it has rested."""
        self._seen.add(file.path)
        is_read = isinstance(verdict, ReadFile)
        waits = None if is_read else unsettled(self._stream, file.modified, self._now)
        if waits:
            self.look.reasons.append((file.path, waits))
            return True
        self.look.add(file, verdict)
        return isinstance(verdict, int)

    def _move_start(self, each: ListedKey, is_unread: bool) -> None:
        prefix = self._path.prefix_of(each.key)
        if is_unread:
            self._open.add(prefix)
        elif prefix not in self._open and each.modified <= self._now - OVERLAP:
            self._listed.starts[prefix] = each.key


def _verdicts(stream: Stream, ledger: Ledger, files: Sequence[SourceFile]) -> Iterator[tuple[SourceFile, Verdict]]:
    """Each file with its verdict."""
    if not files:
        return
    known, accepted = ledger.files(stream.name, [file.path for file in files]), ledger.accepted(stream.name)
    for file in files:
        read = known.get(file.path)
        if read is None:
            yield file, 0
        elif Acceptance(file.path, file.etag, read.generation + 1) in accepted:
            yield file, read.generation + 1
        elif not _differs(read, file):
            yield file, read
        elif Acceptance(file.path, file.etag, ANY_GENERATION) in accepted:
            yield file, read.generation + 1
        else:
            yield file, f"{CHANGED}: accept it with `files accept`, or restore the file"


def _differs(read: ReadFile, file: SourceFile) -> bool:
    # The etag is unknown if positions had to be derived from raw when the file was not listed.
    return read.etag is not None and read.etag != file.etag
