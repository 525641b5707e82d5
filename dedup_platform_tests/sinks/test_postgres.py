"""Sinks in a real Postgres: what every sink must do, and what is Postgres's own."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import psycopg2
import pytest

from dedup_platform.errors import RefusedRowsError, SinkError, SinkTakenError
from dedup_platform.rules.aliases import folded
from dedup_platform.sinks import Batch, Position
from dedup_platform.sinks.postgres import PostgresTable
from dedup_platform.stream import PostgresSink
from dedup_platform.tables import SESSION_ALIASES, column_names
from dedup_platform.testing import make_stream
from dedup_platform.testing.servers import PostgresServer
from dedup_platform.testing.sinks import TARGET, check_sink, some_changes
from dedup_platform_tests.servers import new_name, rows_written
from dedup_platform_tests.sinks.looking import check_totals
from dedup_platform_tests.variants import some


class Store:
    """A database of its own."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.name = new_name()
        server.create_database(self.name)

    def sink(self, table: str = "public.copies", **options: str) -> PostgresTable:
        uri = f"postgresql://{self.server.user}@127.0.0.1:{self.server.port}/{self.name}"
        said = PostgresSink(kind="postgres", follows="sessions", uri=uri, table=table)
        return PostgresTable(TARGET, said, {"password": self.server.password} | options)

    def ask(self, question: str) -> list[tuple[Any, ...]]:
        connection = self.server.connect(self.name)
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(question)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def rows_written(self) -> tuple[int, ...]:
        return rows_written(self.server, self.name, "copies")

    def counts(self) -> Mapping[str, int]:
        return dict(self.ask("SELECT session_id, event_count FROM copies"))


@pytest.fixture
def store(postgres_server: PostgresServer) -> Store:
    return Store(postgres_server)


def test_it_does_what_every_sink_must_do(store: Store) -> None:
    check_sink(store.sink, store.counts)


def test_every_value_comes_as_it_is(store: Store) -> None:
    texts = ["", "\\N", "\\.", "a\n\\.\nb", "tab\tand\\back\r\n", '"quoted", with commas', "ünï 🎈"]
    rows = [("insert", 1, number, f"{number}", number) for number in range(len(texts))]
    changes = some_changes(*rows, ("insert", 1, len(texts), "null", 0)).with_columns(
        page=pl.Series([*texts, None]),
        revenue=pl.Series([Decimal("9" * 36 + ".99")] * len(texts) + [None], dtype=pl.Decimal(38, 2)),
    )
    sink = store.sink()
    sink.open()
    sink.write(Batch(None, Position("feed", 1), changes))
    sink.close()
    found = store.ask("SELECT page, revenue, started_at::text FROM copies ORDER BY _commit_version, session_id")
    assert [row[0] for row in found] == [*texts, None]
    assert {row[1] for row in found} == {Decimal("9" * 36 + ".99"), None}
    assert {row[2][:26] for row in found} == {"2024-02-29 23:59:59.999999"}


def test_a_row_that_postgres_cannot_hold_is_refused_and_nothing_is_written(store: Store) -> None:
    sink = store.sink()
    sink.open()
    changes = some_changes(("insert", 1, 0, "a", 1), ("insert", 1, 1, "b\0", 1))
    with pytest.raises(RefusedRowsError, match="invalid byte sequence"):
        sink.write(Batch(None, Position("feed", 1), changes))
    assert store.counts() == {}
    sink.write(Batch(None, Position("feed", 1), changes[:1]))
    assert store.counts() == {"a": 1}


def test_columns_of_others_are_left_alone_and_missing_ones_are_added(store: Store) -> None:
    store.ask("CREATE TABLE copies (note text DEFAULT 'mine', session_id text PRIMARY KEY)")
    sink = store.sink()
    sink.open()
    sink.write(Batch(None, Position("feed", 1), some_changes(("insert", 1, 0, "a", 1))))
    store.ask("UPDATE copies SET note = 'yours'")
    update = some_changes(("update_preimage", 2, 0, "a", 1), ("update_postimage", 2, 1, "a", 2))
    sink.write(Batch(Position("feed", 1), Position("feed", 2), update))
    assert store.ask("SELECT note, event_count FROM copies") == [("yours", 2)]


