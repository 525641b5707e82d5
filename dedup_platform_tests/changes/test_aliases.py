"""The table of aliases beside a feed: brought up to date by whoever comes, over crashes, losses and rollbacks."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyiceberg.table.update import SetSnapshotRefUpdate

from dedup_platform.changes import FeedCommit, aliases
from dedup_platform.cli.export import export
from dedup_platform.errors import ConflictError
from dedup_platform.lake.aliases import AliasTable, Place, alias_position
from dedup_platform.lake.snapshots import ancestry, head, live_files
from dedup_platform.lake.table_files import TableFiles
from dedup_platform.stream import PostgresSink, Publish
from dedup_platform.tables import SESSION_ALIASES, SESSION_CHANGES, SESSIONS
from dedup_platform.testing.servers import PostgresServer
from dedup_platform_tests.changes.test_feeds import EVENTS, Followed
from dedup_platform_tests.lives.replaced import replaced
from dedup_platform_tests.servers import new_name


class Aliased(Followed):
    """A stream whose retired ids are looked at. What is published is judged against plain Python (`publish`)."""

    def merge(self, *entities: str, begins: float = 0) -> None:
        """Two sessions of each entity (`e`), and an event that joins them."""
        for all_minutes in ((0, 50), (25,)):
            places = product(entities or ("e",), all_minutes)
            self.take_in(*(self.event(f"{begins + minutes}", begins + minutes, entity) for entity, minutes in places))

    def table(self, name: str = SESSION_ALIASES) -> Any:
        return self.platform.lake.catalog.load_table(EVENTS, name)

    def ends(self) -> list[tuple[Any, ...]]:
        names = ("current_id", "outcome", "merges")
        rows = self.table().scan().to_arrow().to_pylist()
        return [tuple(row[name] for name in names) for row in sorted(rows, key=lambda row: row["retired_by_version"])]

    def files(self) -> set[str]:
        return {file.file_path for file in live_files(self.table(), head(self.table()))}

    def place(self) -> Place:
        place = alias_position(self.table()).place
        assert place
        return place

    def told(self) -> FeedCommit:
        return self.publish()[SESSION_ALIASES]

    @property
    def current(self) -> str:
        [session] = self.sessions()
        return str(session["session_id"])


@pytest.fixture
def aliased(tmp_path: Path) -> Iterator[Aliased]:
    with replaced(has_spark=False):
        yield Aliased(tmp_path)


def test_an_old_id_finds_its_session_however_often_that_was_merged_since(aliased: Aliased) -> None:
    last_first = [aliased.event(f"{minutes}", minutes) for minutes in (150, 100, 50, 0)]
    aliased.take_in(*last_first)
    for number, minutes in enumerate((25, 75, 125), 1):
        aliased.take_in(aliased.event(f"{minutes}", minutes))
        assert aliased.told().changes == {"retired": 1}
        assert [merges for _, _, merges in aliased.ends()] == [*range(number, 0, -1)]
    assert {end[:2] for end in aliased.ends()} == {(aliased.current, "merged")}
    assert aliased.told().first_version == 0, "nothing is new"


def test_what_is_taken_back_is_no_alias_any_more(aliased: Aliased) -> None:
    aliased.merge()
    aliased.publish()
    assert aliased.ends() == [(aliased.current, "merged", 1)]
    aliased.move_main(SESSIONS, 1)
    assert aliased.told().changes == {"returned": 1}
    assert aliased.ends() == []
    aliased.platform.repair(EVENTS)
    aliased.remember()
    assert aliased.told().changes == {"retired": 1}


def test_an_alias_of_what_is_erased_says_so(aliased: Aliased) -> None:
    aliased.merge()
    aliased.publish()
    aliased.move_main(SESSIONS, 2)
    aliased.publish()
    assert aliased.ends() == [(None, "erased", 1), (None, "erased", 0)]


def test_an_alias_that_is_behind_its_feed_is_found_and_caught_up_with(aliased: Aliased) -> None:
    aliased.merge()
    with (
        patch.object(AliasTable, "replace", side_effect=OSError("the disk is full")),
        pytest.raises(OSError, match="full"),
    ):
        aliased.platform.publish_changes(EVENTS)
    assert aliased.platform.unpublished(EVENTS) == [SESSION_CHANGES]
    assert aliased.told().last_version == 2
    assert aliased.platform.unpublished(EVENTS) == []


def test_two_at_once_take_in_each_change_once(aliased: Aliased) -> None:
    aliased.merge()
    replace, rounds = AliasTable.replace, iter(range(100))

    def late(table: AliasTable, *arguments: Any) -> Any:
        if next(rounds) == 0:
            aliased.platform.publish_changes(EVENTS)
        return replace(table, *arguments)

    with patch.object(AliasTable, "replace", late):
        assert aliased.told().last_version == 0, "the other one took all in"
    assert len(list(ancestry(aliased.table()))) == 2


def test_one_that_slept_is_refused(aliased: Aliased) -> None:
    aliased.merge()
    aliased.platform.publish_changes(EVENTS, [SESSIONS])
    table = AliasTable(aliased.platform.lake.catalog, aliased.stream)
    position = table.prepare()
    aliased.publish()
    with pytest.raises(ConflictError, match="another process brought it up to date first"):
        table.replace(position, [], [], aliased.place())


def test_a_table_that_is_lost_is_made_anew(aliased: Aliased) -> None:
    aliased.merge()
    aliased.publish()
    aliased.platform.lake.catalog.iceberg.drop_table((EVENTS, SESSION_ALIASES))
    told = aliased.told()
    assert (told.first_version, told.last_version, told.changes) == (1, 2, {"retired": 1})


def test_a_feed_that_was_made_anew_makes_the_table_anew(aliased: Aliased) -> None:
    aliased.merge()
    aliased.publish()
    feed = aliased.place().feed
    aliased.platform.lake.catalog.iceberg.drop_table((EVENTS, SESSION_CHANGES))
    aliased.clock.advance(timedelta(days=30))
    aliased.platform.maintain(EVENTS)
    aliased.platform.publish_changes(EVENTS)
    assert aliased.place().feed != feed
    assert aliased.ends() == [], "the new feed knows only what there is"


def test_a_feed_that_was_taken_back_makes_the_table_anew(aliased: Aliased) -> None:
    aliased.merge()
    aliased.platform.publish_changes(EVENTS)
    feed = aliased.table(SESSION_CHANGES)
    to = {"ref-name": "main", "type": "branch", "snapshot-id": list(ancestry(feed))[-1].snapshot_id}
    feed.catalog.commit_table(feed, (), (SetSnapshotRefUpdate.model_validate(to),))
    aliased.platform.publish_changes(EVENTS, [SESSION_CHANGES])
    assert (aliased.place().version, aliased.ends()) == (0, [])
    assert aliased.told().changes == {"retired": 1}


def test_a_table_whose_position_is_lost_is_made_anew(aliased: Aliased) -> None:
    aliased.merge()
    aliased.publish()
    aliased.table().append(aliased.table().scan().to_arrow())
    for old in list(ancestry(aliased.table()))[1:]:
        aliased.table().maintenance.expire_snapshots().by_ids([old.snapshot_id]).commit()
    assert aliased.told().last_version == 2
    assert len(aliased.ends()) == 1


def test_a_late_event_rewrites_the_file_of_its_entity_only(aliased: Aliased) -> None:
    aliased.merge(*(f"e{number}" for number in range(5)))
    aliased.publish()
    before = aliased.files()
    assert len(before) >= 3
    aliased.merge("e2", begins=300)
    aliased.publish()
    assert len(before - aliased.files()) == 1
    between = aliased.files()
    aliased.merge("e2x")
    aliased.publish()
    assert len(between - aliased.files()) <= 1
    assert len(aliased.ends()) == 7


def test_what_retires_nothing_writes_no_file(aliased: Aliased) -> None:
    aliased.merge()
    aliased.publish()
    before = aliased.files()
    aliased.take_in(aliased.event("d", 300), aliased.event("e", 0, "other"))
    told = aliased.told()
    assert (aliased.files(), told.last_version, told.bytes_written) == (before, 3, 0)


def test_inserts_before_the_first_alias_are_not_read(aliased: Aliased) -> None:
    aliased.take_in(aliased.event("a", 0))
    aliased.platform.publish_changes(EVENTS, [SESSIONS])
    read, columns = TableFiles.read, list[list[str]]()

    def watched(files: TableFiles, each: Any, names: Any) -> Any:
        columns.append(list(names))
        return read(files, each, names)

    with patch.object(TableFiles, "read", watched):
        aliased.platform.publish_changes(EVENTS, [SESSION_CHANGES])
    assert columns == [["_change_type"]]


def test_a_large_version_is_taken_in_part_by_part(aliased: Aliased, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aliases, "COMMIT_ROWS", 2)
    entities = [f"e{number}" for number in range(5)]
    aliased.take_in(*(aliased.event(name, 50 * n, each) for each in entities for n, name in enumerate("ab")))
    aliased.publish()
    aliased.take_in(*(aliased.event("c", 25, each) for each in entities))
    replace, rounds = AliasTable.replace, iter(range(100))

    def dies(table: AliasTable, *arguments: Any) -> Any:
        if next(rounds) == 1:
            raise KeyboardInterrupt
        return replace(table, *arguments)

    with patch.object(AliasTable, "replace", dies), pytest.raises(KeyboardInterrupt):
        aliased.platform.publish_changes(EVENTS)
    assert (aliased.place().version, aliased.place().ordinal is None, len(aliased.ends())) == (2, False, 2)
    assert aliased.told().changes == {"retired": 3}
    assert (aliased.place().version, aliased.place().ordinal, len(aliased.ends())) == (2, None, 5)


def test_upkeep_keeps_the_rows_and_where_the_table_is(aliased: Aliased) -> None:
    for number in range(3):
        aliased.merge(f"e{number}")
        aliased.publish()
    before, place = aliased.ends(), aliased.place()
    aliased.clock.advance(timedelta(days=30))
    done = {each.table: each for each in aliased.platform.maintain(EVENTS)}
    assert done[SESSION_ALIASES].snapshots_expired == 3
    assert (aliased.ends(), aliased.place()) == (before, place)
    assert aliased.told().last_version == 0


def test_entities_whose_ids_bounds_do_not_tell_are_found(aliased: Aliased) -> None:
    """Parquet has no bounds of texts of more than 4 KB."""
    aliased.merge("m", "é" * 3000, "\U0010ffff" * 2000)
    aliased.publish()
    aliased.merge("a")
    aliased.merge("m", begins=300)
    aliased.publish()
    assert len(aliased.ends()) == 5


def test_it_is_exported(aliased: Aliased, tmp_path: Path) -> None:
    aliased.merge()
    aliased.publish()
    assert export(aliased.platform, EVENTS, SESSION_ALIASES, tmp_path / "aliases.csv") == 1
    assert aliased.current in (tmp_path / "aliases.csv").read_text()


def test_a_sink_in_postgres_knows_the_ids_of_before_it_began(aliased: Aliased, postgres_server: PostgresServer) -> None:
    name = new_name()
    postgres_server.create_database(name)
    uri = f"postgresql://{postgres_server.user}@127.0.0.1:{postgres_server.port}/{name}"
    sink = PostgresSink(kind="postgres", follows="sessions", uri=uri, table="public.copies")
    aliased.stream = aliased.stream.model_copy(update={"publish": Publish(sinks={"pg": sink})})
    aliased.settings = {"postgres": {"password": postgres_server.password}}
    aliased.merge()
    aliased.publish()
    aliased.merge(begins=-75)
    aliased.merge("f")
    assert aliased.platform.publish(EVENTS, "pg").version == 6
    assert aliased.platform.unpublished(EVENTS)[-1:] == [SESSION_CHANGES], "and those that the table does not know yet"
    aliased.publish()
    assert len(aliased.ends()) == 3
    assert aliases_of(postgres_server, name) == aliases_of_table(aliased)
    aliased.move_main(SESSIONS, 1)
    aliased.publish()
    for statement in ("SELECT 1", "DELETE FROM dedup_platform_sinks"):
        asked(postgres_server, name, statement)
        aliased.platform.publish(EVENTS, "pg")
        assert aliases_of(postgres_server, name) == aliases_of_table(aliased)


NAMES = ("session_id", "current_id", "outcome", "last_id", "merges", "merged_into", "reason", "retired_at")


def aliases_of_table(aliased: Aliased) -> list[tuple[Any, ...]]:
    rows = aliased.table().scan().to_arrow().to_pylist()
    return sorted(tuple(row[name] for name in NAMES) for row in rows)


def aliases_of(server: PostgresServer, database: str) -> list[tuple[Any, ...]]:
    return sorted(asked(server, database, f"SELECT {', '.join(NAMES)} FROM copies_aliases"))


def asked(server: PostgresServer, database: str, statement: str) -> list[tuple[Any, ...]]:
    connection = server.connect(database)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def test_of_sessions_that_there_never_were_nothing_waits(aliased: Aliased) -> None:
    """The feed is there and has no version yet: no position says that, and none is needed."""
    aliased.take_in(aliased.event("nobody's", 0, entity=None))
    aliased.publish()
    assert alias_position(aliased.table()).place is None
    assert aliased.platform.unpublished(EVENTS) == []
    aliased.take_in(aliased.event("somebody's", 0))
    assert SESSIONS in aliased.platform.unpublished(EVENTS)
    aliased.publish()
    assert aliased.platform.unpublished(EVENTS) == []
