"""Where objects are kept: a folder or S3, with the one thing that makes a log of them: to create what is not there."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from botocore.exceptions import ClientError

from dedup_platform.sources.s3.access import S3Access
from dedup_platform.sources.s3.client import client

_TAKEN = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_MISSING = ("NoSuchKey", "404")


class Storage(Protocol):
    """Objects by their names, with slashes in them."""

    def put(self, name: str, content: bytes) -> None:
        """Write an object, in the place of any that is there."""

    def create(self, name: str, content: bytes) -> bool:
        """Write an object that is not there; False, and nothing is written, if it is."""

    def get(self, name: str) -> bytes | None:
        """The content of an object; None if it is not there."""

    def names(self, folder: str, after: str) -> Iterator[str]:
        """The names below a folder, without it, that come after one in their order."""


class FolderStorage:
    """A folder of this machine. What was written is on the disk."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, name: str, content: bytes) -> None:
        path = self._root / name
        self._written(path, content).replace(path)
        _sync_folder(path.parent)

    def create(self, name: str, content: bytes) -> bool:
        path = self._root / name
        written = self._written(path, content)
        try:
            # A link, unlike a rename, fails where the name is taken; and it comes with all of its content.
            os.link(written, path)
        except FileExistsError:
            return False
        finally:
            written.unlink()
        _sync_folder(path.parent)
        return True

    def get(self, name: str) -> bytes | None:
        with suppress(FileNotFoundError):
            return (self._root / name).read_bytes()
        return None

    def names(self, folder: str, after: str) -> Iterator[str]:
        with suppress(FileNotFoundError):
            names = (each.name for each in (self._root / folder).iterdir())
            yield from sorted(name for name in names if name > after and not name.startswith("."))

    def _written(self, path: Path, content: bytes) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.parent / f".{uuid4().hex}"
        with written.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return written


class S3Storage:
    """A prefix of a bucket."""

    def __init__(self, access: S3Access, bucket: str, prefix: str) -> None:
        self._client: Any = client(access)
        self._bucket = bucket
        self._prefix = prefix

    def put(self, name: str, content: bytes) -> None:
        self._client.put_object(Bucket=self._bucket, Key=self._prefix + name, Body=content)

    def create(self, name: str, content: bytes) -> bool:
        try:
            self._client.put_object(Bucket=self._bucket, Key=self._prefix + name, Body=content, IfNoneMatch="*")
        except ClientError as error:
            if _code(error) not in _TAKEN:
                raise
            # It may have been this very request, whose answer was lost and which boto3 sent again.
            return self.get(name) == content
        return True

    def get(self, name: str) -> bytes | None:
        try:
            found: bytes = self._client.get_object(Bucket=self._bucket, Key=self._prefix + name)["Body"].read()
        except ClientError as error:
            if _code(error) not in _MISSING:
                raise
            return None
        return found

    def names(self, folder: str, after: str) -> Iterator[str]:
        start = f"{self._prefix}{folder}/"
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=start, StartAfter=start + after
        )
        for page in pages:
            yield from (each["Key"].removeprefix(start) for each in page.get("Contents", ()))


def _code(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