def test_a_table_of_its_own_schema_is_created_with_it(store: Store) -> None:
    sink = store.sink("marts.copies")
    sink.open()
    assert store.ask("SELECT count(*) FROM marts.copies, marts.dedup_platform_sinks") == [(0,)]


def test_retired_keys_are_kept_and_hold_off_older_rows(store: Store) -> None:
    sink = store.sink()
    sink.open()
    sink.write(Batch(None, Position("feed", 5), some_changes(("insert", 5, 0, "a", 1), ("insert", 5, 1, "b", 1))))
    gone = some_changes(("delete", 6, 0, "a", 1)).with_columns(merged_into=pl.lit("b"))
    sink.write(Batch(Position("feed", 5), Position("feed", 6), gone))
    assert store.ask("SELECT session_id, retired_into, _commit_version FROM copies_retired") == [("a", "b", 6)]
    stale = some_changes(("insert", 5, 0, "a", 1), ("insert", 4, 0, "b", 7))
    sink.write(Batch(Position("feed", 6), Position("feed", 7), stale))
    assert store.counts() == {"b": 1}
    sink.write(Batch(Position("feed", 7), Position("feed", 8), some_changes(("insert", 8, 0, "a", 2))))
    assert store.counts() == {"a": 2, "b": 1}
    assert store.ask("SELECT count(*) FROM copies_retired") == [(0,)]


def retired(version: int, key: str, into: str | None, reason: str = "erased") -> pl.DataFrame:
    """A version that takes a session away."""
    told = {"merged_into": pl.lit(into, pl.String), "reason": pl.lit("merged" if into else reason)}
    return some_changes(("delete", version, 0, key, 1)).with_columns(**told)


def test_an_old_id_finds_its_session_over_all_merges(store: Store) -> None:
    sink = store.sink()
    sink.open()
    merges = [("a", "b"), ("b", "c"), ("d", "c"), ("c", "e"), ("y", "x"), ("x", None)]
    for version, (key, into) in enumerate(merges, 1):
        sink.write(Batch(at(version - 1), at(version), retired(version, key, into, "split")))
    found = store.ask("SELECT session_id, current_id, outcome, last_id, merges FROM copies_aliases ORDER BY 1")
    assert found == [
        ("a", "e", "merged", "e", 3),
        ("b", "e", "merged", "e", 2),
        ("c", "e", "merged", "e", 1),
        ("d", "e", "merged", "e", 2),
        ("x", None, "split", "x", 0),
        ("y", None, "split", "x", 1),
    ]
    sink.write(Batch(at(6), at(7), some_changes(("insert", 7, 0, "b", 1), ("insert", 7, 1, "x", 1))))
    found = store.ask("SELECT session_id, current_id FROM copies_aliases ORDER BY 1")
    assert found == [("a", "b"), ("c", "e"), ("d", "e"), ("y", "x")], "an id that is there again is where aliases end"


@pytest.mark.parametrize("seed", some(range(4), quick=[0]))
def test_aliases_are_those_of_the_lake(store: Store, tmp_path: Path, seed: int) -> None:
    """Whatever comes, goes and comes back; of changes, too, that no table makes, such as merges in a circle."""
    random, sink, stream = Random(seed), store.sink(), make_stream(tmp_path)
    names = ("session_id", "current_id", "outcome", "last_id", "merges", "merged_into", "reason", "retired_at")
    sink.open()
    told = list[pl.DataFrame]()
    for version in range(1, 40):
        key = random.choice("abcdefgh")
        gone = retired(version, key, random.choice([*"abcdefgh", None]), random.choice(("split", "erased")))
        told.append(random.choice((gone, gone, some_changes(("insert", version, 0, key, 1)))))
        sink.write(Batch(at(version - 1), at(version), told[-1]))
        changes = pl.concat(told, how="diagonal").with_columns(entity_id=pl.lit("e"))
        nothing = pl.DataFrame(schema=dict.fromkeys(column_names(stream, SESSION_ALIASES), pl.String)).with_columns(
            retired_at=pl.lit(None, pl.Datetime("us", "UTC")), retired_by_version=pl.lit(None, pl.Int64)
        )
        wanted = folded(nothing, changes, stream).sort("session_id").select(names).rows()
        assert store.ask(f"SELECT {', '.join(names)} FROM copies_aliases ORDER BY 1") == wanted


