"""Rows and columns that a run shows: which they are, how much of them, and that a hostile one stays a text."""

import json
import os
import shlex
import subprocess
from typing import Any

import dagster as dg
import pytest
from typer.testing import CliRunner

from dedup_platform import cli, tables
from dedup_platform.escapes import one_line
from dedup_platform.orchestration import previews
from dedup_platform.orchestration.lineage import column_lineage
from dedup_platform.platform import Platform
from dedup_platform.platform.samples import FEW
from dedup_platform.tables import RAW_EVENTS, REJECTED_EVENTS, SESSIONS
from dedup_platform_tests.orchestration.conftest import Deployment, click, numbers

DAY, NEXT = "2024-03-01", "2024-03-02"
DERIVED = (tables.DUPLICATE_EVENTS, *tables.DERIVED)
HOSTILE = '<script>alert(1)</script> [x](javascript:alert(1)) `|` \x1b[2J \u202e {"password": "hunter2", '


def shown(result: dg.ExecuteInProcessResult, table: str, name: str) -> list[dict[str, Any]]:
    """The rows of a preview in the newest event of a table, which is the one that the UI shows."""
    [*_, newest] = numbers(result, table).values()
    found = newest[name]
    assert isinstance(found, dg.TableMetadataValue)
    return [dict(record.data) for record in found.records]


def deliver_lines(deploy: Deployment, name: str, *lines: str) -> None:
    path = deploy.stream.files.root / name
    path.write_text("".join(f"{line}\n" for line in lines))
    os.utime(path, (1.6e9, 1.6e9))


def test_sessions_that_a_commit_changed_are_shown_and_no_others(deploy: Deployment) -> None:
    entities = [f"e{number}" for number in range(8)]
    deploy.deliver("first.json", *(click(entity, f"{DAY}T10:00") for entity in entities))
    first = shown(deploy.ingest(), SESSIONS, "changed_sessions")
    assert len(first) == FEW
    assert {each["change"] for each in first} == {"new"}

    deploy.deliver("more.json", click("e3", f"{DAY}T10:10"), click("e9", f"{DAY}T12:00"))
    # Which cell is the smallest, and so comes first, is no matter of this test.
    second = sorted(shown(deploy.ingest(), SESSIONS, "changed_sessions"), key=lambda each: each["change"])
    assert [(each["change"], each["entity_id"], each["event_count"]) for each in second] == [
        ("changed", "e3", 2),
        ("new", "e9", 1),
    ]
    assert (second[0]["started_at"], second[0]["ended_at"]) == (f"{DAY} 10:00:00", f"{DAY} 10:10:00")


def test_of_each_reason_a_rejected_record_is_shown_and_its_commands_work(deploy: Deployment) -> None:
    never = '{"id": "x", "entity": "a", "happened": "never", "arrived": "2024-03-01"}'
    deliver_lines(deploy, "it's [1].json", *["no json"] * 9, never)
    records = shown(deploy.ingest(), REJECTED_EVENTS, "rejected_records")
    assert [each["reason"] for each in records[:2]] == ["malformed_record", "unreadable_event_time"]
    assert [each["offset"] for each in records] == [0, 9, 1, 2, 3]
    environment = {
        "DEDUP_PLATFORM_HOME": str(deploy.platform.settings.home),
        "DEDUP_PLATFORM_STREAMS": str(deploy.stream.origin),
    }
    for command in (records[1]["show"], records[1]["replay"]):
        _, *words = shlex.split(command)
        answer = CliRunner().invoke(cli.app, words, env=environment)
        assert answer.exit_code == 0, answer.output
        assert "never" in answer.output or "Nothing changed" in answer.output


def test_a_hostile_record_is_a_short_text_without_secrets(deploy: Deployment) -> None:
    deliver_lines(deploy, "-a\u202e<b>\n.json", HOSTILE, "x" * 100_000, HOSTILE, "y" * 100_000, HOSTILE)
    result = deploy.ingest()
    records = shown(result, REJECTED_EVENTS, "rejected_records")
    assert len(records) == FEW
    events = (each.materialization for each in result.get_asset_materialization_events())
    [*_, newest] = [each for each in events if each.asset_key.path[-1] == REJECTED_EVENTS]
    assert not any(isinstance(value, dg.MarkdownMetadataValue) for value in newest.metadata.values())
    assert len(dg.serialize_value(newest.metadata["rejected_records"])) < 8_000  # type: ignore[arg-type]
    told = json.dumps(records, ensure_ascii=False)
    assert "hunter2" not in told
    assert "\u202e" not in told
    assert "\\x1b[2J" in records[0]["payload begins"]
    assert all(each["payload begins"].isprintable() and len(each["payload begins"]) <= 80 for each in records)
    # Pasted into a shell it lists, and does nothing else.
    words = subprocess.run(
        ["bash", "-c", f"dedup-platform() {{ printf '%s\\n' \"$@\"; }}; {records[0]['show']}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert words == ["rejected", "list", deploy.stream.name, "--source=-a?<b>?.json"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"user": "a", "api_key": "k1", "n": 1}', '{"user": "a", "api_key": ***, "n": 1}'),
        ("a=1&access-token=t1&b=2", "a=1&access-token=***&b=2"),
        ("Authorization: Bearer t1 and more", "Authorization: *** and more"),
        ('{\\"password\\": \\"p1\\"}', '{\\\\"password\\\\": ***}'),
        ("passage: 1", "passage: 1"),
    ],
)
def test_what_is_named_like_a_secret_is_not_shown(text: str, told: str) -> None:
    assert previews.safe(text) == one_line(told).replace("\\\\", "\\")


