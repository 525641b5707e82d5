"""The token by which a Spark Connect server of ours knows its clients: without it nobody may run code there.

Each home has one, in a file that nobody else reads. Spark's own environment variable goes before it.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from secrets import token_urlsafe
from tempfile import NamedTemporaryFile

from dedup_platform.errors import SettingsError
from dedup_platform.settings import Settings

__all__ = ["FILE", "VARIABLE", "remote_by_name", "server_conf", "server_token", "with_token"]

VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""Spark's own, for servers and clients."""
FILE = "connect-token"
"""Where it is in a home."""
_PROPERTY = "spark.connect.authenticate.token"
_HEADER = "authorization"


def server_conf(settings: Settings) -> dict[str, str]:
    """The property that has a server ask for the home's token, which is made if there is none. Secret.

    Empty where Spark has a token already, from the environment or from `settings.spark_conf`.
    Raises SettingsError if the file is there and no token in it can be read.
    """
    if os.environ.get(VARIABLE) or _PROPERTY in settings.spark_conf:
        return {}
    token = _known(settings) or _made(settings)
    _file(settings).chmod(0o600)
    return {_PROPERTY: token}


def server_token(settings: Settings) -> str | None:
    """What a server of these settings asks for, in the order in which Spark itself looks. Secret."""
    return settings.spark_conf.get(_PROPERTY) or os.environ.get(VARIABLE) or _known(settings)


def remote_by_name(remote: str, settings: Settings) -> str:
    """The address as PySpark needs it: it sends a token without TLS to `localhost` only, and not to its number."""
    has_token = _is_here(remote) and (os.environ.get(VARIABLE) or _own(settings))
    return re.sub(r"^sc://(\[[^]]*]|[^:/]*)", "sc://localhost", remote) if has_token else remote


@contextmanager
def with_token(settings: Settings) -> Iterator[None]:
    """Let sessions that are opened meanwhile at `settings.spark_remote` send the home's token, if that server is here.

    It is in the environment: an address is shown in more places.
    """
    before = os.environ.get(VARIABLE)
    remote = settings.spark_remote
    _set(before or (_own(settings) if remote and _is_here(remote) else None))
    try:
        yield
    finally:
        _set(before)


def _set(token: str | None) -> None:
    """Set Spark's variable, or remove it: for PySpark an empty token is one, too."""
    if token:
        os.environ[VARIABLE] = token
    else:
        os.environ.pop(VARIABLE, None)


def _is_here(remote: str) -> bool:
    """Whether the server is on this machine, without TLS, and its address names no token."""
    from pyspark.sql.connect.client import DefaultChannelBuilder

    address = DefaultChannelBuilder(remote)
    # PySpark sends parameters that it does not know itself as headers.
    has_own = address.getDefault(DefaultChannelBuilder.PARAM_TOKEN, "") or _HEADER in dict(address.metadata())
    return not has_own and not address.use_ssl and _is_on_loopback(address.host)


def _own(settings: Settings) -> str | None:
    return settings.spark_conf.get(_PROPERTY) or _known(settings)


def _is_on_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _known(settings: Settings) -> str | None:
    with suppress(OSError):
        return _file(settings).read_text(encoding="utf-8").strip() or None
    return None


def _made(settings: Settings) -> str:
    """A new token, or that of another process that was faster."""
    with NamedTemporaryFile("w", dir=settings.home, prefix=f".{FILE}-", encoding="utf-8") as file:
        file.write(token_urlsafe(32))
        file.flush()
        # Nobody ever sees half of it: it comes to its place when it is written.
        with suppress(FileExistsError):
            os.link(file.name, _file(settings))
    if not (token := _known(settings)):
        raise SettingsError(f"{_file(settings)}: holds no token that can be read; remove it, and a new one is made")
    return token


def _file(settings: Settings) -> Path:
    return settings.home / FILE
