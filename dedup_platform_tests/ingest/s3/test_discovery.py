"""A look at a bucket finds whatever is new, and asks for little else. No Spark: what was read is told to the ledger."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from dedup_platform.ingest.discovery import OVERLAP, Look, look_at_bucket
from dedup_platform.lake.catalog import Catalog
from dedup_platform.ledger import Ledger
from dedup_platform.ledger.schema import ACCEPTED, FILES
from dedup_platform.settings import Settings
from dedup_platform.sources.files import SourceFile
from dedup_platform.stream import Stream
from dedup_platform.testing import HeldClock, make_stream, utc
from dedup_platform.testing.servers import LaggingListing, S3Server
from dedup_platform_tests.ingest.s3.landing import Landing

NOW = utc("2024-03-05T12:00:00")
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
OLD = NOW - 2 * HOUR
CHANGED = "changed after it was read: accept it with `files accept`, or restore the file"


@dataclass
class Watched:
    """A stream in a bucket, a ledger that is told what was read, and a clock."""

    landing: Landing
    stream: Stream
    ledger: Ledger
    clock: HeldClock

    def look(self, whole: bool = False) -> Look:
        return look_at_bucket(self.stream, self.ledger, self.landing.access, self.clock(), whole)

    def paths(self) -> list[str]:
        return [file.path for file, _ in self.look().files]

    def read_all(self) -> list[str]:
        """What is ready, which then is read."""
        files = [file for file, _ in self.look().files]
        self.read(files)
        return [file.path for file in files]

    def read(self, files: Iterable[SourceFile], generation: int = 0) -> None:
        rows = [
            {
                "stream": self.stream.name,
                "path": file.path,
                "generation": generation,
                "size": file.size,
                "etag": file.etag,
                "records": 1,
                "skipped": False,
            }
            for file in files
        ]
        with self.ledger.engine.begin() as connection:
            for row in rows:
                connection.execute(sa.insert(FILES).values(row))

    def cost(self) -> Counter[str]:
        with self.landing.counted() as counts:
            self.look()
        return counts


def watched(landing: Landing, folder: Path, pattern: str = "in/*.json", **source: str) -> Watched:
    settings = Settings(home=folder / "home")
    stream = landing.of(make_stream(folder), pattern, **source)
    return Watched(landing, stream, Ledger(settings, Catalog(settings), lambda _: stream), HeldClock(NOW))


@pytest.fixture
def inbox(s3_server: S3Server, tmp_path: Path) -> Watched:
    return watched(Landing.on(s3_server), tmp_path)


def test_what_is_new_is_found_in_the_order_of_its_times(inbox: Watched) -> None:
    inbox.landing.put("in/b.json", modified=OLD)
    inbox.landing.put("in/a.json", modified=OLD + SECOND)
    inbox.landing.put("in/c.csv", modified=OLD)
    assert inbox.read_all() == ["b.json", "a.json"]
    assert inbox.paths() == []
    inbox.landing.put("in/d.json", modified=NOW - MINUTE)
    assert inbox.read_all() == ["d.json"]


def test_a_file_rests_before_it_is_read(inbox: Watched) -> None:
    inbox.landing.put("in/a.json", modified=NOW - SECOND)
    inbox.landing.put("in/b.json", modified=NOW - HOUR)
    look = inbox.look()
    assert [file.path for file, _ in look.files] == ["b.json"]
    assert look.reasons == [
        ("a.json", "modified at 2024-03-05T11:59:59+00:00; it may still be written until it rests for 0:00:02")
    ]
    inbox.clock.advance(SECOND)
    assert inbox.paths() == ["b.json", "a.json"]


def test_a_look_costs_what_is_new_whatever_is_old(inbox: Watched) -> None:
    costs = []
    for first, last in ((0, 10), (10, 1200)):
        for number in range(first, last):
            inbox.landing.put(f"in/{number:05}.json", modified=OLD)
        inbox.look(whole=True)
        inbox.read_all()
        inbox.look(whole=True)
        inbox.landing.put(f"in/{last:05}-new.json", modified=NOW - MINUTE)
        costs.append(inbox.cost())
        assert inbox.read_all() == [f"{last:05}-new.json"]
    assert costs == [Counter(pages=1, keys=1)] * 2
    with inbox.landing.counted() as counts:
        inbox.look(whole=True)
    assert counts == Counter(pages=2, keys=1202)


def test_what_is_not_read_yet_is_found_again_and_again(inbox: Watched) -> None:
    for name in "abcd":
        inbox.landing.put(f"in/{name}.json", modified=OLD)
    first = inbox.look()
    inbox.read(file for file, _ in first.files if file.path != "b.json")
    assert [inbox.paths() for _ in range(3)] == [["b.json"]] * 3
    assert inbox.cost() == Counter(pages=1, keys=3)
    inbox.read(file for file, _ in first.files if file.path == "b.json")
    assert inbox.paths() == []
    assert inbox.cost() == Counter(pages=1)


@pytest.mark.parametrize("age", [OVERLAP - SECOND, OVERLAP])
def test_keys_before_young_ones_are_looked_for(inbox: Watched, age: timedelta) -> None:
    """Writers whose clocks differ a little, and listings that left a key out."""
    inbox.landing.put("in/a.json", modified=OLD)
    inbox.landing.put("in/c.json", modified=NOW - age)
    assert inbox.read_all() == ["a.json", "c.json"]
    inbox.look()
    inbox.landing.put("in/b.json", modified=NOW - 5 * SECOND)
    assert inbox.paths() == (["b.json"] if age < OVERLAP else [])
    inbox.clock.advance(HOUR)
    assert inbox.paths() == ["b.json"]


def test_all_keys_are_listed_when_it_is_time(s3_server: S3Server, tmp_path: Path) -> None:
    inbox = watched(Landing.on(s3_server), tmp_path, relist="30m")
    inbox.landing.put("in/b.json", modified=OLD)
    assert inbox.read_all() == ["b.json"]
    inbox.look()
    inbox.landing.put("in/a.json", modified=OLD)
    inbox.clock.advance(30 * MINUTE - timedelta(microseconds=1))
    assert inbox.paths() == []
    inbox.clock.advance(timedelta(microseconds=1))
    assert inbox.paths() == ["a.json"]


def test_a_listing_that_is_lost_costs_a_listing_of_all_keys(inbox: Watched) -> None:
    inbox.landing.put("in/b.json", modified=OLD)
    inbox.read_all()
    inbox.look()
    for content in (None, "", '{"path": "of another version"}'):
        inbox.ledger.keep_listing(inbox.stream.name, content)
        assert inbox.cost() == Counter(pages=1, keys=1)
        assert inbox.cost() == Counter(pages=1)


def test_another_path_is_listed_from_its_beginning(inbox: Watched) -> None:
    inbox.landing.put("in/b.json", modified=OLD)
    inbox.landing.put("in/a.json.gz", modified=OLD)
    inbox.read_all()
    inbox.look()
    inbox.stream = inbox.landing.of(inbox.stream, "in/*.json.gz")
    assert inbox.paths() == ["a.json.gz"]


def test_a_file_that_was_rewritten_waits_for_a_person(inbox: Watched) -> None:
    inbox.landing.put("in/a.json", b"{}\n", modified=OLD)
    inbox.landing.put("in/b.json", b"{}\n", modified=OLD)
    assert inbox.read_all() == ["a.json", "b.json"]
    inbox.landing.put("in/a.json", b"{} \n", modified=OLD)
    inbox.clock.advance(HOUR)
    looks = [inbox.look() for _ in range(3)]
    assert [look.reasons for look in looks] == [[("a.json", CHANGED)]] * 3
    assert inbox.cost() == Counter(pages=1)
    [changed] = looks[-1].changed
    with inbox.ledger.engine.begin() as connection:
        connection.execute(
            sa.insert(ACCEPTED).values(stream=inbox.stream.name, path="a.json", etag=changed.etag, generation=1)
        )
    assert inbox.look().files == [(changed, 1)]
    inbox.read([changed], generation=1)
    assert inbox.look() == Look()


def test_the_same_content_written_again_is_no_change(inbox: Watched) -> None:
    inbox.landing.put("in/a.json", modified=OLD)
    inbox.read_all()
    inbox.landing.put("in/a.json", modified=OLD + MINUTE)
    assert inbox.look(whole=True) == Look()


def test_a_listing_that_leaves_out_the_newest_key_for_a_while_loses_nothing(
    s3_server: S3Server, tmp_path: Path
) -> None:
    with LaggingListing(s3_server.port, seconds=5) as proxy:
        inbox = watched(Landing.on(s3_server, proxy.endpoint), tmp_path)
        found: list[str] = []
        names = [f"{number:02}.json" for number in range(20)]
        # Of two writers, one a little behind the other: what is left out lies before what is not.
        for name in (name for pair in zip(names[1::2], names[::2], strict=True) for name in pair):
            inbox.landing.put(f"in/{name}", modified=inbox.clock() - 5 * SECOND)
            found += inbox.read_all()
            inbox.look()
            inbox.clock.advance(MINUTE)
        assert len(found) < len(names)
        assert proxy.left_out
        proxy.seconds = 0
        found += inbox.read_all()
        assert sorted(found) == names


DATED = "events/{date:%Y/%m/%d}/*.json"


def test_between_listings_of_all_keys_only_prefixes_of_these_days_are_listed(
    s3_server: S3Server, tmp_path: Path
) -> None:
    inbox = watched(Landing.on(s3_server), tmp_path, DATED)
    for day in (1, 2, 3, 4, 5):
        inbox.landing.put(f"events/2024/03/{day:02}/a.json", modified=utc(f"2024-03-{day:02}T01:00:00"))
    assert inbox.read_all() == [f"2024/03/{day:02}/a.json" for day in (1, 2, 3, 4, 5)]
    inbox.look()
    assert inbox.cost() == Counter(pages=2)
    for day in (1, 3, 4, 5):
        inbox.landing.put(f"events/2024/03/{day:02}/b.json", modified=NOW - MINUTE)
    assert inbox.read_all() == ["2024/03/04/b.json", "2024/03/05/b.json"]
    inbox.clock.advance(HOUR)
    assert inbox.read_all() == ["2024/03/01/b.json", "2024/03/03/b.json"]


def test_what_is_unread_of_an_old_day_is_not_forgotten(s3_server: S3Server, tmp_path: Path) -> None:
    inbox = watched(Landing.on(s3_server), tmp_path, DATED)
    for name in ("01/a", "01/b", "05/a"):
        inbox.landing.put(f"events/2024/03/{name}.json", modified=OLD)
    first = inbox.look()
    inbox.read(file for file, _ in first.files if not file.path.endswith("b.json"))
    assert [inbox.paths() for _ in range(3)] == [["2024/03/01/b.json"]] * 3
    assert inbox.cost() == Counter(pages=3, keys=1)
    inbox.read_all()
    inbox.look()
    assert inbox.cost() == Counter(pages=2)


@pytest.mark.parametrize(("time", "found"), [("23:49:59", []), ("23:50:00", ["2024/03/06/a.json"])])
def test_a_new_day_is_looked_for_a_little_before_it_begins(
    s3_server: S3Server, tmp_path: Path, time: str, found: list[str]
) -> None:
    inbox = watched(Landing.on(s3_server), tmp_path, DATED)
    inbox.clock.set(utc(f"2024-03-05T{time}"))
    inbox.look()
    inbox.landing.put("events/2024/03/06/a.json", modified=OLD)
    assert inbox.paths() == found
