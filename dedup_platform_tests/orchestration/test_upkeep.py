"""The job `maintenance` as the UI starts it: it looks after the tables and tells what it did in numbers."""

import dagster as dg

from dedup_platform import tables
from dedup_platform.orchestration.embedded import LISTENER
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.orchestration.conftest import Deployment, click


def test_the_job_looks_after_all_tables_and_observes_them(deploy: Deployment) -> None:
    deploy.later(seconds=600)  # so that what is taken in has settled, and is repaired in the same run
    for number in range(5):
        deploy.deliver(f"{number}.json", click("a", f"2024-03-01T10:0{number}"), click("a", f"2024-03-02T10:0{number}"))
        deploy.ingest()
    result = maintain(deploy)
    assert result.success
    observed = {
        event.asset_observation_data.asset_observation.asset_key.path[-1]: {
            name: value.value for name, value in event.asset_observation_data.asset_observation.metadata.items()
        }
        for event in result.all_events
        if event.event_type == dg.DagsterEventType.ASSET_OBSERVATION
    }
    assert observed.keys() == {*tables.ALL, *tables.FOLLOWER_OF.values(), tables.AUDIT}
    assert (observed["raw_events"]["files_before"], observed["raw_events"]["files"]) == (10, 2)
    assert observed["raw_events"]["files_compacted"] == 10
    assert observed["sessions"]["metadata_bytes"]
    assert deploy.stale() == []
    assert wrong_rows(deploy.platform, deploy.stream.name) == []


def test_before_the_first_ingest_there_is_nothing_to_look_after(deploy: Deployment) -> None:
    assert maintain(deploy).success


def maintain(deploy: Deployment) -> dg.ExecuteInProcessResult:
    job = deploy.definitions.resolve_job_def("maintenance")
    return job.execute_in_process(instance=deploy.instance, run_config={"loggers": {LISTENER: {}}})
