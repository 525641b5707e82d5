"""A replay moves what can be an event now, once and whole, and touches nothing else."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.errors import ConflictError, ConservationError
from dedup_platform.lake.staged import STAGING
from dedup_platform.planning.cells import Cell
from dedup_platform.replay.rewrite import Choice, Rewritten, rewrite
from dedup_platform.testing import Record, record, temporary_platform, utc
from dedup_platform_tests.replay.conftest import ARRIVED, NOW, Deployment, touched

START = utc("2024-03-01T12:00")
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


def events(day: int, entities: int, count: int, arrived: timedelta = timedelta()) -> list[Record]:
    """So many events of one day, ten minutes apart for each of the entities."""
    return [
        record(
            f"user {number % entities}",
            f"{day}/{number}",
            START + day * DAY + number // entities * 10 * MINUTE,
            START + day * DAY + number // entities * 10 * MINUTE + arrived,
            page="/",
            quantity=1,
        )
        for number in range(count)
    ]


def spoiled(deploy: Deployment, records: Sequence[Record], file: str) -> list[Record]:
    """Deliver while the stream file is wrong about the time of events, then put it right."""
    deploy.spoil()
    laid = deploy.deliver(*records, file=file)
    deploy.put_right()
    return laid


def test_a_thousand_records_come_back_and_a_second_replay_changes_nothing(deploy: Deployment) -> None:
    good = [*deploy.deliver(*events(0, 20, 200), file="0.json"), *deploy.deliver(*events(5, 20, 200), file="5.json")]
    deploy.deliver_lines(b"no json", b'{"entity": 1', file="broken.json")
    deploy.platform.repair(deploy.name)
    bad = spoiled(deploy, [*events(1, 20, 500), *events(2, 20, 500)], "bad.json")
    assert deploy.platform.rejected.count(deploy.name) == 1002
    coordinates, before = deploy.coordinates(), deploy.files()

    outcome = deploy.platform.rejected.replay(deploy.name)
    assert (outcome.accepted, outcome.altered, outcome.rejected) == (1000, 0, 0)
    days = {deploy.stream.partitions.ordinal(START + day * DAY) for day in (1, 2)}
    assert outcome.cells == {Cell(day, bucket) for day in days for bucket in (0, 1)}
    assert deploy.coordinates() == coordinates
    replayed = deploy.files()
    assert touched(before, replayed) == {
        tables.RAW_EVENTS: {None, *outcome.cells},
        **{table: set() for table in tables.ALL if table != tables.RAW_EVENTS},
    }
    # They are next to days 0 and 3, which hold no copies and nothing within the timeout.
    assert deploy.stale() == outcome.cells

    heads = deploy.heads()
    assert deploy.platform.rejected.replay(deploy.name).snapshot_id is None
    assert deploy.heads() == heads

    deploy.platform.repair(deploy.name)
    rewritten = touched(replayed, deploy.files())
    assert rewritten.pop(tables.RAW_EVENTS) == set()
    assert rewritten.pop(tables.DUPLICATE_EVENTS) == set()
    assert all(cells == outcome.cells for cells in rewritten.values()), rewritten
    deploy.check([*good, *bad])
    assert deploy.platform.rejected.count(deploy.name) == 2


def test_what_came_back_is_one_commit_that_names_its_reason(deploy: Deployment) -> None:
    deploy.deliver(*events(0, 2, 4), file="good.json")
    base = deploy.heads()[tables.RAW_EVENTS]
    spoiled(deploy, events(1, 2, 4), "bad.json")
    outcome = deploy.platform.rejected.replay(deploy.name)
    loaded = deploy.platform.lake.catalog.load_table(deploy.name, tables.RAW_EVENTS)
    newest = loaded.current_snapshot()
    assert newest is not None
    assert newest.snapshot_id == outcome.snapshot_id
    assert newest.summary is not None
    assert newest.summary["dedup-platform.reason"] == "replayed"
    assert [each.snapshot_id for each in loaded.snapshots()].index(base) == len(loaded.snapshots()) - 3
    assert not any(name.startswith(STAGING) for name in loaded.refs())


def test_a_copy_that_was_rejected_takes_over_from_the_one_that_was_read(deploy: Deployment) -> None:
    """It arrived first, so another day's event is a duplicate from now on: linked cells change together."""
    later = record("a", "x", utc("2024-03-02T00:10"), utc("2024-03-05"))
    earlier = record("a", "x", utc("2024-03-01T23:50"), utc("2024-03-04"))
    good = deploy.deliver(later, file="later.json")
    deploy.platform.repair(deploy.name)
    bad = spoiled(deploy, [earlier], "earlier.json")
    deploy.platform.rejected.replay(deploy.name)
    deploy.platform.repair(deploy.name)
    deploy.check([*good, *bad])
    [left] = deploy.platform.read(deploy.name, tables.DEDUPLICATED_EVENTS).collect()
    assert left.source == "earlier.json"


