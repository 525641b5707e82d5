"""How far commits were told, in the control database: it never goes back, but for another table of the same name."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from dedup_platform.ledger import ToldCommits, UpTo
from dedup_platform.ledger.database import open_database
from dedup_platform.testing.servers import PostgresServer
from dedup_platform_tests.servers import new_name


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    if request.param == "sqlite":
        uri = f"sqlite:///{tmp_path / 'control.db'}"
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        uri = server.create_database(new_name())
    opened = open_database(uri)
    yield opened
    opened.dispose()


def test_it_never_goes_back(engine: sa.Engine) -> None:
    told = ToldCommits(lambda: engine)
    assert told.of("clicks") == {}
    told.note("clicks", {"raw_events": UpTo("one", 7), "sessions": UpTo("two", 3)})
    told.note("clicks", {"raw_events": UpTo("one", 5), "sessions": UpTo("two", 4)})
    told.note("other", {"raw_events": UpTo("three", 1)})
    assert told.of("clicks") == {"raw_events": UpTo("one", 7), "sessions": UpTo("two", 4)}
    told.note("clicks", {"raw_events": UpTo("anew", 1)})
    assert told.of("clicks")["raw_events"] == UpTo("anew", 1)
    assert told.of("other") == {"raw_events": UpTo("three", 1)}