def test_a_view_of_before_is_replaced(store: Store) -> None:
    sink = store.sink()
    sink.open()
    store.ask("DROP VIEW copies_aliases")
    store.ask("ALTER TABLE copies_retired DROP COLUMN reason")
    store.ask(
        "CREATE VIEW copies_aliases AS SELECT session_id, retired_into AS current_id, retired_at FROM copies_retired"
    )
    store.ask("INSERT INTO copies_retired (session_id, retired_into) VALUES ('a', 'b')")
    sink.open()
    assert store.ask("SELECT current_id, outcome, reason FROM copies_aliases") == [("b", "merged", None)]


def at(version: int) -> Any:
    """Where the sink is with this version."""
    return Position("feed", version) if version else None


def test_one_changed_row_is_one_updated_row_for_the_server(store: Store) -> None:
    sink = store.sink()
    sink.open()
    rows = [("insert", 1, number, f"{number}", 1) for number in range(1000)]
    sink.write(Batch(None, Position("feed", 1), some_changes(*rows)))
    sink.close()
    before = store.rows_written()
    sink = store.sink()
    sink.open()
    update = some_changes(("update_preimage", 2, 0, "7", 1), ("update_postimage", 2, 1, "7", 2))
    sink.write(Batch(Position("feed", 1), Position("feed", 2), update))
    sink.close()
    assert tuple(new - old for new, old in zip(store.rows_written(), before, strict=True)) == (0, 1, 0)


def begin(sink: PostgresTable, *rows: tuple[str, int, int, str, int], place: int | None = None) -> None:
    """Begin with these rows of version 1, of which more are to come if they end at a place."""
    after = Position("feed", 1) if place is None else Position("feed", 1, place, 10)
    sink.write(Batch(sink.open().position, after, some_changes(*rows), begins=True, completes=place is None))


def test_an_empty_table_is_filled_without_another_table_between(store: Store) -> None:
    store.sink().open()
    store.ask(
        "CREATE FUNCTION no() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'another table'; END $$;"
        "CREATE EVENT TRIGGER no ON ddl_command_start WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION no()"
    )
    sink = store.sink()
    begin(sink, ("insert", 1, 0, "a", 1), ("insert", 1, 1, "b", 2), place=1)
    rest = some_changes(("insert", 1, 2, "c", 3))
    sink.write(Batch(Position("feed", 1, 1, 10), Position("feed", 1), rest, completes=True))
    assert store.counts() == {"a": 1, "b": 2, "c": 3}
    with pytest.raises(RefusedRowsError, match="another table"):
        sink.write(Batch(Position("feed", 1), Position("feed", 2), some_changes(("insert", 2, 0, "d", 1))))


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_rows_of_others_in_a_table_that_is_filled_give_way(when: str, store: Store) -> None:
    store.sink().open()
    theirs = "INSERT INTO copies (session_id, event_count) VALUES ('b', 7), ('mine', 8)"
    if when == "before":
        store.ask(theirs)
    sink = store.sink()
    begin(sink, ("insert", 1, 0, "a", 1), place=0)
    if when == "meanwhile":
        store.ask(theirs)
    rest = some_changes(("insert", 1, 1, "b", 2), ("insert", 1, 2, "c", 3))
    sink.write(Batch(Position("feed", 1, 0, 10), Position("feed", 1), rest, completes=True))
    assert store.counts() == {"a": 1, "b": 2, "c": 3}


def test_a_row_that_is_refused_while_a_table_is_filled_is_told_and_the_rest_is_filled(store: Store) -> None:
    sink = store.sink()
    with pytest.raises(RefusedRowsError, match="invalid byte sequence"):
        begin(sink, ("insert", 1, 0, "a", 1), ("insert", 1, 1, "b\0", 2))
    assert store.counts() == {}
    begin(sink, ("insert", 1, 0, "a", 1))
    assert store.counts() == {"a": 1}


def test_a_table_of_other_types_is_filled_as_it_is_updated(store: Store) -> None:
    store.ask("CREATE TABLE copies (session_id text PRIMARY KEY, event_count text)")
    store.sink().open()
    store.ask("CREATE DOMAIN not_one AS text CHECK (VALUE <> '1'); ALTER TABLE copies ALTER event_count TYPE not_one")
    with pytest.raises(RefusedRowsError, match="check constraint"):
        begin(store.sink(), ("insert", 1, 0, "a", 1))
    begin(store.sink(), ("insert", 1, 0, "a", 2))
    assert store.ask("SELECT session_id, event_count FROM copies") == [("a", "2")]


