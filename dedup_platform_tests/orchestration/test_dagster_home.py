"""Dagster's own settings: made once, then the user's; where its records are in Postgres, no file holds the password."""

from pathlib import Path

import dagster as dg
import pytest
import yaml

from dedup_platform.errors import SettingsError, UnreachableError
from dedup_platform.orchestration.embedded import DAGSTER_URI, make_dagster_home, open_instance
from dedup_platform.settings import Settings
from dedup_platform.testing.servers import PostgresServer
from dedup_platform_tests.servers import new_name


def settings_of(home: Path, uri: str | None) -> Settings:
    return Settings(home=home, dagster_uri=uri)


def test_records_are_in_postgres_and_the_password_is_in_no_file(
    tmp_path: Path, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = postgres_server.create_database(new_name())
    monkeypatch.setenv(DAGSTER_URI, uri)
    with open_instance(settings_of(tmp_path, uri)) as instance:
        run_id = instance.create_run_for_job(dg.JobDefinition(name="nothing", graph_def=dg.GraphDefinition("g"))).run_id
    with open_instance(settings_of(tmp_path, uri)) as instance:
        assert [run.run_id for run in instance.get_runs()] == [run_id]
        assert instance.event_log_storage.supports_global_concurrency_limits
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.name for path in written if path.suffix == ".db"] == []
    assert not any(postgres_server.password.encode() in path.read_bytes() for path in written)


def test_the_other_settings_are_the_same_on_postgres(tmp_path: Path) -> None:
    made = {}
    for name, uri in (("here", None), ("there", "postgresql+psycopg2://localhost/dagster")):
        make_dagster_home(settings_of(tmp_path / name, uri))
        made[name] = yaml.safe_load((tmp_path / name / "dagster" / "dagster.yaml").read_text())
    assert made["there"].pop("storage") == {"postgres": {"postgres_url": {"env": DAGSTER_URI}}}
    assert made["there"] == made["here"]


def test_settings_that_do_not_know_of_postgres_are_refused_and_left_alone(tmp_path: Path) -> None:
    make_dagster_home(settings_of(tmp_path, None))
    file = tmp_path / "dagster" / "dagster.yaml"
    before = file.read_text()
    with pytest.raises(SettingsError, match=rf"(?s){DAGSTER_URI}: .*{file}.*postgres_url"):
        make_dagster_home(settings_of(tmp_path, "postgresql+psycopg2://localhost/dagster"))
    assert file.read_text() == before


def test_a_wrong_password_is_told_at_once_with_its_variable_and_without_it(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    wrong = postgres_server.uri().replace(postgres_server.password, "not-the-secret")
    with pytest.raises(UnreachableError, match=rf"{DAGSTER_URI}: .* authentication failed") as error:  # noqa: SIM117
        with open_instance(settings_of(tmp_path, wrong)):
            pass
    assert "not-the-secret" not in str(error.value)
