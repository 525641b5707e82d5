"""The bytes of objects as they were listed: whoever reads another version than that is told."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from io import SEEK_CUR, SEEK_END, SEEK_SET, BufferedReader, RawIOBase
from typing import Any, BinaryIO, cast

from botocore.exceptions import ClientError
from tenacity import retry_if_exception_type
from urllib3.exceptions import HTTPError

from dedup_platform.errors import SourceChangedError, SourceError
from dedup_platform.escapes import one_line
from dedup_platform.retries import retry_reads
from dedup_platform.sources.listing import SourceFile
from dedup_platform.sources.s3.access import S3Access
from dedup_platform.sources.s3.client import CONNECTIONS, FAILURES, client, failures_named, reason
from dedup_platform.stream.s3_path import SCHEME

__all__ = ["changed_objects", "opened_object"]

_BUFFER = 256 * 1024
_GONE = ("NoSuchKey", "404")
_ANOTHER = ("PreconditionFailed", "412")
_TOLD = {"ETag", "ContentLength"}
_BROKE_OFF = "the answer ended among its headers"  # of which those that came are taken for all


class _InterruptedError(Exception):
    """The connection broke, or the answer ended before the object did. Another request may go on from there."""


@contextmanager
def opened_object(access: S3Access, file: SourceFile) -> Iterator[BinaryIO]:
    """An object to read from, at any place, in little memory.

    Reading raises SourceChangedError if it is no longer as it was listed, SourceError if it is gone or the store stays
    away. A connection that breaks is made again, and goes on where it was.
    """
    with closing(_Object(access, file)) as raw:
        yield cast(BinaryIO, BufferedReader(raw, _BUFFER))


def changed_objects(access: S3Access, files: Sequence[SourceFile]) -> list[SourceFile]:
    """Those that are no longer as they were listed, or are gone. SourceError if the store does not tell."""
    with ThreadPoolExecutor(CONNECTIONS) as asking:
        are_there = asking.map(lambda file: _is_there(access, file), files)
        return [file for file, is_there in zip(files, are_there, strict=True) if not is_there]


def _is_there(access: S3Access, file: SourceFile) -> bool:
    with failures_named(file.path):
        try:
            answer = client(access).head_object(**_named(file))
        except ClientError as error:
            if _code(error) in _GONE:
                return False
            raise
    if not answer.keys() >= _TOLD:
        raise SourceError(file.path, f"cannot be read: {_BROKE_OFF}")
    return _is_as_listed(file, answer, file.size)


class _Object(RawIOBase):
    """Asks for the rest of the object when it is read, and again from another place when that is sought."""

    def __init__(self, access: S3Access, file: SourceFile) -> None:
        self._access = access
        self._file = file
        self._place = 0
        self._body: Any = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        place = {SEEK_SET: 0, SEEK_CUR: self._place, SEEK_END: self._file.size}[whence] + offset
        if place != self._place:
            self._hang_up()
            self._place = place
        return place

    def readinto(self, buffer: Any) -> int:
        if self._place >= self._file.size:
            return 0
        try:
            piece = self._piece(len(buffer))
        except _InterruptedError as error:
            raise SourceError(self._file.path, f"cannot be read: {error}") from None
        buffer[: len(piece)] = piece
        self._place += len(piece)
        return len(piece)

    def close(self) -> None:
        self._hang_up()
        super().close()

    @retry_reads(retry=retry_if_exception_type(_InterruptedError))
    def _piece(self, most: int) -> bytes:
        """Some bytes from the place on, at least one."""
        try:
            self._body = self._body or self._ask()
            piece = bytes(self._body.read(min(most, self._file.size - self._place)))
        except (*FAILURES, HTTPError, OSError) as error:
            self._hang_up()
            raise _InterruptedError(reason(error)) from None
        if not piece:
            self._hang_up()
            raise _InterruptedError(f"the answer ended after {self._place} of {self._file.size} bytes")
        return piece

    def _ask(self) -> Any:
        rest = {"Range": f"bytes={self._place}-"} if self._place else {}
        try:
            answer = client(self._access).get_object(**_named(self._file), IfMatch=f'"{self._file.etag}"', **rest)
        except ClientError as error:
            if _code(error) in _ANOTHER:
                raise _changed(self._file) from None
            if error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
                raise SourceError(self._file.path, f"cannot be read: {reason(error)}") from None
            raise
        if not answer.keys() >= _TOLD:
            answer["Body"].close()
            raise _InterruptedError(_BROKE_OFF)
        # Not every store heeds If-Match.
        if not _is_as_listed(self._file, answer, self._file.size - self._place):
            answer["Body"].close()
            raise _changed(self._file)
        return answer["Body"]

    def _hang_up(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None


def _named(file: SourceFile) -> dict[str, str]:
    bucket, _, key = file.location.removeprefix(SCHEME).partition("/")
    return {"Bucket": bucket, "Key": key}


def _is_as_listed(file: SourceFile, answer: dict[str, Any], size: int) -> bool:
    return bool(answer["ETag"].strip('"') == file.etag and answer["ContentLength"] == size)


def _changed(file: SourceFile) -> SourceChangedError:
    return SourceChangedError(f"{one_line(file.path)} changed since it was listed")


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
