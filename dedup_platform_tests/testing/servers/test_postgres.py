"""The Postgres that tests get: it serves a real client, and keeps what was committed when it is killed."""

from pathlib import Path

import psycopg2
import pytest
import sqlalchemy as sa

from dedup_platform.errors import MissingPartError
from dedup_platform.testing.servers import PostgresServer, postgres
from dedup_platform_tests.servers import new_name, running


def ask(server: PostgresServer, statement: str) -> list[tuple[object, ...]]:
    """The rows of a statement that is committed."""
    connection = server.connect()
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []
    finally:
        connection.close()


def test_it_answers(postgres_server: PostgresServer) -> None:
    assert ask(postgres_server, "SELECT 1") == [(1,)]


def test_a_new_database_is_empty_and_its_url_is_one_of_sqlalchemy(postgres_server: PostgresServer) -> None:
    engine = sa.create_engine(postgres_server.create_database(new_name()))
    assert sa.inspect(engine).get_table_names() == []
    engine.dispose()


def test_who_has_not_the_password_is_refused(postgres_server: PostgresServer) -> None:
    url = sa.make_url(postgres_server.uri()).set(password="another")
    with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
        psycopg2.connect(url.set(drivername="postgresql").render_as_string(hide_password=False))


def test_a_killed_server_comes_back_on_its_port_with_what_was_committed(tmp_path: Path) -> None:
    with running(PostgresServer, tmp_path) as server:
        ask(server, "CREATE TABLE kept AS SELECT 42 AS answer")
        connected, pid = server.connect(), server.pid
        server.kill()
        assert not server.is_answering()
        with pytest.raises(psycopg2.OperationalError):
            server.connect()
        server.restart()
        assert server.pid not in (None, pid)
        assert ask(server, "SELECT answer FROM kept") == [(42,)]
        connected.close()


def test_it_ends_although_a_client_is_connected(tmp_path: Path) -> None:
    with running(PostgresServer, tmp_path) as server:
        connected = server.connect()
        server.stop()
        assert "database system is shut down" in server.log.read_text()
        connected.close()


def test_what_is_not_installed_is_named_with_the_way_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(postgres, "DEBIAN", tmp_path)
    with pytest.raises(MissingPartError, match=r"Postgres .* get it with: apt-get install postgresql"):
        PostgresServer(tmp_path)
