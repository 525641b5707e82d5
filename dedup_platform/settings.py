"""The deployment: where tables and databases live and which Spark does the work.

Everything comes from environment variables that start with `DEDUP_PLATFORM_`; nothing is read at import time.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, IPvAnyAddress, SecretStr, ValidationError, ValidationInfo
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError as UnreadableSettings
from sqlalchemy.engine import make_url

from dedup_platform import uris
from dedup_platform.errors import SettingsError

__all__ = [
    "AWS_JAR",
    "CATALOG",
    "ENV_PREFIX",
    "JARS",
    "KAFKA_JAR",
    "POSTGRES_JAR",
    "PRIVATE_FOLDER",
    "Settings",
    "load_settings",
    "make_private",
    "of_files",
    "revealed",
]

ENV_PREFIX = "DEDUP_PLATFORM_"
CATALOG = "lake"
JARS = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.xerial:sqlite-jdbc:3.54.1.0",
)
"""What every Spark of the platform needs."""
POSTGRES_JAR = "org.postgresql:postgresql:42.7.7"
AWS_JAR = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
KAFKA_JAR = "org.apache.kafka:kafka_2.13:4.1.1"
"""Kafka's broker, which tests and the local topology start; Spark does not need it."""
# A writer of another process holds SQLite's lock for milliseconds: waiting is right, failing is not.
SQLITE_BUSY_SECONDS = 60
PRIVATE_FOLDER = 0o700
# Any name of a region will do where a request must be signed and the store has none.
_REGION_OF_OTHERS = "us-east-1"
_OF_FILES = ("s3.", "client.region")
_FOLLOWS = "default_factory_not_called"
"""Pydantic's name of what is wrong with a setting only because another one is."""


