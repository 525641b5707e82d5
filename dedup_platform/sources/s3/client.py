"""How S3 is reached, in the driver and in Spark's Python workers."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from dedup_platform.errors import SourceError
from dedup_platform.sources.s3.access import S3Access

__all__ = ["FAILURES", "client", "failures_named", "reason"]

FAILURES = (BotoCoreError, ClientError)
"""All that boto3 raises: it could not ask, or was refused."""
CONNECTIONS = 16
"""Requests that one process has under way at the same time, at most."""
_ATTEMPTS = 5
_SECONDS_TO_CONNECT = 10
_SECONDS_TO_ANSWER = 60


@cache
def client(access: S3Access) -> Any:
    """This process's client of boto3; threads may share it. Making one takes a tenth of a second."""
    style = ("path" if access.path_style else "virtual") if access.endpoint else "auto"
    session = boto3.Session(region_name=access.region)
    # Other stores sign for any region, and boto3 wants one.
    region = session.region_name or "us-east-1"
    return session.client(
        "s3",
        region_name=region,
        endpoint_url=access.endpoint,
        aws_access_key_id=access.access_key_id,
        aws_secret_access_key=access.secret_access_key,
        config=Config(
            s3={"addressing_style": style},
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
            connect_timeout=_SECONDS_TO_CONNECT,
            read_timeout=_SECONDS_TO_ANSWER,
            max_pool_connections=CONNECTIONS,
            # Not every store knows Amazon's newer checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


@contextmanager
def failures_named(place: str) -> Iterator[None]:
    """Turn what boto3 raises into SourceError, with the place that could not be read."""
    try:
        yield
    except FAILURES as error:
        raise SourceError(place, f"cannot be read: {reason(error)}") from None


def reason(error: Exception) -> str:
    """Why a request failed, in one line: the store's code and words, or boto3's own."""
    if isinstance(error, ClientError):
        told = error.response.get("Error", {})
        return " ".join(f"{told.get('Code', 'refused')}: {told.get('Message', '')}".split())
    return " ".join(str(error).split())
