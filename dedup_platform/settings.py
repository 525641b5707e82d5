"""The deployment: where tables and databases live and which Spark does the work.

Everything comes from environment variables that start with `DEDUP_PLATFORM_`; nothing is read at import time.
"""

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError as UnreadableSettings
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from dedup_platform.errors import SettingsError

__all__ = ["CATALOG", "ENV_PREFIX", "JARS", "Settings", "load_settings"]

ENV_PREFIX = "DEDUP_PLATFORM_"
CATALOG = "lake"
JARS = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.xerial:sqlite-jdbc:3.54.1.0",
)
# A writer of another process holds SQLite's lock for milliseconds: waiting is right, failing is not.
SQLITE_BUSY_SECONDS = 60


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path.expanduser()))


def _local_folder(warehouse: str) -> str:
    folder = warehouse.removeprefix("file://")
    if "://" in folder or not folder:
        raise ValueError("must be a folder of this machine; object stores are not supported in this version")
    return str(_absolute(Path(folder)))


def _sqlalchemy_url(uri: str) -> str:
    try:
        make_url(uri)
    except ArgumentError:
        raise ValueError("must be a SQLAlchemy URL, for example sqlite:////var/lib/dedup_platform/control.db") from None
    return uri


def _sqlite_file(uri: str) -> str:
    url = make_url(_sqlalchemy_url(uri))
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        raise ValueError("must be a SQLite file, sqlite:////absolute/path.db; no other catalog is supported yet")
    return _sqlite_url(_absolute(Path(str(url.database))))


def _sqlite_url(file: Path) -> str:
    return str(URL.create("sqlite", database=str(file)))


def _login(login: str | None) -> str | None:
    if login is not None and ":" not in login:
        raise ValueError("must be user:password")
    return login


class Settings(BaseSettings):
    """One deployment. `home` alone is enough: the rest lives inside it unless it is said otherwise.

    `warehouse` is a plain absolute path, `catalog_uri` and `control_uri` are SQLAlchemy URLs. Values that can hold
    a password are left out of `repr` and of error messages.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True
    )

    home: Annotated[Path, AfterValidator(_absolute)] = Path(".dedup_platform")
    streams: Annotated[Path, AfterValidator(_absolute)] | None = None
    warehouse: Annotated[str, AfterValidator(_local_folder)] = Field(
        default_factory=lambda found: str(found["home"] / "warehouse")
    )
    catalog_uri: Annotated[str, AfterValidator(_sqlite_file)] = Field(
        default_factory=lambda found: _sqlite_url(found["home"] / "catalog.db"), repr=False
    )
    control_uri: Annotated[str, AfterValidator(_sqlalchemy_url)] = Field(
        default_factory=lambda found: _sqlite_url(found["home"] / "control.db"), repr=False
    )
    spark_master: str = "local[*]"
    spark_remote: str | None = None
    spark_conf: dict[str, str] = Field(default_factory=dict, repr=False)
    driver_memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*[mg]$")] = "2g"
    registry_login: Annotated[str | None, AfterValidator(_login)] = Field(None, repr=False)
    """user:password, or key:secret, for the schema registries that stream files name."""
    sensor_interval: Annotated[int, Field(ge=1)] = 15
    """Seconds between two looks of a sensor."""

    @property
    def dagster_home(self) -> Path:
        """Dagster's own folder: `DAGSTER_HOME` where it is set, else inside `home`."""
        return Path(os.environ.get("DAGSTER_HOME") or self.home / "dagster")

    @property
    def catalog_file(self) -> Path:
        """The SQLite file of the catalog."""
        return Path(str(make_url(self.catalog_uri).database))

    def catalog_properties(self) -> dict[str, str]:
        """What PyIceberg's `load_catalog(CATALOG, **properties)` needs to see the tables that Spark sees."""
        uri = make_url(self.catalog_uri).update_query_dict({"timeout": str(SQLITE_BUSY_SECONDS)})
        return {"type": "sql", "uri": uri.render_as_string(hide_password=False), "warehouse": self.warehouse}

    def make_folders(self) -> None:
        """Create the folders that SQLite and Iceberg expect to find."""
        for folder in (self.home, Path(self.warehouse), self.catalog_file.parent):
            folder.mkdir(parents=True, exist_ok=True)


def load_settings(**overrides: Any) -> Settings:
    """The settings of this process's environment; `overrides` go before it.

    Raises SettingsError, which names each unusable variable and what it must be.
    """
    try:
        return Settings(**overrides)
    except ValidationError as error:
        problems = [f"{ENV_PREFIX}{str(e['loc'][0]).upper()}: {_reason(e['msg'])}" for e in error.errors()]
        raise SettingsError("\n".join(problems)) from None
    except UnreadableSettings as error:
        raise SettingsError(f"{error}: {ENV_PREFIX}SPARK_CONF must be a JSON object of texts") from None


def _reason(message: str) -> str:
    return message.removeprefix("Value error, ").replace("Input should", "should")
