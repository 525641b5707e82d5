"""What the addresses of a deployment may be: checked, and brought into one form each.

Whatever is wrong with one is told by a ValueError that says what is allowed and repeats nothing of the address, which
may hold a password.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pyiceberg.exceptions import RESTError
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from dedup_platform.errors import UnreachableError

__all__ = [
    "CatalogKind",
    "absolute",
    "catalog",
    "dagster_database",
    "database",
    "kind_of",
    "reaching",
    "sqlite",
    "warehouse",
]

CatalogKind = Literal["sqlite", "postgresql", "rest", "glue"]

_POSTGRES = "postgresql+psycopg2"
_DATABASES = "a SQLite file (sqlite:////absolute/path.db) or a Postgres database (postgresql://user@host:5432/name)"
_CATALOGS = f"{_DATABASES}, a REST catalog (https://host/path) or AWS Glue (glue://region or glue://region/account)"


def absolute(path: Path) -> Path:
    """The path from the root, as of the current folder."""
    return Path(os.path.abspath(path.expanduser()))


def sqlite(file: Path) -> str:
    """The SQLAlchemy URL of a SQLite file."""
    return str(URL.create("sqlite", database=str(file)))


def database(uri: str) -> str:
    """The SQLAlchemy URL of a SQLite file or of a Postgres database, with the driver that the platform has."""
    return _database(uri, _DATABASES)


def dagster_database(uri: str) -> str:
    """A Postgres database, spelled as Dagster itself must find it in the environment."""
    if not uri.startswith(f"{_POSTGRES}://"):
        raise ValueError(f"must begin with {_POSTGRES}://, driver included, because Dagster itself reads this variable")
    return database(uri)


def catalog(uri: str) -> str:
    """The address of an Iceberg catalog; `kind_of` tells of which kind."""
    kind = kind_of(uri)
    if kind is None:
        raise ValueError(f"must be {_CATALOGS}")
    if kind in ("sqlite", "postgresql"):
        return _database(uri, _CATALOGS)
    parts = urlsplit(uri)
    if "@" in parts.netloc:
        raise ValueError(
            "must hold no user or password; a REST catalog's are DEDUP_PLATFORM_CATALOG_CREDENTIAL or "
            "DEDUP_PLATFORM_CATALOG_TOKEN"
        )
    if not parts.hostname:
        raise ValueError(f"must be {_CATALOGS}")
    return uri


def kind_of(catalog_uri: str) -> CatalogKind | None:
    """Which kind of catalog an address is of; None if of none that is known."""
    scheme = catalog_uri.partition(":")[0].partition("+")[0]
    known: dict[str, CatalogKind] = {
        "sqlite": "sqlite",
        "postgresql": "postgresql",
        "http": "rest",
        "https": "rest",
        "glue": "glue",
    }
    return known.get(scheme)


def warehouse(place: str) -> str:
    """A folder of this machine as a plain absolute path, or `s3://bucket/prefix` without a slash at its end."""
    if place.startswith("s3://"):
        bucket, _, prefix = place.removeprefix("s3://").strip("/").partition("/")
        if not bucket or not prefix:
            raise ValueError("must name a bucket and a prefix, s3://bucket/prefix")
        return f"s3://{bucket}/{prefix}"
    folder = place.removeprefix("file://")
    if "://" in folder or not folder:
        raise ValueError("must be a folder of this machine or s3://bucket/prefix; no other object store is supported")
    return str(absolute(Path(folder)))


@contextmanager
def reaching(variable: str) -> Iterator[None]:
    """Turn the refusal of a database or a REST catalog to be opened into UnreachableError, in its own words."""
    try:
        yield
    except DBAPIError as error:
        raise UnreachableError(variable, _first_line(error.orig)) from error
    except (RESTError, OSError) as error:
        raise UnreachableError(variable, _first_line(error)) from error


def _first_line(error: BaseException | None) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _database(uri: str, allowed: str) -> str:
    try:
        url = make_url(uri)
    except (ArgumentError, ValueError):
        raise ValueError(
            f"must be {allowed}; special characters of a password are written %40 for @, %2F for /"
        ) from None
    if url.drivername in ("sqlite", "sqlite+pysqlite") and url.database not in (None, "", ":memory:"):
        return sqlite(absolute(Path(str(url.database))))
    if url.drivername not in ("postgresql", _POSTGRES) or not url.database:
        raise ValueError(f"must be {allowed}")
    if "@" in (url.host or ""):
        # What stands between the two would be told as a part of the host's name.
        raise ValueError("holds @ twice: write the one of the password as %40")
    return url.set(drivername=_POSTGRES).render_as_string(hide_password=False)
