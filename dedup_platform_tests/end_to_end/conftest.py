"""A real `make dev` on free loopback ports, spoken to as the UI does."""

import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from dedup_platform.testing.servers import free_port
from dedup_platform_tests.conftest import FEW_ROWS

LOCATION = "dedup_platform.definitions"
PATIENCE = 300
"""Seconds that a slow machine gets for a step of a test."""
BRIEF = {
    "DEDUP_PLATFORM_SPARK_MASTER": "local[2]",
    "DEDUP_PLATFORM_DRIVER_MEMORY": "1g",
    "DEDUP_PLATFORM_SPARK_CONF": json.dumps(FEW_ROWS),
    "DEDUP_PLATFORM_SENSOR_INTERVAL": "5",
}
"""Settings for runs of a few seconds."""


class Webserver:
    """The GraphQL interface of one `dagster dev`, and the processes behind it."""

    def __init__(self, port: int, process: psutil.Process) -> None:
        self.port = port
        self._url = f"http://127.0.0.1:{port}/graphql"
        self._process = process

    def sparks(self) -> set[int]:
        """The ids of all Java processes that it and its runs have now."""
        found = set()
        for child in self._process.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                found |= {child.pid} if child.name() == "java" else set()
        return found

    def ask(self, query: str, **variables: Any) -> Any:
        """The one field that a query or mutation asks for; OSError while the server is not there yet."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.load(answer)
        assert "errors" not in found, found["errors"]
        [value] = found["data"].values()
        return value

    def status_of(self, method: str, path: str, body: bytes | None = None, **headers: str) -> int:
        """The status of an answer to a request with these headers, `_` for `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, named)
            return connection.getresponse().status
        finally:
            connection.close()

    def is_ready(self) -> bool:
        """Whether the code location is loaded."""
        try:
            found = self.ask("{ repositoriesOrError { ... on RepositoryConnection { nodes { name } } } }")
        except OSError:
            return False
        return bool(found.get("nodes"))

    def materialize(self, keys: list[list[str]], partition: str) -> str:
        """Start the run that the UI's button starts for one partition; its id."""
        selector = {
            "repositoryName": "__repository__",
            "repositoryLocationName": LOCATION,
            "jobName": "__ASSET_JOB",
            "assetSelection": [{"path": key} for key in keys],
        }
        metadata = {"tags": [{"key": "dagster/partition", "value": partition}]}
        parameters = {"selector": selector, "executionMetadata": metadata, "runConfigData": {}}
        answer = self.ask(
            "mutation($p: ExecutionParams!) { launchRun(executionParams: $p) {"
            " ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }",
            p=parameters,
        )
        return str(answer["run"]["runId"])

    def backfill(self, keys: list[list[str]], partitions: list[str]) -> str:
        """Start a backfill of these partitions from the assets; its id."""
        answer = self.ask(
            "mutation($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) {"
            " ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }",
            p={"assetSelection": [{"path": key} for key in keys], "partitionNames": partitions},
        )
        return str(answer["backfillId"])

    def backfill_status(self, backfill_id: str) -> str:
        answer = self.ask(
            "query($id: String!) { partitionBackfillOrError(backfillId: $id) {"
            " ... on PartitionBackfill { status } ... on PythonError { message } } }",
            id=backfill_id,
        )
        return str(answer["status"])

    def runs(self, **tags: str) -> list[dict[str, Any]]:
        """Runs with these tags, newest first."""
        answer = self.ask(
            "query($f: RunsFilter) { runsOrError(filter: $f) { ... on Runs { results {"
            " runId jobName status tags { key value } } } } }",
            f={"tags": [{"key": key, "value": value} for key, value in tags.items()]},
        )
        for run in answer["results"]:
            run["tags"] = {tag["key"]: tag["value"] for tag in run["tags"]}
        return list(answer["results"])

    def status(self, run_id: str) -> str:
        answer = self.ask("query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }", id=run_id)
        return str(answer["status"])

    def materialized_by(self, key: list[str], partition: str) -> str:
        """The run that materialized this partition last."""
        answer = self.ask(
            "query($key: AssetKeyInput!, $partitions: [String!]) { assetNodeOrError(assetKey: $key) {"
            " ... on AssetNode { assetMaterializations(partitions: $partitions, limit: 1) { runId } } } }",
            key={"path": key},
            partitions=[partition],
        )
        [found] = answer["assetMaterializations"]
        return str(found["runId"])


@contextmanager
def dagster_dev(environment: Mapping[str, str], log: Path, end: signal.Signals = signal.SIGINT) -> Iterator[Webserver]:
    """What `make dev` runs, while the block runs; fails if anything that it started outlives it, however it ends."""
    ports = [f"--{name}={free_port()}" for name in ("port", "spark-port")]
    with log.open("wb") as output:
        process = psutil.Popen(
            [sys.executable, "-m", "dedup_platform.dev", *ports],
            cwd=log.parent,
            env=os.environ | environment,
            stdout=output,
            stderr=output,
        )
    try:
        server = Webserver(int(ports[0].partition("=")[2]), process)
        wait_until(server.is_ready, "dagster dev answers", PATIENCE)
        yield server
    finally:
        started = process.children(recursive=True)
        process.send_signal(end)
        _, alive = psutil.wait_procs([process, *started], timeout=120)
        for each in alive:
            each.kill()
    assert not alive, f"{alive} outlived the process that started them"


def wait_until(condition: Callable[[], bool], what: str, seconds: float) -> None:
    """AssertionError if the condition does not come true in time."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"in {seconds} seconds it never came true that {what}"
        time.sleep(0.5)
