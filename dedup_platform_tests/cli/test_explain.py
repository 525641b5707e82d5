"""`explain` on the command line: what it prints, and with which runs."""

import json
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from typer.testing import CliRunner, Result

from dedup_platform import cli
from dedup_platform.orchestration.embedded import make_dagster_home, open_instance
from dedup_platform.orchestration.metadata import asset_key
from dedup_platform.orchestration.runs_behind import runs_behind
from dedup_platform.settings import Settings
from dedup_platform.tables import SESSIONS
from dedup_platform_tests.changes.test_feeds import TEN
from dedup_platform_tests.explain.histories import Explained
from dedup_platform_tests.lives.replaced import replaced


@pytest.fixture
def explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Explained]:
    with replaced(has_spark=False):
        made = Explained(tmp_path)
        monkeypatch.setenv("DEDUP_PLATFORM_HOME", str(made.home))
        monkeypatch.setenv("DEDUP_PLATFORM_STREAMS", str(made.stream.origin))
        yield made


def ask(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(cli.app, ["explain", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_a_sentence_and_numbered_steps_of_80_columns(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0), explained.event("a", 5), explained.event("\x1b[31m", 20))
    printed = ask("event", "events", "a", "--at", "2024-01-02").stdout
    sentence, rest = printed.split("\n\n", 1)
    assert sentence.startswith("Event a of e was delivered in 2 records: 1 kept, 1 conflict.")
    assert [line[:3] for line in rest.splitlines() if line[:2].strip()] == [" 1.", " 2.", " 3.", " 4."]
    assert all(len(line) <= 80 for line in printed.splitlines())
    name = explained.sessions()[0]["session_id"]
    printed = ask("session", "events", name, "--at", "2024-01-02T10:00").stdout
    assert printed.startswith(f"Session {name} of e has 2 events,")
    assert "\x1b" not in printed


def test_json(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0), explained.event("a", 0, None))
    assert len(json.loads(ask("event", "events", "a", "--json").stdout)["events"]) == 2
    [event] = json.loads(ask("event", "events", "a", "--entity", "", "--json").stdout)["events"]
    assert event["key"]["entity_id"] is None
    assert json.loads(ask("session", "events", "nothing", "--json").stdout)["found"] is False


@pytest.mark.usefixtures("explained")
@pytest.mark.parametrize("when", ["yesterday", "2024-13-01"])
def test_a_time_must_be_one(when: str) -> None:
    assert f"{when!r} is no time and no partition" in ask("event", "events", "a", "--at", when, code=2).output


def test_runs_are_those_that_told_of_the_commits(explained: Explained) -> None:
    explained.take_in(explained.event("a", 0))
    [row] = explained.sessions()
    answer = explained.session_answer(row["session_id"])
    assert answer.session is not None
    assert answer.session.commit is not None
    told = {"snapshot_id": str(answer.session.commit.snapshot_id)}

    @dg.op
    def tell(context: dg.OpExecutionContext) -> None:
        key = asset_key(explained.stream, SESSIONS)
        context.log_event(dg.AssetMaterialization(key, partition="2024-01-02", metadata={"changed": False}))
        context.log_event(dg.AssetMaterialization(key, partition="2024-01-02", metadata=told))

    @dg.job
    def work() -> None:
        tell()

    settings = Settings(home=explained.home)
    day = {SESSIONS: [explained.stream.partitions.ordinal(TEN)]}
    assert runs_behind(settings, explained.stream, day) == {}, "there is no Dagster"
    assert not settings.dagster_home.exists()
    with open_instance(settings) as instance:
        run_id = work.execute_in_process(instance=instance).run_id
    assert runs_behind(settings, explained.stream, day) == {answer.session.commit.snapshot_id: run_id}
    value = json.loads(ask("session", "events", row["session_id"], "--json").stdout)
    assert (value["session"]["commit"]["run_id"], value["changes"][0]["run_id"]) == (run_id, run_id)
    assert run_id in ask("session", "events", row["session_id"]).stdout


def test_dagster_out_of_reach_is_no_failure(explained: Explained, monkeypatch: pytest.MonkeyPatch) -> None:
    explained.take_in(explained.event("a", 0))
    monkeypatch.setenv("DEDUP_PLATFORM_DAGSTER_URI", "postgresql+psycopg2://nobody@127.0.0.1:1/none")
    make_dagster_home(Settings(home=explained.home))
    assert "Event a of e" in ask("event", "events", "a").stdout
