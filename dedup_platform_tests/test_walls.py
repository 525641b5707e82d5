"""The walls between the rooms stand: the linter refuses a planted import through each of them."""

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


def test_the_walls_stand() -> None:
    result = lint(PROJECT)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("module", "planted"),
    [
        ("ingest/ingest.py", "import dagster"),
        ("stages/sessions.py", "from dagster_pyspark import PySparkResource"),
        ("demo/truth.py", "import dagster"),
        ("platform.py", "from dedup_platform.orchestration import runs"),
        ("stages/sessions.py", "from dedup_platform import lakehouse"),
        ("stages/sessions.py", "from dedup_platform.ledger import Ledger"),
        ("stages/sessions.py", "from pyiceberg.table import Table"),
        ("kernels/sessions.py", "from dedup_platform import lakehouse"),
        ("kernels/sessions.py", "from pyspark.sql import DataFrame"),
        ("sources/decoding.py", "from dedup_platform import lakehouse"),
        ("tables.py", "from dedup_platform.stages import sessions"),
        ("stream/model.py", "from dedup_platform import tables"),
        ("lateness.py", "from dedup_platform.stream import Stream"),
        ("lateness.py", "import pydantic"),
        ("circuit.py", "from dedup_platform.stream import Stream"),
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


def test_lateness_knows_the_standard_library_only() -> None:
    tree = ast.parse((PROJECT / "dedup_platform" / "lateness.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names


def test_stages_and_lateness_work_without_dagster() -> None:
    script = "import sys, dedup_platform.stages.sessions, dedup_platform.lateness; assert 'dagster' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
