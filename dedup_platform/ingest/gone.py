"""What was taken in and is at the source no more: whoever begins anew will not get it again."""

from collections.abc import Iterator
from datetime import datetime

from dedup_platform.lake.receipts import ReadFile
from dedup_platform.ledger import Ledger
from dedup_platform.settings import Settings
from dedup_platform.sources.files import list_files
from dedup_platform.sources.s3.access import S3Access
from dedup_platform.sources.s3.listing import list_keys
from dedup_platform.stream import Stream


def gone_files(settings: Settings, ledger: Ledger, stream: Stream, now: datetime) -> list[ReadFile]:
    """The files that were read and that the source does not list any more. SourceError if it cannot be asked."""
    read = ledger.files(stream.name)
    for path in _listed(settings, stream, now):
        read.pop(path, None)
    return [file for file in read.values() if not file.skipped]


def _listed(settings: Settings, stream: Stream, now: datetime) -> Iterator[str]:
    if path := stream.files.s3:
        for page in list_keys(S3Access.of(settings), path, path.prefix):
            yield from (key.path for key in page if key.file)
        return
    found = list_files(stream, now)
    yield from (file.path for file in found.ready)
    yield from (name for name, _ in found.waiting)
