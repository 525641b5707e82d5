"""A real Postgres, from the operating system's package, with a data folder of its own."""

import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path

import psycopg2
from psycopg2 import sql
from sqlalchemy.engine import URL

from dedup_platform.errors import MissingPartError, ServerStartError
from dedup_platform.processes import free_port
from dedup_platform.testing.servers.process import LOOPBACK, ServerProcess

__all__ = ["PostgresServer", "postgres_program"]

DATABASE = "postgres"
"""The database that every server has."""
DEBIAN = Path("/usr/lib/postgresql")
"""Where Debian puts the programs of each version."""
_UNPRIVILEGED = ("postgres", "nobody")
_SECONDS_TO_CONNECT = 5


class PostgresServer(ServerProcess):
    """A Postgres on the loopback interface; `folder` keeps its data and its log. `user` may do everything.

    The `databases` are made where there are none of these names. Where root starts it, it runs as the user `postgres`
    (else `nobody`), because Postgres refuses to be root's.
    Raises MissingPartError where Postgres is not installed, ServerStartError if its data folder cannot be made.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        user: str = "testing",
        password: str = "testing-secret",
        databases: tuple[str, ...] = (),
    ) -> None:
        self.port = port or free_port()
        self.user = user
        self.password = password
        self._folder = folder.absolute()
        self._data = self._folder / "data"
        self._databases = databases
        settings = {"listen_addresses": LOOPBACK, "port": str(self.port), "unix_socket_directories": ""}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        super().__init__(
            "postgres",
            [*_as_owner(), str(postgres_program("postgres")), "-D", str(self._data), *options],
            folder / "postgres.log",
            self._accepts_connections,
            # A fast shutdown: SIGTERM would wait until all clients have gone.
            ending=signal.SIGINT,
        )

    def start(self) -> None:
        """Start it, with an empty data folder the first time. Raises ServerStartError if it does not answer."""
        if not (self._data / "PG_VERSION").exists():
            self._make_data_folder()
        super().start()
        for name in sorted(set(self._databases) - self._known()):
            self.create_database(name)

    def uri(self, database: str = DATABASE) -> str:
        """The SQLAlchemy URL of a database, with the password."""
        return URL.create(
            "postgresql+psycopg2", self.user, self.password, LOOPBACK, self.port, database
        ).render_as_string(hide_password=False)

    def create_database(self, name: str) -> str:
        """Create a database, empty; returns its SQLAlchemy URL. Fails if there is one of this name."""
        connection = self.connect()
        try:
            connection.autocommit = True  # Postgres creates no database inside a transaction
            with connection.cursor() as cursor:
                cursor.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        finally:
            connection.close()
        return self.uri(name)

    def connect(self, database: str = DATABASE) -> "psycopg2.extensions.connection":
        """A connection of psycopg2."""
        return psycopg2.connect(
            host=LOOPBACK,
            port=self.port,
            user=self.user,
            password=self.password,
            dbname=database,
            connect_timeout=_SECONDS_TO_CONNECT,
        )

    def _known(self) -> set[str]:
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT datname FROM pg_database")
                return {name for (name,) in cursor.fetchall()}
        finally:
            connection.close()

    def _accepts_connections(self) -> bool:
        try:
            self.connect().close()
        except psycopg2.OperationalError:
            return False
        return True

    def _make_data_folder(self) -> None:
        self._data.mkdir(parents=True, mode=0o700)
        secret = self._folder / "password"
        secret.touch(mode=0o600)
        secret.write_text(self.password, encoding="utf-8")
        if os.geteuid() == 0:
            for path in (self._data, secret):
                shutil.chown(path, _owner())
        options = ["--username", self.user, "--pwfile", str(secret), "--auth", "scram-sha-256"]
        command = [*_as_owner(), str(postgres_program("initdb")), "-D", str(self._data), "--encoding", "UTF8"]
        made = subprocess.run(
            [*command, "--locale", "C", "--no-sync", *options], capture_output=True, text=True, check=False
        )
        secret.unlink()
        if made.returncode:
            shutil.rmtree(self._data)
            raise ServerStartError("initdb", f"ended with code {made.returncode}", made.stdout + made.stderr)


def postgres_program(name: str) -> Path:
    """One of Postgres's programs (`postgres`, `initdb`, `pg_isready`), of one installation. Raises MissingPartError.

    It is found beside `postgres` on the PATH, else where Debian puts the newest version, which is off the PATH.
    """
    folders = sorted(DEBIAN.glob("*/bin"), key=lambda each: float(each.parent.name), reverse=True)
    on_path = shutil.which("postgres")
    for folder in [Path(on_path).resolve().parent, *folders] if on_path else folders:
        if (folder / name).exists():
            return folder / name
    raise MissingPartError(f"Postgres ({name})", "apt-get install postgresql")


def _owner() -> str:
    known = {user.pw_name for user in pwd.getpwall()}
    return next(name for name in _UNPRIVILEGED if name in known)


def _as_owner() -> list[str]:
    """What to put before a command so that it is not root's; it may still pass through folders that are."""
    if os.geteuid() != 0:
        return []
    capability = "+dac_override"
    group = str(pwd.getpwnam(_owner()).pw_gid)
    user = ["--reuid", _owner(), "--regid", group, "--clear-groups"]
    # To be another user clears what should happen at the end of a parent.
    return ["setpriv", "--pdeathsig", "KILL", *user, "--inh-caps", capability, "--ambient-caps", capability]
