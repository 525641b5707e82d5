"""Streams whose file has no sessions: from the start, from some day on, or for a while."""

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dedup_platform import cli, tables
from dedup_platform.cli.export import export
from dedup_platform.errors import DedupPlatformError, IncompatibleChangeError
from dedup_platform.lake.snapshots import bucket_count, head
from dedup_platform.maintenance.checkpoints import Checkpoints
from dedup_platform.planning.cells import Cell
from dedup_platform.platform import Platform
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.changes.test_feeds import EVENTS, Followed
from dedup_platform_tests.lives.replaced import replaced
from dedup_platform_tests.variants import some

DAY = 24 * 60
"""In minutes."""
EVENTS_ALONE = {tables.RAW_EVENTS, tables.DUPLICATE_EVENTS, tables.DEDUPLICATED_EVENTS, tables.EVENT_CHANGES}


class Switched(Followed):
    """A stream of whose file sessions are taken out, and put in again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._sessions = self.stream.sessions

    def off(self) -> None:
        self.stream = self.stream.model_copy(update={"sessions": None})

    def on(self) -> None:
        self.stream = self.stream.model_copy(update={"sessions": self._sessions})

    def remember(self) -> None:
        """Feeds are not judged here."""

    def begin(self) -> None:
        """Sessions over midnight and not, of two entities, and one in a day of its own."""
        for entity in ("e", "f"):
            self.take_in(*(self.event(f"{n}", DAY * 0.55 + 20 * n, entity) for n in range(9)))
        self.take_in(self.event("alone", DAY * 1.7, "e"), self.event("alone", DAY * 1.8, "f"))

    def come(self) -> None:
        """A late event that joins two sessions, a copy that arrived earlier, and new ones."""
        self.take_in(self.event("bridge", DAY * 0.55 + 185, "e"), self.event("more", 2 * DAY, "f"))
        self.take_in(self.event("late", DAY * 0.55 - 25, "e"), self.event("far", DAY * 0.55 + 210, "e"))

    def move(self) -> None:
        """Events are decoded again, to when they arrived: all cells where they were are empty."""
        told = self.stream.fields.event_time.model_copy(update={"field": "arrived"})
        fields = self.stream.fields.model_copy(update={"event_time": told})
        self.stream = self.stream.model_copy(update={"fields": fields})
        self.platform.rejected.redecode(EVENTS, range(19_000, 21_000))
        self.platform.repair(EVENTS)

    def forget(self) -> None:
        """Upkeep, months later: history expires, and with it what is not needed any more."""
        self.clock.advance(timedelta(days=90))
        self.platform.maintain(EVENTS)

    def lose(self) -> None:
        """The control database and the receipts."""
        (self.home / "control.db").unlink()
        shutil.rmtree(self.home / "warehouse" / EVENTS / "receipts")

    def lose_what_tells_of_events(self) -> None:
        """The control database, and the receipts of the events alone."""
        (self.home / "control.db").unlink()
        for file in (self.home / "warehouse" / EVENTS / "receipts").glob("*.json"):
            if json.loads(file.read_text()).get("table") == tables.DEDUPLICATED_EVENTS:
                file.unlink()

    def rebucket(self, buckets: int) -> None:
        self.platform.change_buckets(EVENTS, buckets)

    def folders(self) -> set[str]:
        """The tables that there are."""
        return {name for _, name in self.platform.lake.catalog.iceberg.list_tables(EVENTS)}

    def heads(self) -> dict[str, int]:
        """The newest snapshots of the tables of sessions."""
        catalog = self.platform.lake.catalog
        return {table: head(catalog.load_table(EVENTS, table)).snapshot_id for table in tables.OF_SESSIONS}

    def stale(self) -> dict[str, set[Cell]]:
        return {plan.table: {each.cell for each in plan.stale} for plan in self.platform.plan(EVENTS)}

    def settled(self) -> Platform:
        """After an ingest and a repair: nothing is stale, and all is as the oracle says."""
        self.platform.ingest(EVENTS)
        self.platform.repair(EVENTS)
        assert not any(self.stale().values())
        assert wrong_rows(self.platform, EVENTS) == []
        return self.platform


@pytest.fixture
def switched(tmp_path: Path) -> Iterator[Switched]:
    with replaced(has_spark=False):
        yield Switched(tmp_path)


def test_there_are_no_tables_of_sessions_and_no_files_of_theirs(switched: Switched) -> None:
    switched.off()
    switched.begin()
    switched.come()
    assert [each.feed for each in switched.platform.publish_changes(EVENTS)] == [tables.EVENT_CHANGES]
    assert switched.folders() == EVENTS_ALONE
    assert {path.name for path in (switched.home / "warehouse" / EVENTS).iterdir()} == {*EVENTS_ALONE, "receipts"}
    assert [each.table for each in switched.settled().status(EVENTS).tables] == list(tables.all_of(switched.stream))
    maintained = {each.table for each in switched.platform.maintain(EVENTS)}
    assert maintained - {tables.AUDIT} == EVENTS_ALONE


def test_the_control_database_keeps_nothing_that_nobody_asks_for(switched: Switched) -> None:
    switched.off()
    switched.begin()
    with switched.platform.ledger.engine.connect() as connection:
        waiting = connection.exec_driver_sql('SELECT "table" FROM changes').scalars().all()
    assert waiting == []


def test_sessions_that_are_named_later_are_made_of_all_events(switched: Switched) -> None:
    switched.off()
    switched.begin()
    switched.come()
    switched.on()
    cells = set(switched.platform.ledger.sizes(EVENTS, tables.DEDUPLICATED_EVENTS))
    assert switched.stale() == {
        tables.DEDUPLICATED_EVENTS: set(),
        tables.SESSION_FRAGMENTS: cells,
        tables.SESSIONS: set(),
    }
    platform = switched.settled()
    assert platform.rows(EVENTS, tables.SESSIONS) > 0
    told = {each.feed for each in platform.publish_changes(EVENTS)}
    assert told == set(tables.followers_of(switched.stream).values())
    assert tables.SESSION_CHANGES in told


def test_tables_that_are_switched_off_stay_as_they_are(switched: Switched) -> None:
    switched.begin()
    switched.platform.publish_changes(EVENTS)
    before = switched.heads()
    switched.off()
    switched.come()
    switched.move()
    for _ in range(2):
        switched.forget()
    switched.platform.publish_changes(EVENTS)
    assert switched.heads() == before
    assert switched.settled().status(EVENTS).switched_off == tables.OF_SESSIONS
    switched.on()
    assert switched.settled().status(EVENTS).switched_off == ()


MEANWHILE: dict[str, list[Callable[[Switched], None]]] = {
    "nothing happened": [],
    "events came": [Switched.come],
    "events came and history expired": [Switched.come, Switched.forget],
    "events went elsewhere": [Switched.move],
    "events went elsewhere and history expired": [Switched.move, Switched.forget, Switched.forget],
    "events went elsewhere, history expired, and all that told of it was lost": [
        Switched.move,
        Switched.forget,
        Switched.lose,
    ],
    "events went elsewhere, history expired, and what told of the events alone was lost": [
        Switched.move,
        Switched.forget,
        Switched.forget,
        Switched.lose_what_tells_of_events,
    ],
    "all that told of anything was lost": [Switched.come, Switched.lose],
    "the number of buckets went to and fro": [lambda it: it.rebucket(2), Switched.come, lambda it: it.rebucket(1)],
    "it went to and fro and history expired": [
        Switched.move,
        lambda it: it.rebucket(2),
        lambda it: it.rebucket(1),
        Switched.forget,
    ],
}


@pytest.mark.parametrize("happened", some(MEANWHILE, quick=list(MEANWHILE)[::3]))
def test_sessions_that_were_off_while(happened: str, switched: Switched) -> None:
    switched.begin()
    switched.off()
    for each in MEANWHILE[happened]:
        each(switched)
    switched.settled()
    switched.on()
    switched.settled()
    switched.come()
    switched.settled()


def test_what_did_not_change_meanwhile_is_not_built_again(switched: Switched) -> None:
    switched.begin()
    switched.off()
    switched.take_in(switched.event("more", 2 * DAY, "f"))
    platform = switched.platform
    Checkpoints(platform.lake, platform.ledger).remove_superfluous(switched.stream, timedelta(0))
    switched.on()
    stale = switched.stale()
    assert len(stale[tables.SESSION_FRAGMENTS]) == 1
    assert not stale[tables.SESSIONS]
    before = switched.heads()
    switched.settled()
    assert switched.heads() != before


@pytest.mark.parametrize(
    ("before", "buckets", "meanwhile"), [(1, 4, ""), (4, 2, "come"), (1, 4, "move"), (4, 2, "forget"), (1, 2, "lose")]
)
def test_another_number_of_buckets_meanwhile_is_refused_until_all_have_it(
    before: int, buckets: int, meanwhile: str, switched: Switched
) -> None:
    switched.platform.lake.create(switched.stream, before)
    switched.begin()
    switched.off()
    switched.come()
    switched.rebucket(buckets)
    if meanwhile:
        getattr(switched, meanwhile)()
    switched.on()
    with pytest.raises(IncompatibleChangeError, match=rf"`dedup-platform buckets {EVENTS} N`"):
        switched.platform.ingest(EVENTS)
    switched.rebucket(buckets)
    catalog = switched.platform.lake.catalog
    assert {bucket_count(catalog.load_table(EVENTS, table)) for table in tables.ALL} == {buckets}
    switched.settled()


def test_processes_with_and_without_sessions_side_by_side_forget_nothing(switched: Switched) -> None:
    switched.begin()
    having = switched.platform
    switched.off()
    lacking = switched.platform
    for number in range(3):
        switched.take_in(switched.event(f"side{number}", 700 + 100 * number))
        lacking.repair(EVENTS)
        having.plan(EVENTS)
        if number:
            having.repair(EVENTS)
        assert not any(plan.stale for plan in lacking.plan(EVENTS))
    switched.on()
    switched.settled()


@pytest.mark.parametrize("command", ["check", "status"])
def test_it_is_said_once_that_tables_stay_as_they_are(command: str, switched: Switched) -> None:
    switched.begin()
    file = switched.stream.origin
    with_sessions = file.read_text()
    say = [command, "--streams", str(file)]
    environment = {"DEDUP_PLATFORM_HOME": str(switched.home)}
    told = "events: the stream file has no `sessions`, so session_fragments and sessions stay as they are."
    for text, times in ((with_sessions, 0), (with_sessions.split("sessions:\n")[0], 1)):
        file.write_text(text)
        result = CliRunner().invoke(cli.app, say, env=environment)
        assert result.exit_code == 0, result.output
        assert " ".join(result.output.split()).count(told) == times


def test_events_are_explained_without_sessions(switched: Switched) -> None:
    switched.begin()
    [event] = switched.platform.explained.event(EVENTS, "alone", "e").events
    assert len(event.sessions) == 1
    switched.off()
    [event] = switched.platform.explained.event(EVENTS, "alone", "e").events
    assert (len(event.records), event.sessions) == (1, ())
    assert switched.platform.explained.session(EVENTS, "0" * 32).session is None


def test_a_table_that_the_stream_has_not_cannot_be_exported(switched: Switched, tmp_path: Path) -> None:
    switched.off()
    switched.begin()
    with pytest.raises(DedupPlatformError, match=r"events\.sessions does not exist: the stream file has no sessions"):
        export(switched.platform, EVENTS, tables.SESSIONS, tmp_path / "sessions.csv")
