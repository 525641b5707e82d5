"""Sessions at a Spark Connect server: whether one answers, how long to wait for it, and what its going away looks like.

The modules of PySpark that need grpc are loaded here only, and only where there is a server.
"""

import atexit
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dedup_platform.errors import SparkServerError
from dedup_platform.settings import Settings
from dedup_platform.spark.connect_token import FILE, VARIABLE, with_token

__all__ = ["answers", "leave_servers", "opened", "translate_connect_errors"]

_SECONDS_TO_CONNECT = 5
# PySpark waits ten minutes for a server that went away, although its sessions went with it. 17 seconds are enough for
# a network that stumbled.
_RETRIES = 5

_OWN: list[SparkSession] = []
"""The sessions that end with this process."""

_AGAIN = ". Run again when it is there, or unset DEDUP_PLATFORM_SPARK_REMOTE to run with a Spark of your own."
_UNKNOWN = (
    f"does not know us: set {VARIABLE} to its token, which for a server of ours is in the file {FILE} of its home"
)


def opened(settings: Settings, open_session: Callable[[], SparkSession]) -> SparkSession:
    """What `open_session` gives. A session at a server fails soon when the server is gone, and ends with this process.

    One that `settings.spark_remote` names (`session_id`) is shared with other processes, and is left as it is.
    Raises SparkServerError if no server answers at `settings.spark_remote`, or if it wants another token.
    """
    if not settings.spark_remote:
        return open_session()
    host, port = _address(settings.spark_remote)
    if not answers(host, port):
        raise SparkServerError(settings.spark_remote, f"does not answer{_AGAIN}")
    with with_token(settings), translate_connect_errors(settings):
        try:
            session = open_session()
        except PySparkException:
            # The server was started anew since this process spoke to it, and PySpark has noticed just now.
            session = open_session()
    _limit_retries(session, _RETRIES)
    if not _is_shared(settings.spark_remote) and session not in _OWN:
        _OWN.append(session)
    return session


@atexit.register
def leave_servers() -> None:
    """Give up this process's sessions at servers, which cancel what is at work in them.

    Whoever ends without it, as a process that is killed does, leaves its work to go on there.
    """
    while _OWN:
        _leave(_OWN.pop())


@contextmanager
def translate_connect_errors(settings: Settings) -> Iterator[None]:
    """Turn the many ways in which work ends when its Spark Connect server goes away into one SparkServerError.

    Into another one if the server wants a token that we do not have.
    """
    try:
        yield
    except PySparkException as error:
        if settings.spark_remote and _is_unknown(error):
            raise SparkServerError(settings.spark_remote, _UNKNOWN) from error
        if settings.spark_remote and _is_gone(error, settings.spark_remote):
            raise SparkServerError(settings.spark_remote, f"went away in the middle of the work{_AGAIN}") from error
        raise


def answers(host: str, port: int) -> bool:
    """Whether something listens there."""
    try:
        socket.create_connection((host, port), _SECONDS_TO_CONNECT).close()
    except OSError:
        return False
    return True


def _address(remote: str) -> tuple[str, int]:
    from pyspark.sql.connect.client import DefaultChannelBuilder

    host, _, port = DefaultChannelBuilder(remote).endpoint.rpartition(":")
    return host.strip("[]"), int(port)


def _limit_retries(session: SparkSession, retries: int) -> None:
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=retries)])  # type: ignore[operator]  # a property


def _is_shared(remote: str) -> bool:
    from pyspark.sql.connect.client import DefaultChannelBuilder

    return DefaultChannelBuilder(remote).session_id is not None


def _leave(session: SparkSession) -> None:
    """Give up the session's place at the server; a server that is gone is not waited for."""
    _limit_retries(session, 0)
    session.stop()


def _is_unknown(error: PySparkException) -> bool:
    from grpc import StatusCode
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException

    return isinstance(error, SparkConnectGrpcException) and error.getGrpcStatusCode() == StatusCode.UNAUTHENTICATED


def _is_gone(error: PySparkException, remote: str) -> bool:
    from grpc import StatusCode
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException

    # A stream that broke in the middle of an answer has another code, or none.
    if isinstance(error, SparkConnectGrpcException) and (
        error.getGrpcStatusCode() == StatusCode.UNAVAILABLE or not answers(*_address(remote))
    ):
        return True
    # A server that was started anew meanwhile knows nothing of this session and its operations.
    return (error.getCondition() or "").startswith(("INVALID_HANDLE", "RESPONSE_ALREADY_RECEIVED"))
