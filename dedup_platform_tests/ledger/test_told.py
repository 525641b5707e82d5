"""How far commits were told, in the control database: it never goes back, but for another table of the same name."""

import sqlalchemy as sa

from dedup_platform.ledger import ToldCommits, UpTo


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