def test_a_view_is_filled_as_it_is_updated(store: Store) -> None:
    store.sink().open()
    store.ask("ALTER TABLE copies RENAME TO rows; CREATE VIEW copies AS SELECT * FROM rows")
    begin(store.sink(), ("insert", 1, 0, "a", 1))
    assert store.counts() == {"a": 1}


def test_a_store_that_is_not_there_is_said_without_the_password(store: Store) -> None:
    sink = store.sink(port="1")
    with pytest.raises(SinkError, match=r"conformance: sink tried: .*refused") as raised:
        sink.open()
    assert store.server.password not in str(raised.value)
    with pytest.raises(SinkError, match="password") as raised:
        store.sink(password="very secret").open()
    assert "very secret" not in str(raised.value)


def test_a_table_that_is_another_streams_copy_is_refused(store: Store) -> None:
    store.sink().open()
    store.ask("UPDATE dedup_platform_sinks SET stream = 'other'")
    with pytest.raises(SinkError, match=r"public\.copies is a copy of other\.sessions; name another table, or drop it"):
        store.sink().open()


@pytest.mark.parametrize("table", some(["copies", "copies_retired", "dedup_platform_refused"], quick=["copies"]))
def test_a_sink_that_lost_a_table_is_at_no_position(store: Store, table: str) -> None:
    sink = store.sink()
    sink.open()
    sink.write(Batch(None, Position("feed", 1), some_changes(("insert", 1, 0, "a", 1))))
    store.ask(f"DROP TABLE {table} CASCADE")
    assert store.sink().look().position is None
    assert store.sink().open().position is None
    assert sink.open().position is None, "also once the table is there again"
    sink.write(Batch(None, Position("feed", 2), some_changes(("insert", 2, 0, "b", 1)), begins=True, completes=True))
    assert store.counts() == {"b": 1}
    assert sink.open().position == store.sink().look().position == Position("feed", 2)


def test_a_connection_that_the_server_ends_is_made_anew(store: Store) -> None:
    sink = store.sink()
    sink.open()
    store.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'dedup_platform'")
    batch = Batch(None, Position("feed", 1), some_changes(("insert", 1, 0, "a", 1)))
    with pytest.raises(SinkError, match=r"terminating connection|server closed the connection"):
        sink.write(batch)
    assert sink.open().position is None
    sink.write(batch)
    assert store.counts() == {"a": 1}


def test_who_sleeps_in_the_middle_of_a_write_is_waited_for_and_then_refused(store: Store) -> None:
    sleeper, owner = store.sink(), store.sink(options="-c lock_timeout=300ms")
    sleeper.open()
    with sleeper._transaction() as cursor:
        sleeper._move(cursor, Batch(None, Position("feed", 1), some_changes().clear()))
        with pytest.raises(SinkError, match="lock timeout"):
            owner.open()
        cursor.connection.rollback()
    assert owner.open().position is None
    with pytest.raises(SinkTakenError):
        sleeper.write(Batch(None, Position("feed", 1), some_changes(("insert", 1, 0, "a", 1))))


def test_the_server_can_be_asked_for_all_sinks(store: Store) -> None:
    sink = store.sink()
    sink.open()
    sink.write(Batch(None, Position("feed", 1, 0, 10), some_changes(("insert", 1, 0, "a", 1))))
    found = store.ask("SELECT target, stream, sink, follows, version, ordinal FROM dedup_platform_sinks")
    assert found == [("public.copies", "conformance", "tried", "sessions", 1, 0)]
    with pytest.raises(psycopg2.errors.UndefinedTable):
        store.ask("SELECT 1 FROM incoming")


def test_a_key_that_goes_and_comes_back_in_one_version_is_there(store: Store) -> None:
    """A record that is decoded again to another entity: its coordinates are its key, and the version came in parts."""
    sink = store.sink()
    sink.open()
    sink.write(Batch(None, Position("feed", 1), some_changes(("insert", 1, 0, "a", 1))))
    half = Position("feed", 2, 0)
    sink.write(Batch(Position("feed", 1), half, some_changes(("delete", 2, 0, "a", 1))))
    assert store.counts() == {}
    sink.write(Batch(half, Position("feed", 2), some_changes(("insert", 2, 1, "a", 2))))
    assert store.counts() == {"a": 2}
    assert store.ask("SELECT count(*) FROM copies_retired") == [(0,)]


