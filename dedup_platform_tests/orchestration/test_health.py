"""An outage through the real sensors: red where people look, told once, and green again once the source is back."""

from datetime import timedelta
from pathlib import Path

import dagster as dg
from pydantic import SecretStr
from typer.testing import CliRunner

from dedup_platform import cli, tables
from dedup_platform.orchestration.alerts import NAME as ALERTS
from dedup_platform.orchestration.build import build_definitions
from dedup_platform.orchestration.health import check_keys, latest
from dedup_platform.orchestration.rehearsal import tick
from dedup_platform.planning.health import FRESHNESS, INGEST, LAG, REJECTS, SOURCE, STALE
from dedup_platform.settings import Settings
from dedup_platform.testing import make_stream
from dedup_platform_tests.orchestration.conftest import Deployment, click
from dedup_platform_tests.orchestration.test_failures import DAY, bring_back, take_away
from dedup_platform_tests.servers import webhook


class Daemon:
    """Ticks of a stream's sensor and of the one that alerts, each with what its last one left."""

    def __init__(self, deploy: Deployment, address: str) -> None:
        settings = deploy.platform.settings.model_copy(update={"alert_webhook": SecretStr(address)})
        self._definitions = build_definitions(settings, {deploy.stream.name: deploy.stream}, deploy.clock)
        self._deploy = deploy
        self._cursors: dict[str, str | None] = {}

    def tick(self, seconds: float = 0) -> str | None:
        """Ticks of both after so many seconds; what the one that alerts says."""
        self._deploy.clock.advance(timedelta(seconds=seconds))
        said = None
        for sensor in (f"{self._deploy.stream.name}_new_input", ALERTS):
            _, said, self._cursors[sensor] = tick(
                self._definitions, self._deploy.instance, sensor, self._cursors.get(sensor)
            )
        return said


def shown(deploy: Deployment) -> dict[str, dg.AssetCheckEvaluation]:
    """What the UI shows of each check: those that nobody evaluated since their asset changed are left out."""
    return {key.name: each for key, each in latest(deploy.instance, check_keys(deploy.stream)).items()}


def told(deploy: Deployment) -> int:
    """How often a check was told of, in all."""
    storage = deploy.instance.event_log_storage
    return sum(len(storage.get_asset_check_execution_history(key, limit=100)) for key in check_keys(deploy.stream))


def status(deploy: Deployment, code: int) -> str:
    """What `status --check` prints."""
    asked = ["status", "--check", "--streams", str(deploy.stream.origin)]
    done = CliRunner().invoke(cli.app, asked, env={"DEDUP_PLATFORM_HOME": str(deploy.platform.settings.home)})
    assert done.exit_code == code, done.output
    return done.output


def test_an_outage_is_red_told_once_and_over_once_a_run_by_hand_finds_the_source(deploy: Deployment) -> None:
    deploy.deliver("first.json", click("a", f"{DAY}T10:00"))
    assert deploy.ingest().success
    with webhook() as (address, got):
        daemon = Daemon(deploy, address)
        assert daemon.tick() == "nothing to post"
        assert shown(deploy).keys() == {SOURCE, INGEST, LAG, STALE, REJECTS, FRESHNESS}
        assert all(each.passed for each in shown(deploy).values())
        count = told(deploy)
        daemon.tick(120)
        assert told(deploy) == count, "what is as it was is no news"
        assert "unhealthy" not in status(deploy, code=0)

        away = take_away(deploy)
        daemon.tick()
        assert (shown(deploy)[SOURCE].passed, shown(deploy)[SOURCE].severity) == (False, dg.AssetCheckSeverity.WARN)
        daemon.tick(1)
        assert not got, "it may pass by itself"
        assert daemon.tick(2) == f"posted: {deploy.stream.name} is unhealthy"
        failed = {name: each for name, each in shown(deploy).items() if not each.passed}
        command = f"dedup-platform run --stream {deploy.stream.name}"
        assert failed.keys() == {SOURCE, INGEST}
        assert {each.severity for each in failed.values()} == {dg.AssetCheckSeverity.ERROR}
        assert {each.metadata["command"].value for each in failed.values()} == {command}
        assert "the source's folder cannot be read" in (failed[SOURCE].description or "")
        assert str(failed[INGEST].description).endswith("and a run started by hand tries now")
        count = told(deploy)
        assert daemon.tick(15) == daemon.tick(60) == "nothing to post"
        assert told(deploy) == count
        [(_, alert)] = got
        assert (alert["stream"], alert["healthy"]) == (deploy.stream.name, False)
        assert [(each["check"], each["command"]) for each in alert["failed"]] == [(SOURCE, command), (INGEST, command)]
        printed = status(deploy, code=cli.UNHEALTHY)
        assert f"unhealthy (source_reachable): type `{command}`" in " ".join(printed.split())

        bring_back(deploy, away)
        deploy.deliver("second.json", click("a", f"{DAY}T11:00"))
        daemon.tick(15)
        assert not shown(deploy)[INGEST].passed, "it cools down"
        assert deploy.materialize(tables.RAW_EVENTS, partitions=(DAY, DAY)).success
        assert all(each.passed for each in shown(deploy).values()), "the run that found the source says so itself"
        assert daemon.tick(60) == f"posted: {deploy.stream.name} is healthy"
        assert daemon.tick(60) == "nothing to post"
        assert [each["healthy"] for _, each in got] == [False, True]
    status(deploy, code=0)


def test_an_alert_that_nobody_took_is_posted_by_a_later_tick(deploy: Deployment) -> None:
    with webhook(500) as (address, got):
        daemon = Daemon(deploy, address)
        take_away(deploy)
        for seconds in (0, 1, 2, 15):
            said = daemon.tick(seconds)
        assert "DEDUP_PLATFORM_ALERT_WEBHOOK: it answered 500" in str(said)
        assert len(got) == 2
    assert "secret" not in str(said)


def test_jobs_do_not_ask_what_a_sensor_asks_anyhow(tmp_path: Path) -> None:
    stream = make_stream(tmp_path, "clicks")
    definitions = build_definitions(Settings(home=tmp_path), {"clicks": stream})
    nodes = [node.name for node in definitions.resolve_job_def("clicks_repair").graph.node_defs]
    assert nodes
    assert "clicks__health" not in nodes
    assert ALERTS not in {sensor.name for sensor in definitions.sensors or ()}
