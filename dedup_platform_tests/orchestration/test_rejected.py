"""Rejected records as an asset: what an ingest reports of them, and the check that warns."""

import os

import dagster as dg

from dedup_platform.orchestration.rejected import CHECK
from dedup_platform.tables import REJECTED_EVENTS
from dedup_platform_tests.orchestration.conftest import Deployment, click, numbers


def deliver_broken(deploy: Deployment, name: str, *lines: str) -> None:
    path = deploy.stream.files.root / name
    path.write_text("".join(f"{line}\n" for line in lines))
    os.utime(path, (1.6e9, 1.6e9))


def warned(result: dg.ExecuteInProcessResult) -> list[bool]:
    found = [each for each in result.get_asset_check_evaluations() if each.check_name == CHECK]
    assert all(each.severity == dg.AssetCheckSeverity.WARN for each in found)
    return [not each.passed for each in found]


def check_now(deploy: Deployment) -> dg.ExecuteInProcessResult:
    """What the UI starts for the check alone."""
    key = dg.AssetCheckKey(deploy.key(REJECTED_EVENTS), CHECK)
    job = dg.define_asset_job("check_rejected", selection=dg.AssetSelection.checks(key))
    definitions = dg.Definitions.merge(deploy.definitions, dg.Definitions(jobs=[job]))
    return definitions.resolve_job_def("check_rejected").execute_in_process(instance=deploy.instance)


def test_every_ingest_reports_what_it_rejected_and_warns(deploy: Deployment) -> None:
    deploy.deliver("good.json", click("a", "2024-03-01T10:00"))
    deliver_broken(deploy, "broken.json", "no json", "{", '{"id": "x", "happened": "never", "arrived": "2024-03-01"}')
    first = deploy.ingest()
    reasons = {"added_malformed_record": 2, "added_unreadable_event_time": 1}
    told = numbers(first, REJECTED_EVENTS)[None]
    del told["rejected_records"]
    assert told == {"total": 3, "added": 3, **reasons}
    assert warned(first) == warned(check_now(deploy)) == [True]

    deploy.deliver("more.json", click("a", "2024-03-01T11:00"))
    second = deploy.ingest()
    assert numbers(second, REJECTED_EVENTS) == {None: {"total": 3, "added": 0}}
    assert warned(second) == warned(check_now(deploy)) == [False]


def test_a_materialization_of_raw_events_reports_them_too_and_only_if_something_came(deploy: Deployment) -> None:
    deliver_broken(deploy, "broken.json", "no json")
    days = ("2024-03-01", "2024-03-01")
    assert numbers(deploy.materialize("raw_events", partitions=days), REJECTED_EVENTS)[None]["total"] == 1
    assert numbers(deploy.materialize("raw_events", partitions=days), REJECTED_EVENTS) == {}


def test_a_replay_is_no_batch(deploy: Deployment) -> None:
    assert warned(check_now(deploy)) == [False]
    deploy.deliver("good.json", click("a", "2024-03-01T10:00"))
    deliver_broken(deploy, "broken.json", "no json")
    deploy.ingest()
    deploy.platform.rejected.drop(deploy.stream.name)
    assert warned(check_now(deploy)) == [True]