def test_a_row_that_a_trigger_or_a_limit_does_not_take_is_refused(store: Store) -> None:
    sink = store.sink()
    sink.open()
    store.ask("CREATE INDEX ON copies (page)")
    noise = "".join(map(chr, range(0x4E00, 0x4E00 + 5000)))  # longer than an entry of an index can be
    rows = some_changes(("insert", 1, 0, "a", 1)).with_columns(page=pl.lit(noise))
    with pytest.raises(RefusedRowsError, match="index row"):
        sink.write(Batch(None, Position("feed", 1), rows))
    store.ask(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not today'; END $$;"
        "CREATE TRIGGER no BEFORE INSERT ON copies FOR EACH ROW EXECUTE FUNCTION no()"
    )
    with pytest.raises(RefusedRowsError, match="not today"):
        sink.write(Batch(None, Position("feed", 1), some_changes(("insert", 1, 0, "a", 1))))


def test_rows_that_others_hold_on_to_are_no_fault_of_a_row(store: Store) -> None:
    sink = store.sink()
    sink.open()
    sink.write(Batch(None, Position("feed", 1), some_changes(("insert", 1, 0, "a", 1)), begins=True, completes=True))
    store.ask("CREATE TABLE notes (session_id text REFERENCES copies)")
    store.ask("INSERT INTO notes VALUES ('a')")
    anew = Batch(Position("feed", 1), Position("other", 2), some_changes(("insert", 2, 0, "b", 1)), True, True)
    with pytest.raises(SinkError, match=r"no more cannot be removed: .*foreign key") as raised:
        sink.write(anew)
    assert raised.value.lasting
    assert store.counts() == {"a": 1}


def test_nothing_is_locked_where_nothing_is_missing(store: Store) -> None:
    store.sink().open()
    reader = store.server.connect(store.name)
    try:
        with reader.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM copies")  # and the transaction stays open
            impatient = store.sink(options="-c lock_timeout=300ms")
            assert impatient.open().position is None
    finally:
        reader.close()


def test_texts_are_what_they_are_in_a_database_of_another_encoding(store: Store) -> None:
    connection = store.server.connect()
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {store.name}x ENCODING 'LATIN1' TEMPLATE template0")
    connection.close()
    store.name += "x"
    sink = store.sink()
    sink.open()
    sink.write(Batch(None, Position("feed", 1), some_changes(("insert", 1, 0, "é", 1))))
    assert store.ask("SELECT session_id, char_length(session_id) FROM copies") == [("é", 1)]


def test_what_it_was_given_is_counted(store: Store) -> None:
    check_totals(store.sink)


def test_rows_that_the_table_knows_newer_ones_of_are_counted(store: Store) -> None:
    sink = store.sink()
    sink.open()
    sink.write(Batch(None, Position("feed", 5), some_changes(("insert", 5, 0, "a", 1))))
    stale = some_changes(("insert", 4, 0, "a", 7), ("insert", 6, 1, "b", 1))
    sink.write(Batch(Position("feed", 5), Position("feed", 6), stale))
    assert sink.look().totals.known == 1


def test_what_somebody_did_to_the_table_is_mended_by_force(store: Store) -> None:
    sink, at = store.sink(), Position("feed", 5)
    sink.open()
    rows = [("insert", 5, number, key, 1) for number, key in enumerate("abc")]
    sink.write(Batch(None, at, some_changes(*rows)))
    store.ask("DELETE FROM copies WHERE session_id = 'a'")
    store.ask("UPDATE copies SET event_count = 7, _commit_version = 1000 WHERE session_id = 'b'")
    store.ask("INSERT INTO copies_retired (session_id, retired_into, _commit_version) VALUES ('a', 'b', 1000)")
    store.ask("INSERT INTO copies (session_id, _commit_version) VALUES ('x', 1000)")
    sink.write(Batch(at, at, some_changes(*rows, ("delete", 5, 3, "x", 0)), forced=True))
    assert store.counts() == dict.fromkeys("abc", 1)
    assert store.ask("SELECT session_id FROM copies_retired") == [("x",)]
    sink.write(Batch(at, Position("feed", 6), some_changes(("insert", 6, 0, "b", 2))))
    assert store.counts() == {"a": 1, "b": 2, "c": 1}, "versions go on from where they were"
