"""A real S3 server: versitygw, which keeps each bucket as a folder and each object as a file."""

import os
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from dedup_platform.errors import MissingPartError
from dedup_platform.processes import free_port
from dedup_platform.testing.servers.process import LOOPBACK, ServerProcess

__all__ = ["VERSITYGW", "S3Server", "versitygw"]

VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
HEALTH = "/health"
"""The path that answers when the server serves."""


class S3Server(ServerProcess):
    """An S3 server on the loopback interface; `folder` keeps its objects and its log. Addresses are path-style.

    Raises MissingPartError where versitygw is not installed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        access_key: str = "testing",
        secret_key: str = "testing-secret",
        region: str = "us-east-1",
        buckets: tuple[str, ...] = (),
    ) -> None:
        self.port = port or free_port()
        self.access_key = access_key
        self.secret_key = secret_key
        self.region = region
        self.endpoint = f"http://{LOOPBACK}:{self.port}"
        objects = folder.absolute() / "objects"
        for name in ("", *buckets):
            (objects / name).mkdir(parents=True, exist_ok=True)
        listening = ["--port", f"{LOOPBACK}:{self.port}", "--region", region, "--health", HEALTH, "--quiet"]
        super().__init__(
            "versitygw",
            [str(versitygw()), *listening, "posix", str(objects)],
            folder / "s3.log",
            self._is_healthy,
            # In the environment and not in the command, which every user of the machine can see.
            environment={**os.environ, "ROOT_ACCESS_KEY": access_key, "ROOT_SECRET_KEY": secret_key},
        )

    def client(self, endpoint: str | None = None) -> Any:
        """A client of boto3 for this server, or for what stands before it at `endpoint`."""
        return boto3.client(
            "s3",
            endpoint_url=endpoint or self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
            config=Config(s3={"addressing_style": "path"}),
        )

    def create_bucket(self, name: str) -> None:
        """Create a bucket; fails if there is one of this name."""
        self.client().create_bucket(Bucket=name)

    def _is_healthy(self) -> bool:
        with urllib.request.urlopen(f"{self.endpoint}{HEALTH}", timeout=5) as answer:
            return bool(answer.status == 200)


def versitygw() -> Path:
    """The program, found on the PATH or where `go install` puts it. Raises MissingPartError."""
    folders = [os.environ.get("PATH", ""), os.environ.get("GOBIN", ""), *_go_bin()]
    found = shutil.which("versitygw", path=os.pathsep.join(filter(None, folders)))
    if found is None:
        raise MissingPartError("versitygw (an S3 server)", f"go install {VERSITYGW}")
    return Path(found)


def _go_bin() -> list[str]:
    """Where `go install` puts programs unless GOBIN says otherwise; empty where there is no Go."""
    go = shutil.which("go")
    default = [str(Path.home() / "go" / "bin")]
    if go is None:
        return default
    asked = subprocess.run([go, "env", "GOPATH"], capture_output=True, text=True, check=False)
    return [str(Path(path) / "bin") for path in asked.stdout.strip().split(os.pathsep) if path] or default
