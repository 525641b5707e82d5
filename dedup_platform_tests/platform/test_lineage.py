"""What OpenLineage is told of commits, by its own transports, and that whoever commits never suffers for it."""

import json
import logging
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fastjsonschema
import pytest
import sqlalchemy as sa
from openlineage.client.event_v2 import RunEvent

from dedup_platform.errors import SettingsError
from dedup_platform.ledger import told
from dedup_platform.platform import Platform, lineage
from dedup_platform.platform.lineage_events import JOBS, REPLAY, event
from dedup_platform.settings import Settings, load_settings
from dedup_platform.stream import KafkaSource, Stream
from dedup_platform.testing import lay_out, light_platform, make_stream, record, utc, write_batch
from dedup_platform_tests.platform.openlineage_rules import RUN_EVENT
from dedup_platform_tests.servers import webhook
from dedup_platform_tests.test_docs import PROJECT, fenced, names, rows

NOON = utc("2024-03-01T12:00")
validate = fastjsonschema.compile(RUN_EVENT)
Told = list[dict[str, Any]]


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return make_stream(tmp_path, "clicks")


@pytest.fixture
def platform(tmp_path: Path, stream: Stream) -> Platform:
    return light_platform(tmp_path / "home", stream, lambda: NOON + timedelta(days=2000), lineage_namespace="here")


@pytest.fixture
def told_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    say(monkeypatch, type="file", log_file_path=str(tmp_path / "told.jsonl"), append="true")
    return tmp_path / "told.jsonl"


def say(monkeypatch: pytest.MonkeyPatch, **transport: str) -> None:
    """Configure OpenLineage's transport, as its users do."""
    for name, value in transport.items():
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{name.upper()}", value)


def events_in(file: Path) -> Told:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


def take_in(platform: Platform, stream: Stream, name: str, *minutes: int) -> None:
    events = [record("ada", f"{name}{minute}", NOON + timedelta(minutes=minute)) for minute in minutes]
    write_batch(stream, lay_out(events, f"{name}.json"))
    assert [commit.rows_written for commit in platform.ingest("clicks")] == [len(minutes)]


def all_of_it(platform: Platform, stream: Stream) -> None:
    take_in(platform, stream, "first", 0, 1, 2)
    platform.repair("clicks")
    platform.publish_changes("clicks")


def jobs(events: Told) -> list[str]:
    return [each["job"]["name"] for each in events]


