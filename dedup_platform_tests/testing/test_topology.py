"""Containers and processes are the same topology: what compose.yaml says is what the native twin starts."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dedup_platform.errors import SettingsError
from dedup_platform.orchestration import embedded
from dedup_platform.settings import ENV_PREFIX, KAFKA_JAR, Settings
from dedup_platform.spark.connect_token import VARIABLE
from dedup_platform.stream import load_streams
from dedup_platform.testing import topology
from dedup_platform.testing.servers import kafka, s3
from dedup_platform.testing.topology import SERVICES, Service, natively
from dedup_platform_tests.conftest import PROJECT

DOCKER = PROJECT / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text("utf-8"))
[FROM] = re.findall(r"^FROM (\S+)", (DOCKER / "Dockerfile").read_text("utf-8"), re.MULTILINE)
OWN_PLACES = {"listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs"}
"""Of a broker's settings those that say where it is."""


def composed(service: Service) -> dict[str, Any]:
    found = COMPOSE["services"][service.name]
    assert isinstance(found, dict)
    return found


each_service = pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
each_of_ours = pytest.mark.parametrize(
    "service", [service for service in SERVICES if service.command], ids=lambda service: service.name
)


def test_the_services_are_the_same_and_each_comes_after_what_it_needs() -> None:
    names = [service.name for service in SERVICES]
    assert sorted(names) == sorted(COMPOSE["services"])
    for service in SERVICES:
        assert set(service.needs) <= set(names[: names.index(service.name)])


@each_service
def test_ports_are_the_same_and_published_on_loopback_only(service: Service) -> None:
    published = [f"127.0.0.1:${{{name}}}:${{{name}}}" for name in service.ports]
    assert composed(service).get("ports", []) == published


@each_service
def test_health_checks_are_the_same(service: Service) -> None:
    health = composed(service)["healthcheck"]
    assert health["test"] == ["CMD", *service.health]
    assert health["interval"] == f"{topology.HEALTH_INTERVAL}s"
    assert health["timeout"] == f"{topology.HEALTH_TIMEOUT}s"


@each_service
def test_each_waits_until_what_it_needs_is_healthy(service: Service) -> None:
    waits = composed(service).get("depends_on", {})
    assert waits == {name: {"condition": "service_healthy"} for name in service.needs}


@each_service
def test_memory_and_processes_are_bounded(service: Service) -> None:
    assert composed(service).keys() >= {"mem_limit", "pids_limit"}


@each_service
def test_file_systems_are_read_only_but_for_what_is_named(service: Service) -> None:
    has_own_folders = service.name == "kafka"
    assert composed(service).get("read_only", False) is not has_own_folders


def test_each_service_has_only_the_secrets_that_it_needs() -> None:
    secrets = ("POSTGRES_PASSWORD", "S3_SECRET_KEY", "SPARK_TOKEN")
    has = {service.name: [each for each in secrets if f"${{{each}}}" in str(composed(service))] for service in SERVICES}
    assert has == {
        "postgres": ["POSTGRES_PASSWORD"],
        "s3": ["S3_SECRET_KEY"],
        "kafka": [],
        "spark": [*secrets],
        "webserver": ["POSTGRES_PASSWORD"],
        "daemon": [*secrets],
    }


@pytest.mark.parametrize("image", [FROM, *(each["image"] for each in COMPOSE["services"].values())])
def test_images_of_others_are_pinned_by_digest(image: str) -> None:
    assert image == "dedup_platform" or re.fullmatch(r"[a-z/]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}", image)


@each_of_ours
def test_commands_and_variables_are_the_same(service: Service) -> None:
    assert composed(service)["command"] == list(service.command)
    assert composed(service)["environment"] == service.environment
    assert composed(service)["image"] == "dedup_platform"


@pytest.mark.parametrize("name", ["postgres", "s3"])
def test_variables_of_others_are_the_same(name: str) -> None:
    [service] = (each for each in SERVICES if each.name == name)
    assert composed(service)["environment"] == service.environment


def test_the_broker_has_the_same_settings() -> None:
    [service] = (each for each in SERVICES if each.name == "kafka")
    environment = dict(composed(service)["environment"])
    assert environment.items() >= service.environment.items()
    broker = kafka.broker_settings(1, 1, 2, Path("/"))
    for name in broker.keys() - OWN_PLACES:
        assert environment[f"KAFKA_{name.upper().replace('.', '_')}"] == broker[name]
    known = {f"KAFKA_{name.upper().replace('.', '_')}" for name in broker}
    assert environment.keys() - known == {"KAFKA_HEAP_OPTS"}


def test_versions_of_images_are_those_of_the_processes() -> None:
    tagged = {name: service["image"].partition("@")[0] for name, service in COMPOSE["services"].items()}
    assert tagged["kafka"].partition(":")[2] == KAFKA_JAR.rpartition(":")[2]
    assert tagged["s3"].partition(":")[2] == s3.VERSITYGW.rpartition("@")[2]


def test_every_variable_is_in_the_file_and_used() -> None:
    text = (DOCKER / "compose.yaml").read_text("utf-8")
    used = set(re.findall(r"\$\{(\w+)\}", text))
    told = re.findall(r"^(\w+)=", (DOCKER / "environment").read_text("utf-8"), re.MULTILINE)
    assert sorted(told) == sorted(used)


def test_every_variable_of_the_platform_is_a_setting() -> None:
    known = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields} | {"DAGSTER_HOME", VARIABLE}
    for service in SERVICES:
        if service.command:
            assert service.environment.keys() <= known


def test_natively_all_hosts_are_loopback_and_all_data_is_in_the_folder(tmp_path: Path) -> None:
    variables = natively(DOCKER / "environment", tmp_path, S3_PORT="1")
    at = topology.Topology(variables)
    daemon = at.environment("daemon")
    assert daemon["DEDUP_PLATFORM_S3_ENDPOINT"] == "http://127.0.0.1:1"
    assert daemon["DEDUP_PLATFORM_SPARK_REMOTE"] == ("sc://127.0.0.1:15002/;authorization=Bearer%20development-only")
    assert daemon["DEDUP_PLATFORM_STREAMS"] == str(DOCKER / "streams")
    assert daemon["DAGSTER_HOME"] == str(tmp_path / "platform" / "dagster")
    assert at.environment("spark")["DEDUP_PLATFORM_CONNECT_ADDRESS"] == "127.0.0.1"


def test_a_file_of_variables_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"/environment: there is no such file of variables"):
        natively(tmp_path / "environment", tmp_path)


def test_dagster_is_set_up_as_elsewhere_with_its_storage_on_postgres(tmp_path: Path) -> None:
    uri = "postgresql+psycopg2://user@host/name"
    embedded.make_dagster_home(Settings(home=tmp_path, dagster_uri=uri))
    made = yaml.safe_load((tmp_path / "dagster" / "dagster.yaml").read_text("utf-8"))
    assert yaml.safe_load((DOCKER / "dagster.yaml").read_text("utf-8")) == made


def test_its_streams_are_some() -> None:
    assert load_streams(DOCKER / "streams")


def test_the_image_runs_as_nobody_special_and_has_what_is_copied() -> None:
    lines = (DOCKER / "Dockerfile").read_text("utf-8").splitlines()
    assert "USER dedup" in lines
    assert any(line.startswith("HEALTHCHECK ") for line in lines)
    copied = {word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]}
    kept = {line[1:] for line in (PROJECT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    assert copied == kept
    assert all((PROJECT / name).exists() for name in copied)