def test_a_preview_that_fails_fails_no_run_and_a_setting_leaves_all_out(deploy: Deployment) -> None:
    deliver_lines(deploy, "broken.json", "no json")
    deploy.ingest()
    newest = deploy.platform.rejected.newest_batch(deploy.stream.name)
    assert newest is not None
    said: list[str] = []

    class Log:
        warning = said.append

    class Context:
        log = Log

    def told(platform: Platform, stream: Any) -> previews.Preview:
        return previews.of_rejected(Context, platform, stream, [newest])  # type: ignore[arg-type]

    assert told(deploy.platform, deploy.stream)
    assert told(deploy.platform, deploy.stream.model_copy(update={"name": "another"})) == {}
    assert "no row can be shown" in said[0]
    quiet = deploy.platform.settings.model_copy(update={"previews": False})
    assert told(Platform(quiet, deploy.platform.streams, deploy.platform.lake.spark, deploy.clock), deploy.stream) == {}


def test_every_column_of_a_derived_table_comes_from_columns_that_its_input_has(deploy: Deployment) -> None:
    deploy.deliver("first.json", click("a", f"{DAY}T10:00"), click("a", f"{NEXT}T10:00"))
    result = deploy.materialize(RAW_EVENTS, *DERIVED, partitions=(DAY, NEXT))
    again = deploy.materialize(RAW_EVENTS, *DERIVED, partitions=(DAY, NEXT))
    for table in DERIVED:
        [*_, newest] = numbers(result, table).values()
        lineage = newest["dagster/column_lineage"]
        assert isinstance(lineage, dg.TableColumnLineage)
        assert [*numbers(again, table).values()][-1]["dagster/column_lineage"] == lineage
        assert set(lineage.deps_by_column) == set(tables.column_names(deploy.stream, table))
        above = tables.INPUT_OF.get(table, RAW_EVENTS)
        for deps in lineage.deps_by_column.values():
            assert deps
            for each in deps:
                assert each.asset_key == deploy.key(above)
                assert each.column_name in tables.column_names(deploy.stream, above)
    assert column_lineage(deploy.stream, RAW_EVENTS) == {}


def test_the_numbers_that_matter_first_are_told_of_every_partition(deploy: Deployment) -> None:
    """The five of docs/figures.md, whether anything changed or not; and rows by the names that Dagster knows."""
    lines = [click("a", f"{DAY}T10:00"), click("a", f"{DAY}T10:00", f"{DAY}T11:00"), click("b", f"{NEXT}T10:00")]
    deploy.deliver("first.json", *lines)
    deliver_lines(deploy, "broken.json", "no json")
    empty = "2024-03-03"
    first = deploy.materialize(RAW_EVENTS, *DERIVED, partitions=(DAY, empty))
    again = deploy.materialize(RAW_EVENTS, *DERIVED, partitions=(DAY, empty))
    for result in (first, again):
        told = {table: numbers(result, table) for table in (RAW_EVENTS, tables.DEDUPLICATED_EVENTS, SESSIONS)}
        assert [told[RAW_EVENTS][day]["rows"] for day in (DAY, NEXT, empty)] == [2, 1, 0]
        events = told[tables.DEDUPLICATED_EVENTS]
        assert [(events[day]["late_rows"], events[day]["duplicates"]) for day in (DAY, NEXT, empty)] == [
            (0, 1),
            (0, 0),
            (0, 0),
        ]
        assert [told[SESSIONS][day]["rows"] for day in (DAY, NEXT, empty)] == [1, 1, 0]
        assert [told[SESSIONS][day]["dagster/partition_row_count"] for day in (DAY, NEXT, empty)] == [1, 1, 0]
        assert told[SESSIONS][DAY]["dagster/row_count"] == 2
    assert numbers(first, REJECTED_EVENTS)[None]["total"] == 1
