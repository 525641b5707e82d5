"""Feeds in Dagster: a run publishes what it changed, and a sensor finds what a run left behind."""

from unittest.mock import patch

import dagster as dg
import pytest

from dedup_platform.changes import Aliases, Feeds
from dedup_platform.orchestration import runs
from dedup_platform.tables import EVENT_CHANGES, SESSION_ALIASES, SESSION_CHANGES, SESSIONS
from dedup_platform_tests.orchestration.conftest import Deployment, click

SETTLED = pytest.mark.parametrize("deploy", ["{settle: 0s, grace: 0s}"], indirect=True)
DAY = "2024-03-01"


def told(deploy: Deployment, feed: str) -> list[dict[str, object]]:
    """The metadata of a feed's materializations, newest first."""
    found = deploy.instance.fetch_materializations(deploy.key(feed), limit=100).records
    values = [each.asset_materialization.metadata for each in found if each.asset_materialization]
    return [{name: value.value for name, value in each.items()} for each in values]


@SETTLED
def test_a_run_publishes_what_it_changed(deploy: Deployment) -> None:
    deploy.deliver("first.json", click("a", f"{DAY}T10:00"), click("b", f"{DAY}T10:00"))
    deploy.ingest()
    for feed in (EVENT_CHANGES, SESSION_CHANGES):
        [only] = told(deploy, feed)
        assert (only["version"], only["versions"], only["insert"]) == (1, 1, 2)
    assert [each["version"] for each in told(deploy, SESSION_ALIASES)] == [1]
    assert deploy.tick("unpublished_changes") == ([], "every commit is published")
    deploy.materialize(SESSIONS, partitions=[DAY, DAY])
    assert len(told(deploy, SESSION_CHANGES)) == 1, "nothing changed, so nothing is told"


@SETTLED
def test_a_feed_that_fails_holds_back_no_table_and_is_caught_up_with(deploy: Deployment) -> None:
    deploy.deliver("first.json", click("a", f"{DAY}T10:00"))
    with patch.object(Feeds, "follow", side_effect=OSError("the disk is full")):
        assert deploy.ingest().success
        assert told(deploy, SESSION_CHANGES) == []
        [request], _ = deploy.tick("unpublished_changes")
        failed = publish(deploy, request)
        assert not failed.success
    requests, reason = deploy.tick("unpublished_changes")
    assert requests == []
    assert reason
    assert reason.startswith("deduplicated_events, sessions wait; 1 runs in a row failed, the next one starts after")
    deploy.later(120)
    [again], _ = deploy.tick("unpublished_changes")
    assert again.run_key != request.run_key
    assert publish(deploy, again).success
    assert [each["version"] for each in told(deploy, SESSION_CHANGES)] == [1]
    assert deploy.tick("unpublished_changes") == ([], "every commit is published")


@SETTLED
def test_aliases_that_fail_hold_back_no_feed_and_are_caught_up_with(deploy: Deployment) -> None:
    deploy.deliver("first.json", click("a", f"{DAY}T10:00"), click("a", f"{DAY}T10:50"))
    with patch.object(Aliases, "follow", side_effect=OSError("the disk is full")):
        assert deploy.ingest().success
    deploy.deliver("second.json", click("a", f"{DAY}T10:25", f"{DAY}T12:00"))
    assert len(told(deploy, SESSION_CHANGES)) == 1
    [request], _ = deploy.tick("unpublished_changes")
    assert publish(deploy, request).success
    deploy.ingest()
    assert [each.get("retired") for each in told(deploy, SESSION_ALIASES)] == [1, None]
    assert deploy.tick("unpublished_changes") == ([], "every commit is published")


@SETTLED
def test_a_feed_is_materialized_by_hand(deploy: Deployment) -> None:
    deploy.deliver("first.json", click("a", f"{DAY}T10:00"))
    deploy.platform.ingest(deploy.stream.name)
    deploy.platform.repair(deploy.stream.name)
    assert publish(deploy, None).success
    assert [each["version"] for each in told(deploy, EVENT_CHANGES)] == [1]
    assert publish(deploy, None).success
    assert told(deploy, EVENT_CHANGES)[0] == {"versions": 0}


def publish(deploy: Deployment, request: dg.RunRequest | None) -> dg.ExecuteInProcessResult:
    job = deploy.definitions.resolve_job_def(runs.publish_job_name(deploy.stream))
    tags = dict(request.tags) if request else {}
    return job.execute_in_process(instance=deploy.instance, tags=tags, raise_on_error=False)
