"""Which keys a bucket has: asked for page by page, in the order of their bytes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from dedup_platform.sources.listing import SourceFile, unfinished
from dedup_platform.sources.s3.access import S3Access
from dedup_platform.stream import S3Path
from dedup_platform.stream.s3_path import SCHEME

__all__ = ["ListedKey", "list_keys"]

_ARCHIVED = ("GLACIER", "DEEP_ARCHIVE")


@dataclass(frozen=True)
class ListedKey:
    """A key, and the file that it is for the stream. `waits` is why it cannot be read; without both it is none."""

    key: str
    modified: datetime
    file: SourceFile | None = None
    waits: str | None = None

    @property
    def path(self) -> str:
        """The path of the file, below the stream's root."""
        assert self.file, f"{self.key} is no file of the stream"
        return self.file.path


def list_keys(access: S3Access, path: S3Path, prefix: str, start_after: str = "") -> Iterator[list[ListedKey]]:
    """Pages of the keys that begin with `prefix` and follow `start_after`, all of them, in the order of their bytes.

    What does not match the path, and the keys that stand for folders, are no files. Raises SourceError if the bucket
    cannot be listed to the end.
    """
    # Loaded only by streams with objects on S3, as its library is.
    from dedup_platform.sources.s3.client import client, failures_named

    segments = path.pattern.split("/")
    if segments[-1] == "**":
        segments.append("*")
    asked = {"Bucket": path.bucket, "Prefix": prefix} | ({"StartAfter": start_after} if start_after else {})
    with failures_named(f"{SCHEME}{path.bucket}/{prefix}"):
        for page in client(access).get_paginator("list_objects_v2").paginate(**asked):
            yield [_listed(path, segments, each) for each in page.get("Contents", ())]


def _listed(path: S3Path, segments: Sequence[str], entry: dict[str, Any]) -> ListedKey:
    key, modified = entry["Key"], entry["LastModified"].astimezone(UTC)
    below = key.removeprefix(path.root)
    if key.endswith("/") or not _matches(below.split("/"), segments):
        return ListedKey(key, modified)
    file = SourceFile(below, f"{SCHEME}{path.bucket}/{key}", entry["Size"], entry["ETag"].strip('"'), modified)
    return ListedKey(key, modified, file, unfinished(below) or _archived(entry.get("StorageClass")))


def _matches(names: Sequence[str], segments: Sequence[str]) -> bool:
    if not segments:
        return not names
    segment, rest = segments[0], segments[1:]
    if segment == "**":
        return any(_matches(names[start:], rest) for start in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], segment) and _matches(names[1:], rest)


def _archived(storage_class: str | None) -> str | None:
    if storage_class in _ARCHIVED:
        return f"is archived as {storage_class}; copy it to a storage class that can be read at once"
    return None
