"""A deployment that is listened to: what it prints, stores, and how the commands of its processes look."""

import secrets
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from psycopg2 import sql

from dedup_platform.testing.servers import PostgresServer
from dedup_platform_tests.end_to_end.conftest import PATIENCE
from dedup_platform_tests.end_to_end.processes import CommandLine


@dataclass
class Watched:
    """A deployment whose every secret is a word of its own, and all that could be overheard of it."""

    folder: Path
    postgres: PostgresServer
    environment: dict[str, str]
    planted: dict[str, str]
    """What it is the secret of -> the word."""
    databases: Mapping[str, str]
    """What is kept there -> the name of the database."""
    except_for: frozenset[Path] = frozenset()
    """Files of the folder that are no part of the deployment."""
    said: list[str] = field(default_factory=list)
    """What was printed, and the commands of the processes that did it."""

    def run(self, *arguments: str, **otherwise: str) -> int:
        """Run the command line to its end, with some variables set otherwise; returns its exit code."""
        commands = set[str]()
        with CommandLine(self.environment | otherwise).started(*arguments) as process:
            until = time.monotonic() + PATIENCE
            while process.poll() is None and time.monotonic() < until:
                commands |= set(_commands(process))
                time.sleep(0.2)
            out, err = process.communicate(timeout=1)
        self.said += [out, err, *commands]
        return process.returncode

    @contextmanager
    def running(self, *arguments: str) -> Iterator[None]:
        """The same with a command that does not end by itself."""
        said = list[str]()
        with CommandLine(self.environment).started(*arguments) as process:
            assert process.stdout
            assert process.stderr
            threads = [threading.Thread(target=said.extend, args=(pipe,)) for pipe in (process.stdout, process.stderr)]
            for thread in threads:
                thread.start()
            yield
            self.said += _commands(process)
            process.terminate()
            process.wait(PATIENCE)
            for thread in threads:
                thread.join()
        self.said.append("".join(said))

    def overheard(self) -> Iterator[tuple[str, bytes]]:
        """Everything that was printed or stored, and where."""
        yield from (("what was printed, or a command", text.encode()) for text in self.said)
        for path in self.folder.rglob("*"):
            if path.is_file() and path not in self.except_for:
                yield str(path), path.read_bytes()
        for what, name in self.databases.items():
            yield from ((f"the database of {what}", row.encode()) for row in _dump(self.postgres, name))

    def leaks(self) -> list[str]:
        """Which secret is where it must not be."""
        return [
            f"{what} in {place}: …{heard[max(0, at - 100) : at + 60]!r}"
            for place, heard in self.overheard()
            for what, word in self.planted.items()
            if (at := heard.find(word.encode())) >= 0
        ]

    def wrong(self, variable: str) -> dict[str, str]:
        """A variable with another, wrong secret, which must not be heard either."""
        word = self.planted[f"wrong {variable}"] = new_word()
        right = next(each for each in self.planted.values() if each in self.environment[variable])
        return {variable: self.environment[variable].replace(right, word)}


def new_word() -> str:
    """A secret that occurs nowhere by chance."""
    return f"hush{secrets.token_hex(12)}"


def _commands(process: "subprocess.Popen[str]") -> Iterator[str]:
    """The command lines of a process and of all that it started, as every user of the machine can list them."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(process.pid)
        for each in (parent, *parent.children(recursive=True)):
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                yield " ".join(each.cmdline())


def _dump(server: PostgresServer, database: str) -> Iterator[str]:
    """Every row of every table of a database, as text."""
    connection = server.connect(database)
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        for (table,) in cursor.fetchall():
            cursor.execute(sql.SQL("SELECT row::text FROM {} AS row").format(sql.Identifier(table)))
            yield from (text for (text,) in cursor.fetchall())
    connection.close()
