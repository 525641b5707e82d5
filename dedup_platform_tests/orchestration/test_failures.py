"""Failures of ingests as sensors and runs meet them: pauses, an open circuit, its probe, and batches that are held."""

from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError

from dedup_platform import tables
from dedup_platform.errors import HeldBatchError, SourceError
from dedup_platform.orchestration import runs
from dedup_platform.orchestration.build import build_definitions
from dedup_platform.orchestration.embedded import note_interrupted
from dedup_platform.orchestration.rehearsal import evaluate
from dedup_platform.platform.source import Source
from dedup_platform_tests.orchestration.conftest import Deployment, click, numbers, stream_file

DAY = "2024-03-01"
COOL_DOWN = timedelta(minutes=5)
HOLDING = pytest.mark.parametrize(
    "deploy", ["{settle: 0s}\nreject: {max_ratio: 0.5, min_records: 2}"], indirect=True, ids=["holding"]
)


def take_away(deploy: Deployment) -> Path:
    """Rename the source's folder, so that it cannot be listed."""
    root = deploy.stream.files.root
    return root.rename(root.with_name(f"{root.name}_away"))


def bring_back(deploy: Deployment, away: Path) -> None:
    away.rename(deploy.stream.files.root)


def state(deploy: Deployment) -> tuple[str, int]:
    health = deploy.platform.source.health(deploy.stream.name)
    return health.state, health.attempts


def skipped(deploy: Deployment) -> str:
    """Why the sensor asks for no run."""
    requests, reason = deploy.tick("new_input")
    assert not requests
    assert reason is not None
    return reason


def open_circuit(deploy: Deployment) -> None:
    """Let the sensor fail three times."""
    for pause in (0, 1, 2):
        deploy.clock.advance(timedelta(seconds=pause))
        skipped(deploy)


def test_a_source_that_went_away_opens_the_circuit_and_a_probe_that_finds_it_closes_it(deploy: Deployment) -> None:
    away = take_away(deploy)
    reason = skipped(deploy)
    assert reason.startswith("the ingest is retrying: 1 try since")
    assert "the source's folder cannot be read" in reason
    assert skipped(deploy) == reason, "it is not asked again before its time"
    deploy.clock.advance(timedelta(seconds=1))
    skipped(deploy)
    assert state(deploy) == ("retrying", 2)
    deploy.clock.advance(timedelta(seconds=2))
    assert skipped(deploy).startswith("the ingest is open: 3 tries since")

    bring_back(deploy, away)
    deploy.deliver("first.json", click("a", f"{DAY}T10:00"))
    assert "is open" in skipped(deploy), "it cools down"
    deploy.clock.advance(COOL_DOWN)
    probe = deploy.ingest()
    assert probe.success
    assert state(deploy) == ("normal", 0)
    assert deploy.instance.get_run_by_id(probe.run_id).tags[runs.HEALTH] == "normal"  # type: ignore[union-attr]
    assert list(numbers(probe, tables.RAW_EVENTS)) == [DAY]
    told = numbers(probe, tables.RAW_EVENTS)[DAY]
    assert (told["commit_skew_p50_seconds"], told["commit_skew_max_seconds"], told["commit_records_ahead"]) == (0, 0, 0)
    by_source = told["commit_skew_by_source"]
    assert isinstance(by_source, list)
    assert [(skew["source"], skew["events"]) for skew in by_source] == [("first.json", 1)]
    assert skipped(deploy) == "nothing new at the source"


def test_a_probe_that_fails_cools_down_for_longer_and_a_source_without_news_is_normal(deploy: Deployment) -> None:
    away = take_away(deploy)
    open_circuit(deploy)
    deploy.clock.advance(COOL_DOWN)
    assert "the ingest is open: 4 tries" in skipped(deploy)
    health = deploy.platform.source.health(deploy.stream.name)
    assert health.next_try == deploy.clock.now + 2 * COOL_DOWN
    bring_back(deploy, away)
    deploy.clock.advance(2 * COOL_DOWN)
    assert skipped(deploy) == "nothing new at the source"
    assert state(deploy) == ("normal", 0)


def test_a_run_that_fails_tells_the_state_and_a_manual_one_tries_whatever_it_is(deploy: Deployment) -> None:
    deploy.deliver("first.json", click("a", f"{DAY}T10:00"))
    [request], _ = deploy.tick("new_input")
    away = take_away(deploy)
    with pytest.raises(SourceError):
        deploy.follow("new_input", request)
    assert state(deploy) == ("retrying", 1)
    [run] = deploy.instance.get_runs(dg.RunsFilter(job_name=runs.ingest_job_name(deploy.stream)))
    assert run.tags[runs.HEALTH] == "retrying"
    assert runs.NEXT_TRY in run.tags
    kind = dg.DagsterEventType.ASSET_OBSERVATION
    [told] = deploy.instance.get_records_for_run(run.run_id, of_type=kind).records
    observation = told.asset_observation
    assert observation is not None
    metadata = {name: value.value for name, value in observation.metadata.items()}
    assert (metadata["state"], metadata["attempts"]) == ("retrying", 1)
    assert "cannot be read" in str(metadata["reason"])
    # What the UI shows first is a sentence and what to type, and behind it what was raised.
    [failure] = deploy.instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE).records
    found = failure.event_log_entry.get_dagster_event().step_failure_data
    root, command = deploy.stream.files.root, f"dedup-platform run --stream {deploy.stream.name}"
    assert found.user_failure_data is not None
    assert found.user_failure_data.description == (
        f"{root}: the source's folder cannot be read: No such file or directory. Mend that, then start the run again, "
        f"or type `{command}`: either tries at once"
    )
    assert found.user_failure_data.metadata["command"].value == command
    assert found.error is not None
    assert found.error.cause is not None
    assert found.error.cause.cls_name == "SourceError"
    assert any("listing.py" in line for line in found.error.cause.stack)
    deploy.clock.advance(timedelta(seconds=1))
    skipped(deploy)
    deploy.clock.advance(timedelta(seconds=2))
    skipped(deploy)
    assert state(deploy) == ("open", 3)

    bring_back(deploy, away)
    assert deploy.materialize(tables.RAW_EVENTS, partitions=(DAY, DAY)).success
    assert state(deploy) == ("normal", 0)


