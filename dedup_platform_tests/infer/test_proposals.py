"""From files as others write them to the stream file that is proposed, and from that to the right sessions."""

import gzip
import json
import shutil
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from dedup_platform.errors import InferenceError
from dedup_platform.infer import Choose, Layout, Option, Sampled, proposed, stream_text
from dedup_platform.infer.place import name_of, pattern_of
from dedup_platform.platform.sampling import sample_of
from dedup_platform.settings import Settings
from dedup_platform.sources.records import Fields
from dedup_platform.stream import stream_of_text
from dedup_platform.tables import DEDUPLICATED_EVENTS, DUPLICATE_EVENTS, RAW_EVENTS, SESSIONS
from dedup_platform.testing import HeldClock, light_platform, utc
from dedup_platform.testing.comparison import Row, published_rows
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.infer.shop import START, clicks, sessions_in, write_csv, write_segment

NOW, LONG_AFTER = utc("2026-12-01"), utc("2030-01-01")


def likeliest(*_: object) -> tuple[str, ...]:
    return ()


def text_for(folder: Path, place: Path, choose: Choose = likeliest) -> str:
    """The stream file that is proposed for what is at a place."""
    pattern = pattern_of(str(place))
    source = {"kind": "files", "path": pattern}
    sampled = sample_of(Settings(home=folder / "home"), str(place), source)
    proposal = proposed(sampled, choose, NOW)
    return stream_text(name_of(pattern), source | sampled.layout.source, proposal)


def rows_of(folder: Path, text: str) -> dict[str, list[Row]]:
    """The rows that a stream file makes of what is there, which must be those of the oracle."""
    stream = stream_of_text(text, folder / "stream.yaml")
    platform = light_platform(folder / "lake", stream, HeldClock(LONG_AFTER))
    platform.ingest(stream.name)
    platform.repair(stream.name)
    assert wrong_rows(platform, stream.name) == []
    return published_rows(platform, stream.name)


def counts(rows: dict[str, list[Row]]) -> list[int]:
    return [len(rows[table]) for table in (RAW_EVENTS, DEDUPLICATED_EVENTS, DUPLICATE_EVENTS, SESSIONS)]


def test_githubs_archive(tmp_path: Path, data_dir: Path) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    shutil.copy(data_dir / "github_archive/head400.json.gz", folder / "2015-01-01-1.json.gz")
    text = text_for(tmp_path, folder)
    said = yaml.safe_load(text)
    attributes = said["fields"].pop("attributes")
    assert said == {
        "name": "archive",
        "source": {"kind": "files", "path": f"{folder}/*.json.gz", "format": "json"},
        "fields": {"entity_id": "actor.id", "event_id": "id", "event_time": "created_at"},
        "partitions": {"granularity": "day", "start": utc("2014-12-01").date()},
        "sessions": {"timeout": "30m"},
    }
    assert {
        "type": "type",
        "actor_login": "actor.login",
        "repo_name": "repo.name",
        "payload_size": {"field": "payload.size", "type": "long"},
    }.items() <= attributes.items()
    assert "entity_id: actor.id" in text
    assert "# non-null 100 %, repeated 21 %; or actor.login" in text
    assert "    # payload_action: payload.action " in text
    rows = rows_of(tmp_path, text)
    assert counts(rows) == [400, 400, 0, 317]


