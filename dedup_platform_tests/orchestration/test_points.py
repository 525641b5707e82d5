"""Points in Dagster: a run that repaired the last table makes one, and tells how far each partition has come."""

from datetime import timedelta
from unittest.mock import patch

import pytest

from dedup_platform.lake.points import PointTags
from dedup_platform.tables import RAW_EVENTS, SESSIONS
from dedup_platform_tests.orchestration.conftest import Deployment, click, numbers

SETTLED = pytest.mark.parametrize("deploy", ["{settle: 0s, grace: 1h}"], indirect=True)
DAY = "2024-03-01"


@SETTLED
def test_a_run_makes_a_point_and_tells_states(deploy: Deployment) -> None:
    name = deploy.stream.name
    deploy.deliver("first.json", click("a", f"{DAY}T10:00"), click("b", "2024-03-02T00:59"))
    first = deploy.ingest()
    assert [point.name for point in deploy.platform.points.complete(name)] == ["v1"]
    assert numbers(first, SESSIONS)[DAY]["state"] == "open"
    assert numbers(first, RAW_EVENTS)[DAY]["watermark"] == "2024-03-02T00:59:00+00:00"
    deploy.deliver("second.json", click("a", f"{DAY}T10:20", "2024-03-02T01:00"))
    second = deploy.ingest()
    assert numbers(second, RAW_EVENTS)[DAY]["state"] == "closed", "it is in no other table yet"
    assert numbers(second, SESSIONS)[DAY]["state"] == "settled"
    assert [point.name for point in deploy.platform.points.complete(name)] == ["v1", "v2"]
    third = deploy.materialize(SESSIONS, partitions=[DAY, DAY])
    assert numbers(third, SESSIONS)[DAY]["state"] == "settled"
    assert [point.name for point in deploy.platform.points.complete(name)] == ["v1", "v2"], "nothing is new"


@SETTLED
def test_a_point_that_fails_fails_no_run_and_is_made_by_the_next(deploy: Deployment) -> None:
    deploy.deliver("first.json", click("a", f"{DAY}T10:00"))
    with patch.object(PointTags, "claim", side_effect=OSError("the catalog is away")):
        assert deploy.ingest().success
    assert deploy.platform.points.newest(deploy.stream.name) is None
    deploy.clock.advance(timedelta(minutes=1))
    assert deploy.materialize(SESSIONS, partitions=[DAY, DAY]).success
    assert deploy.platform.points.newest(deploy.stream.name)