def test_an_ingest_that_is_interrupted_failed_and_pauses(deploy: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    interruptions = iter([DagsterExecutionInterruptedError(), KeyboardInterrupt()])

    def interrupted(*_: object) -> None:
        raise next(interruptions)

    monkeypatch.setattr(Source, "_batches", interrupted)
    deploy.deliver("first.json", click("a", f"{DAY}T10:00"))
    with pytest.raises(DagsterExecutionInterruptedError):
        deploy.ingest()
    assert state(deploy) == ("retrying", 1)
    [run] = deploy.instance.get_runs(dg.RunsFilter(job_name=runs.ingest_job_name(deploy.stream)))
    assert run.tags[runs.HEALTH] == "retrying"
    assert "it was interrupted (DagsterExecutionInterruptedError)" in skipped(deploy)

    # Whoever waits for a run and stops it does not want it tried again, whatever may pass by itself.
    with pytest.raises(KeyboardInterrupt):
        deploy.platform.ingest(deploy.stream.name, patient=True)
    assert state(deploy) == ("retrying", 2)


def test_a_run_whose_process_was_interrupted_failed_unless_it_had_ingested(deploy: Deployment) -> None:
    job = deploy.definitions.resolve_job_def(runs.ingest_job_name(deploy.stream))
    done, broken = (
        deploy.instance.create_run_for_job(job, tags={**runs.this_process(), **tags})
        for tags in ({runs.INGESTED: "true"}, {})
    )
    note_interrupted(deploy.platform)
    assert state(deploy) == ("retrying", 1)
    ended = [deploy.instance.get_run_by_id(each.run_id) for each in (done, broken)]
    assert {each.status for each in ended if each} == {dg.DagsterRunStatus.CANCELED}
    note_interrupted(deploy.platform)
    assert state(deploy) == ("retrying", 1)


def test_one_streams_failure_is_not_anothers(deploy: Deployment, tmp_path: Path) -> None:
    other = stream_file(tmp_path, f"{deploy.stream.name}_2"[-60:], "{settle: 0s}")
    streams = {each.name: each for each in (deploy.stream, other)}
    definitions = build_definitions(deploy.platform.settings, streams, deploy.clock)
    take_away(deploy)
    (other.files.root / "first.json").write_text("{}\n")
    deploy.later(60)
    requests, reason = evaluate(definitions, deploy.instance, f"{deploy.stream.name}_new_input")
    assert not requests
    assert "retrying" in str(reason)
    assert evaluate(definitions, deploy.instance, f"{deploy.stream.name}_late_partitions") == ([], "nothing is stale")
    [request], _ = evaluate(definitions, deploy.instance, f"{other.name}_new_input")
    assert request.run_key is not None


@HOLDING
def test_a_batch_that_is_held_waits_for_a_person_and_passes_once_accepted(deploy: Deployment) -> None:
    name = deploy.stream.name
    deploy.deliver("first.json", click("a", f"{DAY}T10:00"))
    with (deploy.stream.files.root / "first.json").open("a") as file:
        file.write("broken\n" * 3)
    deploy.later(60)
    [request], _ = deploy.tick("new_input")
    with pytest.raises(HeldBatchError, match=r"3 of 4 records of a batch would be rejected.*malformed_record 3"):
        deploy.follow("new_input", request)
    assert deploy.platform.rows(name, tables.RAW_EVENTS) == 0
    deploy.clock.advance(timedelta(days=1))
    assert skipped(deploy).endswith("it waits for a person")

    assert deploy.platform.source.accept_batch(name) is not None
    [again], _ = deploy.tick("new_input")
    assert again.run_key != request.run_key, "Dagster never starts a known key again"
    assert deploy.follow("new_input", again).success
    assert deploy.platform.status(name).rejected == 3
    assert state(deploy) == ("normal", 0)
    assert deploy.platform.source.accept_batch(name) is None, "nothing is held any more"

    # What was accepted were these files, and no others.
    (deploy.stream.files.root / "second.json").write_text("broken\n" * 2)
    deploy.clock.advance(timedelta(minutes=1))
    [third], _ = deploy.tick("new_input")
    with pytest.raises(HeldBatchError, match="2 of 2 records"):
        deploy.follow("new_input", third)