def test_what_is_still_rejected_takes_the_reason_of_today_once(deploy: Deployment) -> None:
    line = b'{"entity": "a", "id": "1", "happened": "1999-01-01", "arrived": "2024-03-01"}'
    deploy.spoil()
    deploy.deliver_lines(line, file="old.json")
    deploy.put_right()
    outcome = deploy.platform.rejected.replay(deploy.name)
    assert (outcome.accepted, outcome.altered, outcome.cells) == (0, 1, frozenset())
    assert [each.reason for each in deploy.platform.rejected.reasons(deploy.name)] == ["before_start"]
    assert deploy.platform.rejected.replay(deploy.name).snapshot_id is None
    assert deploy.stale() == set()


def test_an_arrival_that_could_not_be_read_is_read_and_any_other_stays(deploy: Deployment) -> None:
    line = b'{"entity": "a", "id": "1", "happened": "2024-03-01T10:00:00", "arrived": "2024-03-01T11:00:00"}'
    deploy.spoil("arrival_time: arrived", "arrival_time: {field: arrived, format: '%d/%m/%Y'}")
    deploy.deliver_lines(line, file="one.json")
    [told] = deploy.platform.rejected.first(deploy.name)
    assert (told.rejection_reason, told.arrival_time) == ("unreadable_arrival_time", ARRIVED)
    deploy.put_right()
    deploy.platform.rejected.replay(deploy.name)
    [row] = deploy.platform.read(deploy.name, tables.RAW_EVENTS).collect()
    assert row.arrival_time.timestamp() == utc("2024-03-01T11:00").timestamp()


def test_a_file_of_which_nothing_changes_is_left_alone(deploy: Deployment) -> None:
    deploy.deliver_lines(b"no json", file="broken.json")
    kept = deploy.files()[tables.RAW_EVENTS][None]
    spoiled(deploy, events(1, 1, 3), "bad.json")
    deploy.platform.rejected.replay(deploy.name)
    assert deploy.files()[tables.RAW_EVENTS][None] == kept


def test_only_what_is_chosen_is_replayed(deploy: Deployment) -> None:
    first = spoiled(deploy, events(1, 2, 10), "first.json")
    second = spoiled(deploy, events(2, 2, 10), "second.json")
    platform, name = deploy.platform, deploy.name
    assert platform.rejected.replay(name, Choice(reason="malformed*")).snapshot_id is None
    assert platform.rejected.replay(name, Choice(source="third*")).snapshot_id is None
    assert platform.rejected.replay(name, Choice(until=first[0].arrival_time)).snapshot_id is None
    assert platform.rejected.replay(name, Choice(since=second[-1].arrival_time + MINUTE)).snapshot_id is None
    assert platform.rejected.replay(name, Choice(reason="unreadable_*", source="first*"), limit=3).accepted == 3
    assert platform.rejected.first(name, limit=1)[0].arrival_order == (first[3].arrival_time, "first.json", 0, 3, 0)
    assert (
        platform.rejected.replay(name, Choice(since=second[0].arrival_time, until=second[4].arrival_time)).accepted == 4
    )
    left = {(each.source, each.source_offset) for each in platform.rejected.first(name, limit=100)}
    assert left == {("first.json", n) for n in range(3, 10)} | {("second.json", n) for n in range(4, 10)}
    assert platform.rejected.replay(name).accepted == 13
    platform.repair(name)
    deploy.check([*first, *second])


