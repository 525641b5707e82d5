"""A bucket in which a stream's files land."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from dedup_platform.sources.s3.access import S3Access
from dedup_platform.sources.s3.client import client
from dedup_platform.stream import FilesSource, Stream
from dedup_platform.testing.servers import S3Server
from dedup_platform_tests.servers import new_name


@dataclass(frozen=True)
class Landing:
    """A bucket of a test's own on a server; `endpoint` is the server's, or that of a proxy before it."""

    server: S3Server
    endpoint: str
    bucket: str = field(default_factory=new_name)

    @classmethod
    def on(cls, server: S3Server, endpoint: str | None = None) -> "Landing":
        landing = cls(server, endpoint or server.endpoint)
        server.create_bucket(landing.bucket)
        return landing

    @property
    def access(self) -> S3Access:
        return S3Access(self.endpoint, None, True, self.server.access_key, self.server.secret_key)

    @property
    def places(self) -> dict[str, Any]:
        """The settings with which a platform reaches it."""
        return {
            "s3_endpoint": self.endpoint,
            "s3_access_key_id": self.server.access_key,
            "s3_secret_access_key": self.server.secret_key,
        }

    def of(self, stream: Stream, pattern: str, **source: Any) -> Stream:
        """The same stream, whose files land here."""
        said = {"kind": "files", "path": f"s3://{self.bucket}/{pattern}", "format": stream.source.format, **source}
        return stream.model_copy(update={"source": FilesSource.model_validate(said)})

    def put(self, key: str, content: bytes = b"{}\n", modified: datetime | None = None) -> None:
        """Write an object; `modified` is then its time."""
        self.server.client().put_object(Bucket=self.bucket, Key=key, Body=content)
        if modified:
            os.utime(self.server.log.parent / "objects" / self.bucket / key, (modified.timestamp(),) * 2)

    def delete(self, key: str) -> None:
        self.server.client().delete_object(Bucket=self.bucket, Key=key)

    def upload(self, folder: Path, prefix: str) -> None:
        """Write all files of a folder, in the order of their times."""
        for file in sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime):
            self.put(f"{prefix}{file.name}", file.read_bytes())

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """While the block runs: how many `pages` were listed, and how many `keys` they held."""
        counts: Counter[str] = Counter()

        def count(parsed: dict[str, Any], **_: Any) -> None:
            counts.update(pages=1, keys=parsed.get("KeyCount", 0))

        events = client(self.access).meta.events
        events.register("after-call.s3.ListObjectsV2", count)
        try:
            yield counts
        finally:
            events.unregister("after-call.s3.ListObjectsV2", count)