def _printable(value: Any) -> Any:
    """Of what may be secret a line's end, as files have one behind it, would be told by whoever cannot send it."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if isinstance(text, str) and not text.isprintable():
        raise ValueError("has a character that cannot be printed, perhaps a line's end behind it")
    return value


def _pair(secret: SecretStr | None, found: ValidationInfo) -> SecretStr | None:
    if (secret is None) != (found.data.get("s3_access_key_id") is None):
        raise ValueError(f"must be set together with {ENV_PREFIX}S3_ACCESS_KEY_ID, or neither of them")
    return secret


def _web_address(secret: SecretStr | None) -> SecretStr | None:
    found = urlsplit(secret.get_secret_value()) if secret else None
    if found and (found.scheme not in ("http", "https") or not found.hostname):
        raise ValueError("must be an address that begins with https:// or http://")
    return secret


def _login(login: str | None) -> str | None:
    if login is not None and ":" not in login:
        raise ValueError("must be user:password")
    return login


def _host_names(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    names = frozenset(name.strip().lower() for name in value.split(",") if name.strip())
    if wrong := sorted(name for name in names if not re.fullmatch(r"[a-z0-9.-]+|[0-9a-f:]+", name)):
        raise ValueError(f"must be names or addresses of hosts, without ports, with commas between; not {wrong[0]!r}")
    return names


Secret = Annotated[SecretStr, AfterValidator(_printable)]


class Settings(BaseSettings):
    """One deployment. `home` alone is enough: the rest lives inside it unless it is said otherwise.

    `warehouse` is a plain absolute path or `s3://bucket/prefix`; `control_uri` is a SQLAlchemy URL; `catalog_uri` is
    one too, or the address of a REST catalog, or `glue://region`. Values that can hold a password are left out of
    `repr` and of error messages.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True
    )

    home: Annotated[Path, AfterValidator(uris.absolute)] = Path(".dedup_platform")
    """Where everything below lives unless it is said otherwise."""
    streams: Annotated[Path, AfterValidator(uris.absolute)] | None = None
    """A stream file, or a folder of them; `--streams` of the command line overrides it. Without either it is the folder
    `streams` of the current one, if there is one."""
    warehouse: Annotated[str, AfterValidator(uris.warehouse)] = Field(
        default_factory=lambda found: str(found["home"] / "warehouse")
    )
    """Where the tables' files are, a folder or `s3://bucket/prefix`."""
    s3_endpoint: Annotated[str, Field(pattern=r"^https?://[^@\s]+$")] | None = None
    """The address of an object store other than Amazon's."""
    s3_region: str | None = None
    """The region of the bucket."""
    s3_path_style: bool = True
    """With an endpoint: whether the bucket is in the path of an address, not in its host."""
    s3_access_key_id: Secret | None = None
    """A key of the object store; without it each process finds its own as Amazon's clients do."""
    s3_secret_access_key: Annotated[Secret | None, AfterValidator(_pair)] = None
    """Its secret."""
    catalog_uri: Annotated[str, AfterValidator(uris.catalog)] = Field(
        default_factory=lambda found: uris.sqlite(found["home"] / "catalog.db"), repr=False
    )
    """Iceberg's catalog: SQLite, Postgres, REST or Glue."""
    catalog_credential: Secret | None = None
    """Of a REST catalog, `client id:client secret`."""
    catalog_token: Secret | None = None
    """Of a REST catalog, a bearer token."""
    catalog_conf: dict[str, Annotated[str, AfterValidator(_printable)]] = Field(default_factory=dict, repr=False)
    """More properties of the catalog, for Spark and PyIceberg, as a JSON object of texts."""
    control_uri: Annotated[str, AfterValidator(uris.database)] = Field(
        default_factory=lambda found: uris.sqlite(found["home"] / "control.db"), repr=False
    )
    """The control database, SQLite or Postgres."""
    dagster_uri: Annotated[str, AfterValidator(uris.dagster_database)] | None = Field(default=None, repr=False)
    """Dagster's own database in Postgres; without it SQLite in `DAGSTER_HOME`."""
    compute_logs: Annotated[str, Field(pattern=r"^s3://[^/\s]+/[^/\s][^\s]*$")] | None = None
    """`s3://bucket/prefix` where Dagster keeps what steps print; without it in `DAGSTER_HOME`."""
    spark_master: str = "local[*]"
    """Spark's master."""
    spark_remote: Annotated[str, AfterValidator(_printable)] | None = Field(default=None, repr=False)
    """A Spark Connect server (`sc://host:15002`), in place of a master."""
    connect_address: IPvAnyAddress = IPv4Address("127.0.0.1")
    """Where a Spark Connect server of ours listens; whoever knows its token can run code."""
    spark_conf: dict[str, str] = Field(default_factory=dict, repr=False)
    """More Spark properties, as a JSON object of texts."""
    kafka: dict[str, str] = Field(default_factory=dict, repr=False)
    """Other connection options for Kafka: librdkafka's properties, as a JSON object of texts."""
    postgres: dict[str, str] = Field(default_factory=dict, repr=False)
    """Other connection options for sinks in Postgres: libpq's parameters, as a JSON object of texts."""
    driver_memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*[mg]$")] = "2g"
    """The memory of a local Spark's JVM."""
    task_memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*[mg]$")] = "1g"
    """How much memory a task that reads records may take, beyond what its process has when it begins."""
    record_seconds: Annotated[int, Field(ge=1)] = 20
    """Seconds of processor time that such a task may take until it gets on by a record, or some read at once."""
    registry_login: Annotated[str | None, AfterValidator(_printable), AfterValidator(_login)] = Field(None, repr=False)
    """`user:password` for the schema registries that stream files name, in sources and sinks."""
    previews: bool = True
    """Whether Dagster's UI shows some rows of what a run changed: they stay in Dagster's records until the run is
    deleted there."""
    sensor_interval: Annotated[int, Field(ge=1)] = 15
    """Seconds between two ticks of a sensor."""
    ui_hosts: Annotated[frozenset[str] | None, NoDecode, BeforeValidator(_host_names)] = None
    """Names by which browsers may call Dagster's UI beside those of this machine, with commas between."""
    alert_webhook: Annotated[Secret | None, AfterValidator(_web_address)] = None
    """The address, a secret, where each change of a stream's health is posted to; without it nowhere."""
    alert_format: Literal["json", "slack"] = "json"
    """What is posted to the webhook: `json`, an object of our own, or `slack`, a message as Slack takes it."""
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """The port on which `make dev` serves metrics for Prometheus; without it it serves none."""
    metrics_address: IPvAnyAddress = IPv4Address("127.0.0.1")
    """The address of this machine on which metrics are served. They hold names and numbers, but no record."""
    lineage_namespace: Annotated[str, Field(min_length=1), AfterValidator(_printable)] | None = None
    """The namespace of the jobs as which commits are told to OpenLineage; without it none is told."""

    @property
    def stream_files(self) -> Path | None:
        """Where stream files are: what `streams` says, else the folder of that name in the current one, if any."""
        here = Path("streams")
        return self.streams or (uris.absolute(here) if here.is_dir() else None)

    @property
    def dagster_home(self) -> Path:
        """Dagster's own folder: `DAGSTER_HOME` where it is set, else inside `home`."""
        return Path(os.environ.get("DAGSTER_HOME") or self.home / "dagster")

    @property
    def catalog_kind(self) -> uris.CatalogKind:
        """What `catalog_uri` is the address of."""
        kind = uris.kind_of(self.catalog_uri)
        assert kind is not None, "no other kind is valid"
        return kind

    @property
    def catalog_file(self) -> Path | None:
        """The SQLite file of the catalog; None where it is elsewhere."""
        return Path(str(make_url(self.catalog_uri).database)) if self.catalog_kind == "sqlite" else None

    @property
    def is_on_s3(self) -> bool:
        """Whether the warehouse is an object store and not a folder of this machine."""
        return self.warehouse.startswith("s3://")

    @property
    def jars(self) -> tuple[str, ...]:
        """The Maven coordinates of what Spark needs for this catalog and warehouse."""
        postgres = (POSTGRES_JAR,) if self.catalog_kind == "postgresql" else ()
        aws = (AWS_JAR,) if self.is_on_s3 or self.catalog_kind == "glue" else ()
        return (*JARS, *postgres, *aws)

    @property
    def task_memory_bytes(self) -> int:
        """The limit that `task_memory` says."""
        return int(self.task_memory[:-1]) * {"m": 2**20, "g": 2**30}[self.task_memory[-1]]

    def catalog_properties(self) -> dict[str, str]:
        """What PyIceberg's `load_catalog(CATALOG, **properties)` needs to see the tables that Spark sees. Secret."""
        return {**self._catalog(), "warehouse": self.warehouse, **self._files(), **self.catalog_conf}

    def file_properties(self) -> dict[str, str]:
        """What PyIceberg needs to read and write the files of the warehouse, and nothing of the catalog. Secret."""
        return self._files() | of_files(self.catalog_conf)

    def _files(self) -> dict[str, str]:
        if not self.is_on_s3:
            return {"py-io-impl": "dedup_platform.lake.durable.DurableFileIO"}
        found = {
            "s3.endpoint": self.s3_endpoint,
            "s3.region": self.s3_region or (_REGION_OF_OTHERS if self.s3_endpoint else None),
            "s3.force-virtual-addressing": str(not self.s3_path_style).lower() if self.s3_endpoint else None,
            "s3.access-key-id": revealed(self.s3_access_key_id),
            "s3.secret-access-key": revealed(self.s3_secret_access_key),
        }
        return {name: value for name, value in found.items() if value is not None}

    def rest_identity(self) -> dict[str, str]:
        """How a REST catalog is to know us, as Iceberg names it in every language. Secret."""
        found = {"token": revealed(self.catalog_token), "credential": revealed(self.catalog_credential)}
        if self.catalog_credential:
            # Where the protocol has it; a server that has it elsewhere is said so in `catalog_conf`.
            found["oauth2-server-uri"] = f"{self.catalog_uri.rstrip('/')}/v1/oauth/tokens"
        return {name: value for name, value in found.items() if value is not None}

    def make_folders(self) -> None:
        """Create the folders that SQLite and Iceberg expect to find.

        What is made here nobody else can read, but a warehouse that lies elsewhere, which others may be meant to read.
        """
        self.home.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        if not self.is_on_s3:
            Path(self.warehouse).mkdir(parents=True, exist_ok=True)
        if self.catalog_file:
            self.catalog_file.parent.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
            make_private(self.catalog_file)

    def _catalog(self) -> dict[str, str]:
        match self.catalog_kind:
            case "sqlite":
                uri = make_url(self.catalog_uri).update_query_dict({"timeout": str(SQLITE_BUSY_SECONDS)})
                return {"type": "sql", "uri": uri.render_as_string(hide_password=False)}
            case "postgresql":
                # A sensor's process outlives many a connection.
                return {"type": "sql", "uri": self.catalog_uri, "pool_pre_ping": "true"}
            case "rest":
                return {"type": "rest", "uri": self.catalog_uri, **self.rest_identity()}
            case "glue":
                region, account = self.glue
                return {"type": "glue", "glue.region": region, **({"glue.id": account} if account else {})}

    @property
    def glue(self) -> tuple[str, str]:
        """Region and account of `glue://region/account`; the account is empty where it is the caller's own."""
        region, _, account = self.catalog_uri.removeprefix("glue://").strip("/").partition("/")
        return region, account