def test_many_rows_are_written_in_parts_and_by_many_tasks(deploy: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [spoiled(deploy, events(day, 5, 40), f"{day}.json") for day in range(1, 4)]
    monkeypatch.setattr("dedup_platform.replay.rewrite.TASK_BYTES", 1)
    monkeypatch.setattr("dedup_platform.lake.table_files._BATCH_ROWS", 7)
    assert deploy.platform.rejected.replay(deploy.name).accepted == 120
    deploy.platform.repair(deploy.name)
    deploy.check([each for part in parts for each in part])


def test_a_record_without_payload_is_never_replayed(deploy: Deployment) -> None:
    spoiled(deploy, events(1, 1, 3), "bad.json")
    assert deploy.platform.rejected.drop(deploy.name, limit=1).altered == 1
    assert deploy.platform.rejected.replay(deploy.name).accepted == 2
    assert deploy.platform.rejected.replay(deploy.name).snapshot_id is None
    [left] = deploy.platform.rejected.first(deploy.name)
    assert (left.rejection_reason, left.payload) == ("dropped:unreadable_event_time", None)


def test_a_batch_that_comes_in_meanwhile_costs_no_second_decoding(
    deploy: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = spoiled(deploy, events(1, 2, 20), "bad.json")
    late: list[Record] = []
    judged = 0

    def and_an_ingest(*arguments: object) -> Rewritten:
        nonlocal judged
        judged += 1
        done = rewrite(*arguments)  # type: ignore[arg-type]
        late.extend(deploy.deliver(*events(2, 2, 20), file=f"late {judged}.json"))
        return done

    monkeypatch.setattr("dedup_platform.replay.rejected.rewrite", and_an_ingest)
    assert deploy.platform.rejected.replay(deploy.name).accepted == 20
    assert judged == 1
    deploy.platform.repair(deploy.name)
    deploy.check([*bad, *late])


def test_two_replays_at_once_move_each_record_once(
    deploy: Deployment, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = spoiled(deploy, events(1, 2, 20), "bad.json")
    other = temporary_platform(
        deploy.platform.settings.home, deploy.stream, spark, deploy.platform.clock, in_process=True
    )

    def and_another(*arguments: object) -> Rewritten:
        done = rewrite(*arguments)  # type: ignore[arg-type]
        monkeypatch.setattr("dedup_platform.replay.rejected.rewrite", rewrite)
        assert other.rejected.replay(deploy.name).accepted == 20
        return done

    monkeypatch.setattr("dedup_platform.replay.rejected.rewrite", and_another)
    assert deploy.platform.rejected.replay(deploy.name).snapshot_id is None, "it tried again, and nothing was left"
    deploy.platform.repair(deploy.name)
    deploy.check(bad)


def test_what_another_writer_took_away_is_a_conflict(deploy: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    spoiled(deploy, events(1, 2, 20), "bad.json")
    rejected = deploy.platform.rejected._rejected

    def and_another(*arguments: object) -> Rewritten:
        done = rewrite(*arguments)  # type: ignore[arg-type]
        monkeypatch.setattr("dedup_platform.replay.rejected.rewrite", rewrite)
        rejected.replay(deploy.stream, Choice())
        return done

    monkeypatch.setattr("dedup_platform.replay.rejected.rewrite", and_another)
    with pytest.raises(ConflictError, match="another writer replaced its files"):
        rejected.replay(deploy.stream, Choice())


def test_rows_that_do_not_balance_are_not_published(deploy: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    spoiled(deploy, events(1, 2, 20), "bad.json")
    heads = deploy.heads()

    def forgetful(*arguments: object) -> Rewritten:
        done = rewrite(*arguments)  # type: ignore[arg-type]
        return Rewritten(done.removed, done.added[1:], done.counts)

    with monkeypatch.context() as patch:
        patch.setattr("dedup_platform.replay.rejected.rewrite", forgetful)
        with pytest.raises(ConservationError, match=r"20 rows would be \d+\. Nothing was published"):
            deploy.platform.rejected.replay(deploy.name)
    assert deploy.heads() == heads
    assert deploy.platform.rejected.replay(deploy.name).accepted == 20


def test_records_that_were_rejected_before_a_change_of_buckets_come_back_after_it(deploy: Deployment) -> None:
    good = deploy.deliver(*events(0, 10, 20), file="good.json")
    bad = spoiled(deploy, events(1, 10, 20), "bad.json")
    deploy.platform.change_buckets(deploy.name, 4)
    deploy.right = deploy.right.replace("buckets: 2", "buckets: 4")
    deploy.put_right()
    outcome = deploy.platform.rejected.replay(deploy.name)
    assert outcome.accepted == 20
    assert {cell.bucket for cell in outcome.cells} == {0, 1, 2, 3}
    deploy.platform.repair(deploy.name)
    deploy.check([*good, *bad])


def test_other_buckets_meanwhile_cost_a_second_decoding(deploy: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of rejected records stay what they are then, so that they are there does not tell."""
    bad = spoiled(deploy, events(1, 10, 20), "bad.json")
    good = deploy.deliver(*events(0, 2, 4), file="good.json")

    def and_other_buckets(*arguments: object) -> Rewritten:
        done = rewrite(*arguments)  # type: ignore[arg-type]
        monkeypatch.setattr("dedup_platform.replay.rejected.rewrite", rewrite)
        deploy.platform.change_buckets(deploy.name, 4)
        return done

    monkeypatch.setattr("dedup_platform.replay.rejected.rewrite", and_other_buckets)
    deploy.say(deploy.right.replace("buckets: 2", "buckets: 0"))
    assert {cell.bucket for cell in deploy.platform.rejected.replay(deploy.name).cells} == {0, 1, 2, 3}
    deploy.platform.repair(deploy.name)
    deploy.check([*bad, *good])


def test_nothing_was_taken_in_yet(deploy: Deployment) -> None:
    platform, name = deploy.platform, deploy.name
    assert platform.rejected.replay(name).snapshot_id is None
    assert platform.rejected.drop(name).snapshot_id is None
    assert platform.rejected.redecode(name, [1]).snapshot_id is None
    assert platform.rejected.reasons(name) == []
    assert platform.rejected.first(name) == []
    assert platform.rejected.count(name) == 0
    assert platform.rejected.newest_batch(name) is None


def test_facts_are_the_same_when_the_control_database_is_lost(deploy: Deployment, spark: SparkSession) -> None:
    good = deploy.deliver(*events(0, 2, 4), file="good.json")
    bad = spoiled(deploy, events(1, 2, 4), "bad.json")
    deploy.platform.rejected.replay(deploy.name)
    stale = deploy.stale()
    (deploy.platform.settings.home / "control.db").unlink()
    deploy.platform = temporary_platform(
        deploy.platform.settings.home, deploy.stream, spark, deploy.platform.clock, in_process=True
    )
    assert deploy.stale() == stale
    assert deploy.platform.status(deploy.name).records_read == len(good) + len(bad)
    deploy.platform.repair(deploy.name)
    deploy.check([*good, *bad])
    assert deploy.platform.clock() == NOW
