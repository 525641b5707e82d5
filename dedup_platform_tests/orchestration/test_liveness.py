"""Whatever the state, a bounded number of ticks without new input ends with nothing stale and nothing waiting."""

from dataclasses import replace

import dagster as dg
import pytest
import yaml

from dedup_platform import tables
from dedup_platform.errors import SourceError
from dedup_platform.ingest.ingest import Ingest
from dedup_platform.orchestration import runs
from dedup_platform.orchestration.build import build_definitions
from dedup_platform.orchestration.embedded import LISTENER, listening_logger
from dedup_platform.orchestration.partitions import listing
from dedup_platform.platform import Platform
from dedup_platform.stream import load_stream
from dedup_platform_tests.orchestration.conftest import QUIET, Deployment, click, numbers

ONE_A_TICK = pytest.mark.parametrize("deploy", ["{settle: 0s, max_runs_per_tick: 1}"], indirect=True)
FOUR_DAYS = tuple(click("a", f"2024-03-0{day}T{time}") for day in (1, 2, 3, 4) for time in ("00:00", "23:45"))


def under(deploy: Deployment, part: str, **said: str) -> Deployment:
    """The same deployment after a part of its stream file was changed and all was started anew."""
    path = deploy.stream.origin
    content = yaml.safe_load(path.read_text())
    content[part] |= said
    path.write_text(yaml.safe_dump(content))
    stream = load_stream(path)
    settings, streams = deploy.platform.settings, {stream.name: stream}
    definitions = build_definitions(settings, streams, deploy.clock, {LISTENER: listening_logger(QUIET)})
    platform = Platform(settings, streams, deploy.platform.lake.spark, deploy.clock)
    return replace(deploy, stream=stream, platform=platform, definitions=definitions)


def with_timeout(deploy: Deployment, timeout: str) -> Deployment:
    return under(deploy, "sessions", timeout=timeout)


def starting(deploy: Deployment, day: str) -> Deployment:
    return under(deploy, "partitions", start=day)


def tick(deploy: Deployment) -> list[dg.ExecuteInProcessResult]:
    """What Dagster's daemon does once: it evaluates both sensors and starts what they ask for under a new key."""
    deploy.later(30)
    results = []
    for sensor in ("new_input", "late_partitions"):
        for request in deploy.tick(sensor)[0]:
            known = deploy.instance.get_runs(dg.RunsFilter(tags={"dagster/run_key": str(request.run_key)}))
            assert not known, f"the daemon never starts {request.run_key} again"
            results.append(deploy.follow(sensor, request))
    return results


def is_at_rest(deploy: Deployment) -> bool:
    return not deploy.stale() and not deploy.platform.source.waiting(deploy.stream.name).items


def come_to_rest(deploy: Deployment, ticks: int) -> list[dg.ExecuteInProcessResult]:
    """Let both sensors tick so often at most; returns the runs that they started."""
    results: list[dg.ExecuteInProcessResult] = []
    while not is_at_rest(deploy):
        assert ticks, [(plan.table, plan.stale) for plan in deploy.stale()]
        results += tick(deploy)
        ticks -= 1
    return results


def assert_only_known_keys(deploy: Deployment) -> None:
    """Dagster was told of no partition that it does not know."""
    known = listing(deploy.stream)
    for table in (*tables.ALL, tables.DUPLICATE_EVENTS):
        told = deploy.instance.get_materialized_partitions(deploy.key(table))
        assert all(deploy.stream.partitions.ordinal_of(key) in known for key in told), told


def stored(deploy: Deployment) -> int:
    return deploy.platform.rows(deploy.stream.name, tables.SESSIONS)


@pytest.mark.thorough
def test_settings_that_go_to_and_fro(deploy: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "HISTORY_LENGTH", 1)
    deploy.deliver("first.json", *FOUR_DAYS)
    come_to_rest(deploy, ticks=1)
    found = []
    for timeout in ("10m", "30m", "10m"):
        deploy = with_timeout(deploy, timeout)
        come_to_rest(deploy, ticks=1)
        found.append(stored(deploy))
    assert found == [8, 5, 8]

    # Where a person repairs in between, the sensor's repair before that was not in vain.
    deploy = with_timeout(deploy, "30m")
    deploy.materialize(tables.SESSION_FRAGMENTS, tables.SESSIONS, partitions=("2024-03-01", "2024-03-04"))
    come_to_rest(with_timeout(deploy, "10m"), ticks=1)
    assert stored(deploy) == 8