def test_a_csv_with_local_times_and_spaces_in_its_header(tmp_path: Path) -> None:
    events, visits = clicks()
    (tmp_path / "hits").mkdir()
    write_csv(tmp_path / "hits/march.csv", events)
    asked: dict[str, list[Option]] = {}

    def in_paris(key: str, options: Any) -> tuple[str, ...]:
        asked[key] = list(options)
        return ("Europe/Paris",) if key == "timezone" else ()

    text = text_for(tmp_path, tmp_path / "hits", in_paris)
    assert yaml.safe_load(text) == {
        "name": "hits",
        "source": {
            "kind": "files",
            "path": f"{tmp_path}/hits/*.csv",
            "format": "csv",
            "csv": {"delimiter": ";"},
        },
        "fields": {
            "entity_id": "User Name",
            "event_id": "Hit No",
            "event_time": {"field": " Local Time ", "format": "%d.%m.%Y %H:%M:%S", "timezone": "Europe/Paris"},
            "attributes": {"page_title": "Page Title", "price": {"field": "Price", "type": "decimal(18,4)"}},
        },
        "partitions": {"granularity": "day", "start": utc("2024-03-01").date()},
        "sessions": {"timeout": "30m"},
    }
    assert [each.text for each in asked["timezone"]] == ["UTC"]
    copies = -(-len(events) // 10)
    rows = rows_of(tmp_path, text)
    assert counts(rows) == [len(events) + copies, len(events), copies, visits]
    assert min(row["event_time"] for row in rows[DEDUPLICATED_EVENTS]) == min(each.at for each in events) >= START


def test_a_nested_segment_like_file(tmp_path: Path) -> None:
    events, visits = clicks()
    (tmp_path / "segment").mkdir()
    write_segment(tmp_path / "segment/a.json", events)
    text = text_for(tmp_path, tmp_path / "segment")
    assert yaml.safe_load(text) == {
        "name": "segment",
        "source": {"kind": "files", "path": f"{tmp_path}/segment/*.json", "format": "json", "explode": "batch"},
        "fields": {
            "entity_id": {"first_of": ["userId", "anonymousId"]},
            "event_id": "messageId",
            "event_time": "timestamp",
            "arrival_time": "receivedAt",
            "attributes": {
                "event": "event",
                "original_timestamp": {"field": "originalTimestamp", "type": "timestamp"},
                "properties_revenue": {"field": "properties.revenue", "type": "decimal(18,4)"},
            },
        },
        "partitions": {"granularity": "day", "start": utc("2024-03-01").date()},
        "sessions": {"timeout": "30m"},
    }
    assert "    # page_path: context.page.path " in text
    copies = -(-len(events) // 10)
    assert counts(rows_of(tmp_path, text)) == [len(events) + copies, len(events), copies, visits]


@pytest.mark.parametrize("name", ["时间", "@"])
def test_names_without_words(name: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = [{"user_id": f"u{n % 3}", "id": f"e{n}", name: f"2024-03-01 10:{n:02}:00"} for n in range(60)]
    (tmp_path / "in/a.json").write_text("\n".join(map(json.dumps, lines)))
    said = yaml.safe_load(text_for(tmp_path, tmp_path / "in"))["fields"]
    assert (said["entity_id"], said["event_id"]) == ("user_id", "id")
    assert said["event_time"]["field"] in (name, [name])


def test_a_header_and_no_records_yet(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("id,user,at\n")
    with pytest.raises(InferenceError, match="holds no record yet"):
        text_for(tmp_path, tmp_path / "in")


def test_records_that_are_too_long_to_look_at(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text(json.dumps({"id": "1", "text": "x" * 300_000}) + "\n")
    with pytest.raises(InferenceError, match="could be read; those of more than 256 KiB are left out"):
        text_for(tmp_path, tmp_path / "in")


def test_cloudtrail_as_it_is_delivered(tmp_path: Path, data_dir: Path) -> None:
    """Lists in documents of one long line, and times of arrival that only the names of files tell."""
    folder = tmp_path / "trail"
    folder.mkdir()
    expected = dict[str, list[Any]]()
    for file in sorted((data_dir / "cloudtrail").glob("*.jsonl.gz")):
        calls = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
        for call in calls:
            expected.setdefault(call["source_ip"], []).append(utc(call["event_time"].removesuffix("Z")))
        records = [
            {
                "eventTime": call["event_time"],
                "eventName": call["event_name"],
                "sourceIPAddress": call["source_ip"],
                "eventID": call["event_id"],
            }
            for call in calls
        ]
        document = json.dumps({"Records": records})
        (folder / f"1234_{file.name.removesuffix('.jsonl.gz')}.json.gz").write_bytes(gzip.compress(document.encode()))
    text = text_for(tmp_path, folder)
    said = yaml.safe_load(text)
    assert said["source"]["explode"] == "Records"
    assert said["fields"] == {
        "entity_id": "sourceIPAddress",
        "event_id": "eventID",
        "event_time": "eventTime",
        "arrival_time": {"file_name": "(?<![0-9])([0-9]{8}T[0-9]{4})(?![0-9])", "format": "%Y%m%dT%H%M"},
        "attributes": {"event_name": "eventName"},
    }
    rows = rows_of(tmp_path, text)
    assert counts(rows) == [2900, 2900, 0, sessions_in(expected, timedelta(minutes=30))]
    assert sessions_in(expected, timedelta(minutes=30)) == 16


def test_a_date_and_a_time_in_two_columns(tmp_path: Path, data_dir: Path) -> None:
    text = text_for(tmp_path, data_dir / "edgar_log")
    said = yaml.safe_load(text)["fields"]
    assert (said["entity_id"], said["event_id"]) == ("ip", {"hash": "*"})
    assert said["event_time"] == {"join": ["date", "time"], "with": " ", "timezone": "UTC"}
    assert counts(rows_of(tmp_path, text)) == [431, 431, 0, 114]


def test_an_arrival_in_a_field(tmp_path: Path, data_dir: Path) -> None:
    said = yaml.safe_load(text_for(tmp_path, data_dir / "cloudtrail"))["fields"]
    del said["attributes"]
    assert said == {
        "entity_id": "source_ip",
        "event_id": "event_id",
        "event_time": "event_time",
        "arrival_time": "delivered_at",
    }


def test_online_retail(tmp_path: Path, data_dir: Path) -> None:
    """An invoice's number is no event's: all of its lines have it, at one time."""
    said = yaml.safe_load(text_for(tmp_path, data_dir / "online_retail"))
    assert said["missing_entity"] == "keep"
    fields = said["fields"]
    assert (fields["entity_id"], fields["event_id"]) == ("CustomerID", {"hash": "*"})
    assert fields["event_time"] == {"field": "InvoiceDate", "timezone": "UTC"}
    assert fields["attributes"]["unit_price"] == {"field": "UnitPrice", "type": "decimal(18,4)"}


def text_of(records: Sequence[Fields], choose: Choose = likeliest) -> str:
    """The stream file that is proposed for some records of JSON."""
    same = len(records)
    sampled = Sampled("here", Layout("json"), records, ["a.json"] * same, [LONG_AFTER] * same)
    return stream_text("events", {"kind": "files", "path": "*.json", "format": "json"}, proposed(sampled, choose, NOW))


EVENTS = [{"user": f"u{n % 5}", "at": f"2024-03-01T10:{n:02}:00Z", "page": f"/{n}"} for n in range(60)]


def test_names_and_values_that_mean_harm_are_written_as_what_they_are(tmp_path: Path) -> None:
    """A field's name may end a comment, turn the direction of writing, or look like YAML."""
    names = ["user\nname: evil", "at \u202e #", "id: {", "tag"]
    values = ((f"u{n % 5}", f"2024-03-01T10:{n % 60:02}:00Z", f"{n:032x}", "\x1b[2J") for n in range(200))
    chosen = {"entity": names[:1], "id": names[2:3], "time": names[1:2]}
    records = [dict(zip(names, each, strict=True)) for each in values]
    text = text_of(records, lambda key, _: chosen.get(key, ()))
    assert all(line.isprintable() for line in text.splitlines())
    stream = stream_of_text(text, tmp_path / "stream.yaml")
    assert stream.name == "events"
    assert [stream.fields.entity_id, stream.fields.event_time.field] == names[:2]


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ({"entity": ["usr"]}, "no record of the sample has usr; did you mean user"),
        ({"time": ["page"]}, "page has no times in a format that is known: '/0'"),
        ({"id": ["nothing"]}, "no record of the sample has nothing; the records have: user, at, page"),
    ],
)
def test_what_is_not_there_cannot_be_chosen(choice: dict[str, list[str]], told: str) -> None:
    with pytest.raises(InferenceError, match=told.replace("?", r"\?")):
        text_of(EVENTS, lambda key, _: choice.get(key, ()))


def test_records_without_a_time_or_an_owner_are_left_to_a_person() -> None:
    with pytest.raises(InferenceError, match="no field looks like the time of an event; name one with --time FIELD"):
        text_of([{"user": "ann", "colour": "red"}] * 9)
    with pytest.raises(InferenceError, match="no field looks like whose event it is; name one with --entity FIELD"):
        text_of([{"at": "2024-03-01T10:00:00Z", "colour": each} for each in ("red", "blue")])


def test_files_that_are_older_than_their_events_do_not_tell_when_these_arrived() -> None:
    """Else they would be rejected, as events of the future."""
    sampled = Sampled("here", Layout("json"), EVENTS, ["a.json"] * 60, [utc("2024-02-01")] * 60)
    assert proposed(sampled, likeliest, NOW).arrival.value == "at"


def test_local_times_are_compared_with_those_of_files_in_their_zone() -> None:
    """Read as UTC they would be nine hours later, and ahead of the file."""
    local = [each | {"at": each["at"].removesuffix("Z")} for each in EVENTS]
    sampled = Sampled("here", Layout("json"), local, ["a.json"] * 60, [utc("2024-03-01T02:00")] * 60)
    in_tokyo = proposed(sampled, lambda key, _: ("Asia/Tokyo",) if key == "timezone" else (), NOW).arrival
    assert (in_tokyo.value, in_tokyo.evidence) == (None, "left out: when the file was written")
    as_utc = proposed(sampled, likeliest, NOW).arrival
    assert as_utc.value == {"field": "at", "timezone": "UTC"}


def test_what_several_times_have_in_common_is_no_id_of_an_event() -> None:
    orders = [each | {"order_id": f"{number - (number % 5 == 1)}"} for number, each in enumerate(EVENTS)]
    assert yaml.safe_load(text_of(orders))["fields"]["event_id"] == {"hash": "*"}
    copies = [*orders[::5], *(each | {"order_id": str(number)} for number, each in enumerate(EVENTS))]
    assert yaml.safe_load(text_of(copies))["fields"]["event_id"] == "order_id"
