"""A control database of each kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from dedup_platform.ledger.database import open_database
from dedup_platform.testing.servers import PostgresServer
from dedup_platform_tests.servers import new_name


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """An empty one."""
    if request.param == "sqlite":
        uri = f"sqlite:///{tmp_path / 'control.db'}"
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        uri = server.create_database(new_name())
    opened = open_database(uri)
    yield opened
    opened.dispose()