def test_a_file_that_was_away_while_a_run_went_well(deploy: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise SourceError("the share", "is away")

    deploy.deliver("first.json", click("a", "2024-03-01T10:00"))
    with monkeypatch.context() as broken:
        broken.setattr(Ingest, "next_batch", fail)
        with pytest.raises(SourceError):
            tick(deploy)
    path = deploy.stream.files.root / "first.json"
    away = path.rename(path.with_name(".first.json"))
    by_hand = deploy.definitions.resolve_job_def(runs.ingest_job_name(deploy.stream))
    assert by_hand.execute_in_process(instance=deploy.instance, run_config={"loggers": {LISTENER: {}}}).success
    away.rename(path)
    come_to_rest(deploy, ticks=1)


def test_a_start_that_was_moved_on(deploy: Deployment) -> None:
    deploy.deliver("first.json", *FOUR_DAYS)
    come_to_rest(deploy, ticks=1)

    # One session spans the new start; what lies before it is stale because of the settings.
    deploy = starting(with_timeout(deploy, "10m"), "2024-03-03")
    before = dict.fromkeys(("2024-03-01", "2024-03-02"))
    assert {stale.reason for plan in deploy.stale() for stale in plan.stale} == {"settings"}
    [unlisted, listed] = come_to_rest(deploy, ticks=1)
    assert unlisted.job_def.name == runs.unlisted_job_name(deploy.stream)
    assert not before.keys() & numbers(unlisted, tables.SESSION_FRAGMENTS).keys()
    assert numbers(listed, tables.SESSION_FRAGMENTS).keys() == {"2024-03-03", "2024-03-04"}
    assert stored(deploy) == 8

    # None of its partitions has begun.
    deploy = starting(with_timeout(deploy, "30m"), "2999-01-01")
    come_to_rest(deploy, ticks=1)
    assert stored(deploy) == 5
    deploy = starting(with_timeout(deploy, "10m"), "2024-03-02")
    whole = deploy.materialize(tables.SESSION_FRAGMENTS, tables.SESSIONS, partitions=("2024-03-02", "2024-03-04"))
    assert "2024-03-01" not in numbers(whole, tables.SESSIONS)
    come_to_rest(deploy, ticks=1)
    assert stored(deploy) == 8


def test_what_lies_so_far_ahead_that_a_clock_was_wrong(deploy: Deployment) -> None:
    soon, later = (deploy.stream.partitions.key(listing(deploy.stream).awaited + beyond) for beyond in (0, 3))
    far = ("2999-03-01T10:00", "2999-03-01T10:10")
    arrived = [click("a", time, arrived="2999-03-02") for time in (*far, f"{soon}T10:00", f"{later}T10:00")]
    deploy.deliver("first.json", click("a", "2024-03-01T10:00"), *arrived)
    for _ in range(2):
        tick(deploy)
    waiting = {deploy.stream.partitions.key(stale.cell.partition) for plan in deploy.stale() for stale in plan.stale}
    assert waiting == {soon}
    assert f"{soon}: Dagster has no such partition yet" in str(deploy.tick("late_partitions")[1])
    assert stored(deploy) == 3
    assert_only_known_keys(deploy)


@ONE_A_TICK
def test_partitions_that_fail_again_and_again_do_not_use_up_what_a_tick_may_ask_for(deploy: Deployment) -> None:
    deploy.deliver("first.json", *(click("a", f"2024-03-0{day}T10:00") for day in (1, 3, 5)))
    deploy.materialize(tables.RAW_EVENTS, partitions=("2024-03-01", "2024-03-01"))
    repair = deploy.definitions.resolve_job_def(runs.repair_job_name(deploy.stream))
    deploy.later(1)
    [request], _ = deploy.tick("late_partitions")
    for _ in range(2):
        deploy.instance.report_run_failed(deploy.instance.create_run_for_job(repair, tags=request.tags))
    asked = [tick(deploy) for _ in range(2)]
    assert [list(numbers(result, tables.SESSIONS)) for [result] in asked] == [["2024-03-03"], ["2024-03-05"]]
    deploy.later(180)
    [last], _ = deploy.tick("late_partitions")
    assert last.tags[runs.RANGE_START] == "2024-03-01"


def test_a_failure_that_was_noted_when_the_clock_was_a_week_ahead(deploy: Deployment) -> None:
    deploy.deliver("first.json", click("a", "2024-03-01T10:00"))
    deploy.later(7 * 86_400)
    deploy.platform.source.note_lost_run(deploy.stream.name, "it died")
    come_to_rest(deploy, ticks=1)
