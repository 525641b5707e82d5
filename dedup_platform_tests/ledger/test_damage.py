"""Receipts and checkpoints are damaged, or a table is dropped, and the control database is lost: all is mended."""

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from dedup_platform import tables
from dedup_platform.errors import NewerVersionError
from dedup_platform.lake.receipts import VERSION, parse_receipt, receipt_text
from dedup_platform.lake.snapshots import ancestry, summary
from dedup_platform.maintenance.checkpoints import Checkpoints
from dedup_platform.platform import Platform
from dedup_platform.testing import HeldClock, lay_out, light_platform, make_stream, record, utc, write_batch
from dedup_platform.testing.comparison import published_rows
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.variants import some

NAME = "events"
NOON = utc("2024-01-02T12:00")
NOW = HeldClock(utc("2024-02-01"))
TOLD = (tables.RAW_EVENTS, *tables.DERIVED)
"""Tables whose commits have receipts."""


class Home:
    """A stream of two deliveries, repaired; a third one waits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stream = make_stream(folder, buckets=2)
        self.platform = self.opened()
        for number in range(2):
            self.deliver(number)
            self.platform.ingest(NAME)
            self.platform.repair(NAME)
        self.deliver(2)

    def opened(self) -> Platform:
        return light_platform(self.folder / "home", self.stream, NOW)

    def deliver(self, number: int) -> None:
        times = [NOON + timedelta(minutes=10 * each, days=each % 2) for each in range(number, number + 4)]
        records = [record(f"e{each % 3}", f"{time}", time, NOON + timedelta(days=9)) for each, time in enumerate(times)]
        write_batch(self.stream, lay_out(records, f"{number}.json"))

    def newest_receipt(self, table: str) -> Path:
        loaded = self.platform.lake.catalog.load_table(NAME, table)
        name = next(found for each in ancestry(loaded) if (found := summary(each, "receipt")))
        return self.folder / "home" / "warehouse" / NAME / "receipts" / name

    def expire(self, table: str) -> None:
        """Of all history the newest snapshot alone is left, and what receipts tell."""
        loaded = self.platform.lake.catalog.load_table(NAME, table)
        loaded.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in list(ancestry(loaded))[1:]]).commit()

    def lose_control_database(self) -> None:
        for file in (self.folder / "home").glob("control.db*"):
            file.unlink()
        self.platform = self.opened()

    def assert_mended(self) -> None:
        """What waits is taken in, nothing twice, and everything follows."""
        self.platform.ingest(NAME)
        self.platform.repair(NAME)
        assert wrong_rows(self.platform, NAME) == []
        assert len(published_rows(self.platform, NAME)[tables.RAW_EVENTS]) == 12
        assert not any(plan.stale for plan in self.platform.plan(NAME))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = Home(tmp_path_factory.mktemp("damage"))
    shutil.copytree(made.folder / "home", made.folder / "kept")
    return made


@pytest.fixture
def home(made: Home) -> Home:
    """As it was made: to the same place, since Iceberg's metadata holds absolute paths."""
    shutil.rmtree(made.folder / "home")
    shutil.copytree(made.folder / "kept", made.folder / "home")
    made.platform = made.opened()
    return made


def leads_to_itself(file: Path) -> bytes:
    receipt = parse_receipt(NAME, file.name, file.read_bytes())
    return receipt_text(receipt.model_copy(update={"previous": file.name}))


def as_before_digests(file: Path) -> bytes:
    told = json.loads(leads_to_itself(file))
    del told["digest"]
    return json.dumps(told).encode()


def of_another(file: Path) -> bytes:
    return next(other.read_bytes() for other in file.parent.glob("*.json") if other != file)


DAMAGES: dict[str, Callable[[Path], bytes]] = {
    "empty": lambda _: b"",
    "truncated": lambda file: file.read_bytes()[:-9],
    "tells nothing": lambda _: b"{}",
    "tells its version": lambda _: b'{"version":1}',
    "of another": of_another,
    "circle": leads_to_itself,
    "circle without a digest": as_before_digests,
}


@pytest.mark.parametrize(
    ("table", "damage", "expired"),
    [
        *((tables.RAW_EVENTS, damage, False) for damage in DAMAGES),
        *some(
            ((table, damage, True) for table in TOLD for damage in ("of another", "circle without a digest")),
            quick=[(TOLD[-1], "of another", True)],
            unpack=True,
        ),
    ],
)
def test_a_damaged_receipt_is_as_good_as_a_lost_one(home: Home, table: str, damage: str, expired: bool) -> None:
    file = home.newest_receipt(table)
    file.write_bytes(DAMAGES[damage](file))
    if expired:
        home.expire(table)
    home.lose_control_database()
    home.assert_mended()


@pytest.mark.parametrize("damage", some(["truncated", "empty", "gone"], quick=["truncated"]))
def test_a_damaged_part_of_a_checkpoint_is_as_good_as_a_lost_one(home: Home, damage: str) -> None:
    Checkpoints(home.platform.lake, home.platform.ledger).commit_positions(home.stream)
    [part, *_] = home.newest_receipt(tables.RAW_EVENTS).parent.glob("*.parquet")
    home.expire(tables.RAW_EVENTS)
    part.write_bytes(part.read_bytes()[:60] if damage == "truncated" else b"")
    if damage == "gone":
        part.unlink()
    home.lose_control_database()
    home.assert_mended()


@pytest.mark.parametrize("table", tables.ALL)
@pytest.mark.parametrize("lost", some([False, True], quick=[True]), ids=["", "control database lost"])
def test_a_table_that_is_missing_beside_others_is_made_anew(home: Home, table: str, lost: bool) -> None:
    home.platform.ingest(NAME)
    home.platform.repair(NAME)
    before = published_rows(home.platform, NAME)
    home.platform.lake.catalog.iceberg.drop_table((NAME, table))
    if lost:
        home.lose_control_database()
    judged = {tables.DUPLICATE_EVENTS: tables.DEDUPLICATED_EVENTS}.get(table, table)
    stale = {plan.table for plan in home.platform.plan(NAME) if plan.stale}
    assert judged in stale or table == tables.RAW_EVENTS
    home.assert_mended()
    after = published_rows(home.platform, NAME)
    assert {name: sorted(map(str, rows)) for name, rows in after.items()} == {
        name: sorted(map(str, rows)) for name, rows in before.items()
    }


def test_that_the_facts_cannot_be_read_is_noted_as_a_failure(home: Home) -> None:
    file = home.newest_receipt(tables.RAW_EVENTS)
    kept = file.read_bytes()
    file.write_text(json.dumps({"version": VERSION + 1}))
    home.lose_control_database()
    assert home.platform.source.look(NAME) is None
    assert home.platform.source.health(NAME).state == "failing"
    with pytest.raises(NewerVersionError, match="was written by a newer one"):
        home.platform.ingest(NAME)
    file.write_bytes(kept)
    assert home.platform.source.look(NAME) is not None
    home.assert_mended()
    assert home.platform.source.health(NAME).state == "normal"
