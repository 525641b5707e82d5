"""What it takes to run is locked apart: the same versions and hashes, and nothing that only tests or benchmarks ask."""

import re
import tomllib
from collections import defaultdict

from dedup_platform_tests.conftest import PROJECT


def locked(name: str) -> dict[str, set[str]]:
    """Name and version of each package -> the hashes of its files."""
    found = defaultdict[str, set[str]](set)
    pin = ""
    for line in (PROJECT / name).read_text("utf-8").splitlines():
        if pinned := re.match(r"([a-z0-9-]+)(?:\[[a-z0-9,-]+\])?==([^ ;]+)", line):
            pin = "==".join(pinned.groups())
        elif told := re.search(r"--hash=(\S+)", line):
            found[pin].add(told[1])
    return dict(found)


def test_what_runs_is_locked_as_what_is_tested() -> None:
    tested, run = locked("requirements.lock"), locked("requirements-run.lock")
    assert len(run) > 100
    assert {pin: tested.get(pin) for pin in run} == run


def test_the_image_has_nothing_of_tests_and_benchmarks() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {name for extra in project["optional-dependencies"].values() for name in extra}
    run = {pin.partition("==")[0] for pin in locked("requirements-run.lock")}
    assert extras & run == set()
    assert {re.split(r"[\[<>=]", name)[0] for name in project["dependencies"]} <= run
    image = (PROJECT / "docker" / "Dockerfile").read_text("utf-8")
    assert "--require-hashes -r requirements-run.lock" in image
    assert "requirements.lock" not in image