def make_private(file: Path) -> None:
    """Create an empty file that nobody else can read, if there is none.

    What keeps it from being created is for whoever opens it to tell.
    """
    with suppress(OSError):
        file.touch(0o600, exist_ok=False)


def of_files(properties: Mapping[str, str]) -> dict[str, str]:
    """Of a catalog's or a table's properties those that reading and writing files takes."""
    return {name: value for name, value in properties.items() if name.startswith(_OF_FILES)}


def revealed(secret: SecretStr | None) -> str | None:
    """What a secret is; None if there is none."""
    return secret.get_secret_value() if secret else None


def load_settings(**overrides: Any) -> Settings:
    """The settings of this process's environment; `overrides` go before it.

    Raises SettingsError, which names each unusable variable and what it must be.
    """
    try:
        return Settings(**overrides)
    except ValidationError as error:
        found = [each for each in error.errors() if each["type"] != _FOLLOWS]
        problems = [f"{ENV_PREFIX}{str(each['loc'][0]).upper()}: {_reason(each['msg'])}" for each in found]
        raise SettingsError("\n".join(problems)) from None
    except UnreadableSettings as error:
        field = re.findall(r'field "(\w+)"', str(error))[0]
        raise SettingsError(f"{ENV_PREFIX}{field.upper()}: must be a JSON object of texts") from None


def _reason(message: str) -> str:
    return message.removeprefix("Value error, ").replace("Input should", "should")
