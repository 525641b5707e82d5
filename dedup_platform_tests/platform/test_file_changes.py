"""What a change of a stream file does is told: old and new value, what it concerns, and the command that comes next."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from dedup_platform.cli.file_changes import changes_value, print_changes_of_file
from dedup_platform.lake.definitions import PROPERTY, Known, known_from, remembered, text_of
from dedup_platform.platform import Platform
from dedup_platform.platform.file_changes import FileChanges
from dedup_platform.stream import load_stream
from dedup_platform.stream.deciding import decides, deciding
from dedup_platform.testing import HeldClock, lay_out, light_platform, make_stream, record, utc, write_batch

NOW = utc("2024-06-01")
DAYS = ("2024-03-01", "2024-03-02", "2024-03-03")

Say = Callable[..., Platform]


@pytest.fixture
def say(tmp_path: Path) -> Say:
    """Opens the platform with a stream file in which some texts are others; it has taken in nothing at first."""
    stream = make_stream(tmp_path)
    right = stream.origin.read_text()

    def platform(*replaced: tuple[str, str]) -> Platform:
        text = right
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        stream.origin.write_text(text)
        return light_platform(tmp_path / "home", load_stream(stream.origin), HeldClock(NOW))

    return platform


def deliver(platform: Platform, file: str, *days: str) -> None:
    [stream] = platform.streams.values()
    records = [record("a", day, utc(f"{day}T10:00")) for day in days]
    write_batch(stream, lay_out(records, file), utc("2024-05-01"))
    platform.ingest(stream.name)
    platform.repair(stream.name)


def changes(platform: Platform) -> FileChanges:
    [name] = platform.streams
    return platform.stream_file.changes(name, platform.plan(name), platform.rejected.count(name))


def told(platform: Platform) -> str:
    [stream] = platform.streams.values()
    printed = StringIO()
    print_changes_of_file(Console(file=printed, width=1000), stream, changes(platform))
    return printed.getvalue()


WRONG_TIME = ("event_time: happened", "event_time: {field: happened, format: epoch_ms}")
WRONG_ENTITY = ("entity_id: entity", "entity_id: id")
SHORTER = ("timeout: 30m", "timeout: 10m")


def test_nothing_is_told_where_nothing_changed(say: Say) -> None:
    platform = say()
    assert changes(platform) == FileChanges()
    deliver(platform, "a.json", *DAYS)
    assert changes(platform) == FileChanges()
    assert told(platform) == ""


def test_a_mended_field_names_the_events_that_can_be_decoded_again(say: Say) -> None:
    deliver(say(WRONG_ENTITY), "a.json", *DAYS)
    platform = say()
    [stream] = platform.streams.values()
    redecode = f"`dedup-platform redecode {stream.name} --partitions 2024-03-01..2024-03-03`"
    before = told(platform)
    assert f'{stream.name}: the stream file changed: fields.entity_id: "id" -> "entity"' in before
    assert f"3 records were taken in before, and what became of them stays; {redecode} and a run" in before

    # It stays so when further records are taken in, and when some of the partitions are decoded again.
    deliver(platform, "b.json", "2024-03-03", "2024-03-04")
    assert changes(platform).records == 3
    ordinals = [stream.partitions.ordinal_of(day) for day in (*DAYS, "2024-03-04")]
    platform.rejected.redecode(stream.name, ordinals[:1])
    assert changes(platform).records == 3
    platform.rejected.redecode(stream.name, ordinals)
    platform.repair(stream.name)
    assert changes(platform) == FileChanges()


def test_of_rejected_records_it_is_told_how_many_would_be_events_by_now(say: Say) -> None:
    deliver(say(WRONG_TIME), "a.json", *DAYS)
    still_wrong = say(WRONG_TIME)
    assert changes(still_wrong).trial.tried == 3
    assert "3 records are rejected. `dedup-platform rejected list " in told(still_wrong)
    platform = say()
    [stream] = platform.streams.values()
    replay = f"`dedup-platform rejected replay {stream.name}`"
    assert f"3 records are rejected, and 3 would be events by now: {replay} takes them in" in told(platform)
    assert "none of them is an event" in told(platform)
    value = changes_value(stream, changes(platform))
    assert value["rejected"] == {"records": 3, "tried": 3, "events": 3}
    assert value["changes"][0]["old"] == '{"field": "happened", "format": "epoch_ms"}'
    platform.rejected.replay(stream.name)
    assert changes(platform).rejected == 0


def test_another_timeout_names_the_cells_that_a_run_rebuilds(say: Say) -> None:
    deliver(say(), "a.json", *DAYS)
    platform = say(SHORTER)
    [stream] = platform.streams.values()
    before = told(platform)
    assert f'{stream.name}: the stream file changed: sessions.timeout: "1800s" -> "600s"' in before
    assert "makes 6 cells stale (2024-03-01 … 2024-03-03); `dedup-platform run` rebuilds them" in before
    assert "taken in before" not in before
    # A run that dies after its first step has told the table of the new stream file already.
    platform.recompute_stale(stream.name, "session_fragments")
    assert '"1800s" -> "600s"' in told(platform)
    platform.repair(stream.name)
    assert changes(platform) == FileChanges()


def test_what_was_said_for_a_while_and_taken_back_concerns_what_came_meanwhile(say: Say) -> None:
    deliver(say(), "a.json", "2024-03-01")
    deliver(say(WRONG_ENTITY), "b.json", "2024-03-02", "2024-03-03")
    deliver(say(), "c.json", "2024-03-04")
    platform = say()
    assert changes(platform).records == 2
    assert [(each.old, each.new) for each in changes(platform).changes] == [('"id"', '"entity"')]


def test_a_stream_file_by_which_nothing_was_taken_in_is_forgotten() -> None:
    first, second, third = ({"fields.entity_id": each} for each in "abc")
    known = remembered([], first, 7)
    assert known == [Known(first, 0)]
    known = remembered(known, second, 10)
    assert known == [Known(first, 0), Known(second, 10)]
    assert remembered(known, third, 10) == [Known(first, 0), Known(third, 10)]
    assert remembered(known, first, 10) == [Known(first, 0)]
    assert remembered([Known(first, 0)], second, 0) == [Known(second, 0)]


def test_what_is_remembered_is_bounded_and_may_be_damaged() -> None:
    known: list[Known] = []
    for number in range(20):
        known = remembered(known, {"fields.entity_id": str(number)}, number)
    assert [each.says["fields.entity_id"] for each in known] == ["15", "16", "17", "18", "19"]
    assert known_from({PROPERTY: text_of(known)}) == known
    assert known_from({PROPERTY: text_of([Known({"fields.entity_id": "x" * 40_000}, 0)])}) == []
    for text in ("", "[", "[1]", '{"says": 1}', '[{"says": {}, "records": "many"}]'):
        assert known_from({PROPERTY: text}) == []


def test_how_a_source_is_reached_decides_nothing(tmp_path: Path) -> None:
    stream = make_stream(tmp_path)
    elsewhere = stream.model_copy(update={"source": stream.source.model_copy(update={"path": "/elsewhere/*.json"})})
    assert deciding(elsewhere) == deciding(stream)
    assert {decides(key) for key in deciding(stream)} == {"decoding", "rules"}
    assert not any("password" in text or "/" in text for text in deciding(stream).values())
