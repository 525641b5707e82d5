"""Imports between packages point one way: the linter refuses a planted import against each arrow."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
LINTER = Path(sys.executable).with_name("lint-imports")


def lint(project: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LINTER, "--no-cache"], cwd=project, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its linter's settings, to plant imports in."""
    project = tmp_path_factory.mktemp("project")
    shutil.copytree(
        PROJECT / "dedup_platform", project / "dedup_platform", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(PROJECT / "pyproject.toml", project)
    return project


def test_imports_point_one_way() -> None:
    result = lint(PROJECT)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("module", "planted"),
    [
        ("ingest/ingest.py", "import dagster"),
        ("verification/sessions.py", "from dagster_pyspark import PySparkResource"),
        ("demo/truth.py", "import dagster"),
        ("platform/context.py", "from dedup_platform.orchestration import runs"),
        ("orchestration/sensors.py", "from dedup_platform.cli import output"),
        ("demo/found.py", "from dedup_platform.orchestration import runs"),
        ("ingest/ingest.py", "from dedup_platform.replay import rewrite"),
        ("recompute/build.py", "from dedup_platform import ingest"),
        ("ledger/ledger.py", "from dedup_platform.recompute import build"),
        ("lake/lakehouse.py", "from dedup_platform.ledger import Ledger"),
        ("verification/sessions.py", "from dedup_platform import lake"),
        ("verification/sessions.py", "from dedup_platform.ledger import Ledger"),
        ("verification/sessions.py", "from pyiceberg.table import Table"),
        ("rules/sessions.py", "from dedup_platform import lake"),
        ("rules/sessions.py", "from dedup_platform.sources import times"),
        ("rules/sessions.py", "from pyspark.sql import DataFrame"),
        ("sources/decoding.py", "from dedup_platform import lake"),
        ("spark/workers.py", "from dedup_platform import sources"),
        ("tables.py", "from dedup_platform.verification import sessions"),
        ("stream/model.py", "from dedup_platform import tables"),
        ("planning/planner.py", "from dedup_platform.stream import Stream"),
        ("planning/cells.py", "import pydantic"),
        ("planning/circuit_breaker.py", "from dedup_platform.stream import Stream"),
        ("settings.py", "from dedup_platform.stream import Stream"),
        ("stream/model.py", "from dedup_platform import settings"),
        ("stream/model.py", "import pyarrow"),
        ("verification/verify.py", "from dedup_platform.rules import sessions"),
        ("verification/verify.py", "from dedup_platform.recompute import build"),
        ("lake/publishing.py", "from dedup_platform.rules import sessions"),
        ("ledger/fold.py", "from dedup_platform.sources import decoding"),
        ("rules/sessions.py", "from dedup_platform.spark import workers"),
        ("errors.py", "from dedup_platform_tests import homes"),
    ],
)
def test_a_planted_import_is_refused(copy: Path, module: str, planted: str) -> None:
    file = copy / "dedup_platform" / module
    before = file.read_text()
    file.write_text(f"{before}\n\ndef _planted() -> None:\n    {planted}\n")
    try:
        result = lint(copy)
    finally:
        file.write_text(before)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "BROKEN" in result.stdout


def test_planning_knows_the_standard_library_and_itself_only() -> None:
    for file in (PROJECT / "dedup_platform" / "planning").glob("*.py"):
        tree = ast.parse(file.read_text())
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        others = {name for name in imported if not name.startswith("dedup_platform.planning.")}
        assert {name.split(".")[0] for name in others} <= sys.stdlib_module_names


def test_a_package_that_no_layer_names_is_refused(copy: Path) -> None:
    new = copy / "dedup_platform" / "elsewhere.py"
    new.touch()
    try:
        result = lint(copy)
    finally:
        new.unlink()
    assert result.returncode == 1, result.stdout + result.stderr


def test_commands_and_rules_work_without_dagster() -> None:
    """It takes as long to load as a quarter of a command's start."""
    loaded = "dedup_platform.platform, dedup_platform.verification.sessions, dedup_platform.cli.output"
    assert found_loaded(loaded, "{'dagster'}") == []


def test_the_help_of_commands_waits_for_no_engine() -> None:
    heavy = "{'dagster', 'pandas', 'polars', 'pyarrow', 'pydantic', 'pyiceberg', 'pyspark', 'sqlalchemy'}"
    assert found_loaded("dedup_platform.cli", heavy) == []


@pytest.mark.parametrize("modules", ["recompute.tasks", "ingest.append, dedup_platform.sources.files"])
def test_workers_import_no_catalog(modules: str) -> None:
    """They start with every Spark session, and what they need not would be waited for."""
    needless = "{'boto3', 'dagster', 'pydantic_settings', 'sqlalchemy'}"
    assert found_loaded(f"dedup_platform.{modules}", needless) == []


def found_loaded(modules: str, some: str) -> list[str]:
    """Which modules of a set are loaded by loading others."""
    program = f"import sys, {modules}; print(*sorted({some} & sys.modules.keys()))"
    told = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
    return told.stdout.split()