def test_each_commit_is_told_with_what_it_read_and_wrote(
    platform: Platform, stream: Stream, told_file: Path, tmp_path: Path
) -> None:
    all_of_it(platform, stream)
    found = {each["job"]["name"]: each for each in events_in(told_file)}
    assert len(found) == len(events_in(told_file))
    warehouse = str(tmp_path / "home" / "warehouse" / "clicks")
    edges = {
        job: (each["inputs"][0]["name"], [output["name"].removeprefix(f"{warehouse}/") for output in each["outputs"]])
        for job, each in found.items()
    }
    assert edges == {
        "clicks.ingest": (str(stream.files.root), ["raw_events"]),
        "clicks.deduplicate": (f"{warehouse}/raw_events", ["deduplicated_events"]),
        "clicks.fragments": (f"{warehouse}/deduplicated_events", ["session_fragments"]),
        "clicks.sessions": (f"{warehouse}/session_fragments", ["sessions"]),
        "clicks.publish_events": (f"{warehouse}/deduplicated_events", ["event_changes"]),
        "clicks.publish_sessions": (f"{warehouse}/sessions", ["session_changes"]),
    }
    rows = {job: each["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] for job, each in found.items()}
    assert rows["clicks.ingest"] == rows["clicks.deduplicate"] == 3
    assert rows["clicks.sessions"] == 1
    for each in found.values():
        validate(each)
        assert each["job"]["namespace"] == "here"
        # What reads a table says which snapshot of it: one that another commit says it wrote.
        version = each["inputs"][0].get("facets", {}).get("version")
        written = {other["outputs"][0]["facets"]["version"]["datasetVersion"] for other in found.values()}
        assert not version or version["datasetVersion"] in written
    sessions = found["clicks.sessions"]["outputs"][0]
    fields = {field["name"]: field["type"] for field in sessions["facets"]["schema"]["fields"]}
    assert fields["session_id"] == "string"
    assert fields["started_at"] == "timestamptz"
    assert sessions["facets"]["symlinks"]["identifiers"] == [
        {"namespace": f"file://{tmp_path}/home/warehouse", "name": "clicks.sessions", "type": "TABLE"}
    ]


def test_a_commit_is_told_once_and_a_late_one_tells_what_it_rewrote(
    platform: Platform, stream: Stream, told_file: Path
) -> None:
    all_of_it(platform, stream)
    before = len(events_in(told_file))
    platform.repair("clicks")
    platform.publish_changes("clicks")
    assert len(events_in(told_file)) == before
    take_in(platform, stream, "late", 3)
    assert jobs(events_in(told_file)[before:]) == ["clicks.ingest"]
    platform.repair("clicks")
    assert jobs(events_in(told_file)[before + 1 :]) == ["clicks.deduplicate", "clicks.fragments", "clicks.sessions"]


def test_copies_and_replays_are_jobs_of_their_own(platform: Platform, stream: Stream, told_file: Path) -> None:
    take_in(platform, stream, "first", 0)
    write_batch(stream, lay_out([record("ada", "first0", NOON)], "copy.json"))
    (stream.files.root / "bad.json").write_text("{no json")
    platform.ingest("clicks")
    platform.rejected.drop("clicks")
    platform.repair("clicks")
    found = events_in(told_file)
    assert {"clicks.duplicates", "clicks.replay"} <= {*jobs(found)}
    for each in found:
        validate(each)


def test_who_died_before_the_note_has_it_told_again_as_the_same_run(
    platform: Platform, stream: Stream, told_file: Path
) -> None:
    with patch.object(told.ToldCommits, "note", side_effect=SystemExit), pytest.raises(SystemExit):
        take_in(platform, stream, "first", 0)
    other = light_platform(platform.settings.home, stream, platform.clock, lineage_namespace="here")
    other.repair("clicks")
    first, again, *_ = [each for each in events_in(told_file) if each["job"]["name"] == "clicks.ingest"]
    assert first == again
    with other.ledger.engine.begin() as connection:
        connection.execute(sa.delete(told.TOLD))
    other.repair("clicks")
    runs = [each["run"]["runId"] for each in events_in(told_file)]
    assert len(runs) == 2 * len(set(runs)) + 1, "a lost database tells all of it once more"


def test_what_was_not_told_is_told_when_somebody_listens(
    platform: Platform,
    stream: Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    say(monkeypatch, type="http", url="http://user:geheim@127.0.0.1:1")
    with caplog.at_level(logging.INFO):
        begun = time.monotonic()
        all_of_it(platform, stream)
        assert time.monotonic() - begun < lineage.SECONDS + 10
    said = [entry for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert [entry.name for entry in said] == [lineage.__name__], "once, and by nobody else"
    assert "geheim" not in caplog.text
    say(monkeypatch, type="file", log_file_path=str(tmp_path / "told.jsonl"), append="true")
    light_platform(platform.settings.home, stream, platform.clock, lineage_namespace="here").repair("clicks")
    assert jobs(events_in(tmp_path / "told.jsonl")) == [
        "clicks.ingest",
        "clicks.deduplicate",
        "clicks.fragments",
        "clicks.sessions",
        "clicks.publish_events",
        "clicks.publish_sessions",
    ]


def test_a_receiver_gets_them_and_one_that_takes_its_time_is_left(
    platform: Platform, stream: Stream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with webhook(201) as (address, got):
        say(monkeypatch, type="http", url=address.rpartition("/")[0])
        take_in(platform, stream, "first", 0)
    assert [told["job"]["name"] for _, told in got] == ["clicks.ingest"]
    with webhook(seconds=5) as (address, asked), patch.object(lineage, "SECONDS", 0.3):
        say(monkeypatch, type="http", url=address.rpartition("/")[0])
        platform.lineage.tell(stream)
        assert not asked, "nothing is new"
        take_in(platform, stream, "second", 1)
        begun = time.monotonic()
        platform.repair("clicks")
        assert platform.lineage._paused_until > begun
        assert time.monotonic() - begun < 4
        assert lineage.TOO_SLOW in caplog.text


def test_without_a_receiver_nothing_is_printed(
    platform: Platform,
    stream: Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    take_in(platform, stream, "first", 0)
    assert "OPENLINEAGE_URL" in caplog.text
    assert "clicks.ingest" not in caplog.text


def test_without_the_setting_nothing_is_told(tmp_path: Path, stream: Stream, told_file: Path) -> None:
    all_of_it(light_platform(tmp_path / "home", stream, lambda: NOON + timedelta(days=2000)), stream)
    assert events_in(told_file) == []
    with pytest.raises(SettingsError, match="DEDUP_PLATFORM_LINEAGE_NAMESPACE"):
        load_settings(lineage_namespace="")


def test_a_compaction_or_a_foreign_commit_is_not_told(platform: Platform, stream: Stream, told_file: Path) -> None:
    all_of_it(platform, stream)
    before = len(events_in(told_file))
    table = platform.lake.catalog.load_table("clicks", "sessions")
    table.append(table.scan().to_arrow())
    platform.lineage.tell(stream)
    assert len(events_in(told_file)) == before


def test_the_page_tells_it_as_it_is(
    platform: Platform, stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told_jobs = {names(row[0])[0]: names(row[2])[0] for row in rows("docs/lineage.md", "What is told")[: len(JOBS) + 1]}
    assert told_jobs == {job: table for table, job in JOBS.items()} | {REPLAY: "raw_events"}
    page = PROJECT / "docs" / "lineage.md"
    [settings] = fenced(page, "sh")
    for line in settings.splitlines():
        monkeypatch.setenv(*line.removeprefix("export ").split("="))
    assert load_settings().lineage_namespace == "dedup_platform"
    [transport] = fenced(page, "yaml")
    for name in ("TYPE", "URL"):
        monkeypatch.delenv(f"OPENLINEAGE__TRANSPORT__{name}")
    monkeypatch.chdir(tmp_path)
    Path("openlineage.yml").write_text(transport)
    take_in(platform, stream, "first", 0)
    assert jobs(events_in(tmp_path / "lineage.jsonl")) == ["clicks.ingest"]


def told_of(settings: Settings, platform: Platform, stream: Stream) -> RunEvent:
    raw = platform.lake.catalog.load_table("clicks", "raw_events")
    newest = raw.current_snapshot()
    assert newest
    return event(settings, stream, "raw_events", newest, {"raw_events": raw})


def test_no_secret_is_told(platform: Platform, stream: Stream) -> None:
    take_in(platform, stream, "first", 0)
    topic = KafkaSource(kind="kafka", brokers="one:9092,two:9092", topic="visits", format="json")
    changed = stream.model_copy(update={"source": topic})
    settings = load_settings(
        home=platform.settings.home,
        lineage_namespace="here",
        catalog_uri="postgresql://lake:geheim@db/lake",
        control_uri="postgresql://lake:geheim@db/lake",
        kafka={"sasl.password": "geheim"},
    )
    found = told_of(settings, platform, changed)
    assert found.inputs
    assert (found.inputs[0].namespace, found.inputs[0].name) == ("kafka://one:9092", "visits")
    assert "geheim" not in repr(found)


@pytest.mark.parametrize(
    ("uri", "namespace", "name"),
    [
        ("https://rest.example:8181/api", "https://rest.example:8181/api", "clicks.raw_events"),
        ("glue://eu-west-1/123456789012", "arn:aws:glue:eu-west-1:123456789012", "table/clicks/raw_events"),
    ],
)
def test_symlinks_name_the_table_in_its_catalog(
    uri: str, namespace: str, name: str, platform: Platform, stream: Stream
) -> None:
    take_in(platform, stream, "first", 0)
    warehouse = {"warehouse": "s3://bucket/lake"} if uri.startswith("glue") else {}
    settings = load_settings(home=platform.settings.home, lineage_namespace="here", catalog_uri=uri, **warehouse)
    found = told_of(settings, platform, stream)
    assert found.outputs
    assert found.outputs[0].facets
    [identifier] = found.outputs[0].facets["symlinks"].identifiers  # type: ignore[attr-defined]
    assert (identifier.namespace, identifier.name) == (namespace, name)
