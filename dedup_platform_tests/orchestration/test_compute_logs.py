"""What steps print on a real S3 server, as a run of Dagster's puts it there and its UI reads it."""

import sys
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.compute_log_manager import ComputeIOType

from dedup_platform.errors import SettingsError
from dedup_platform.orchestration.embedded import COMPUTE_LOGS, make_dagster_home, open_instance
from dedup_platform.settings import Settings
from dedup_platform.testing.servers import S3Server
from dedup_platform_tests.servers import new_name


@dg.job(executor_def=dg.in_process_executor)
def talking() -> None:
    @dg.op
    def talk() -> None:
        sys.stdout.write("said by a step\n")

    talk()


@pytest.fixture
def stored(tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a bucket that is not there yet; keys are where Amazon's clients look."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    monkeypatch.setenv("AWS_DEFAULT_REGION", s3_server.region)
    place = f"s3://{new_name('output-')}/of/steps"
    return Settings(home=tmp_path, s3_endpoint=s3_server.endpoint, compute_logs=place)


def bucket_of(settings: Settings) -> str:
    return str(settings.compute_logs).split("/")[2]


def test_what_steps_print_is_on_s3_and_no_file_holds_a_key(stored: Settings, s3_server: S3Server) -> None:
    s3_server.create_bucket(bucket_of(stored))
    with open_instance(stored) as instance:
        run_id = talking.execute_in_process(instance=instance).run_id
    found = s3_server.client().list_objects_v2(Bucket=bucket_of(stored))["Contents"]
    assert all(each["Key"].startswith(f"of/steps/storage/{run_id}/") for each in found)
    # Another process, as the UI is, which has no files of the run.
    with open_instance(stored) as instance:
        manager = instance.compute_log_manager
        [event] = [each for each in instance.all_logs(run_id) if each.dagster_event_type == "LOGS_CAPTURED"]
        key = [run_id, "compute_logs", event.get_dagster_event().logs_captured_data.file_key]
        assert b"said by a step" in (manager.get_log_data_for_type(key, ComputeIOType.STDOUT, 0, None)[0] or b"")
    written = [path.read_bytes() for path in stored.home.rglob("*") if path.is_file()]
    assert not any(s3_server.secret_key.encode() in each for each in written)


def test_a_run_ends_well_though_its_output_cannot_be_stored(stored: Settings) -> None:
    with open_instance(stored) as instance:
        assert talking.execute_in_process(instance=instance).success


def test_settings_of_dagster_that_keep_it_elsewhere_are_refused_and_left_alone(stored: Settings) -> None:
    make_dagster_home(stored.model_copy(update={"compute_logs": None}))
    file = stored.dagster_home / "dagster.yaml"
    before = file.read_text()
    with pytest.raises(SettingsError, match=rf"(?s){COMPUTE_LOGS}: .*{file}.*bucket: {bucket_of(stored)}\n") as refused:
        make_dagster_home(stored)
    assert file.read_text() == before
    file.write_text(before + str(refused.value).split(":\n", 1)[1])
    make_dagster_home(stored)
    with pytest.raises(SettingsError, match=COMPUTE_LOGS):
        make_dagster_home(stored.model_copy(update={"compute_logs": "s3://another/place"}))


@pytest.mark.parametrize("place", ["/tmp/output", "s3://bucket", "s3://bucket/"])
def test_any_other_place_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(ValueError, match="compute_logs"):
        Settings(home=tmp_path, compute_logs=place)
