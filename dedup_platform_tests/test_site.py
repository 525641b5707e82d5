"""The pages of docs/ are a site without a link that leads nowhere: the same build as in `make lint`."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dedup_platform_tests.conftest import PROJECT


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site as `make docs` does, somewhere else."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)]
    command += ["--site-dir", str(site)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_pages_are_a_site(tmp_path: Path) -> None:
    built = build(PROJECT / "mkdocs.yml", tmp_path / "site")
    assert built.returncode == 0, built.stderr
    pages = {page.relative_to(PROJECT / "docs").with_suffix(".html") for page in (PROJECT / "docs").rglob("*.md")}
    assert pages <= {page.relative_to(tmp_path / "site") for page in (tmp_path / "site").rglob("*.html")}


def test_every_decision_is_in_their_list() -> None:
    decisions = PROJECT / "docs" / "decisions"
    listed = [line for line in (decisions / "index.md").read_text("utf-8").splitlines() if line.startswith("- ")]
    titles = [(page.name, page.read_text("utf-8").splitlines()[0][2:]) for page in sorted(decisions.glob("0*.md"))]
    assert listed == [f"- [{title}]({name})" for name, title in titles]


@pytest.mark.parametrize(
    ("page", "text", "complaint"),
    [
        ("health.md", "[gone](gone.md)", "gone.md"),
        ("health.md", "[nowhere](operating.md#nowhere)", "nowhere"),
        ("health.md", "[outside](../README.md)", "../README.md"),
        ("unlisted.md", "# Unlisted", "unlisted.md"),
    ],
)
def test_what_leads_nowhere_is_refused(page: str, text: str, complaint: str, tmp_path: Path) -> None:
    shutil.copy(PROJECT / "mkdocs.yml", tmp_path)
    shutil.copytree(PROJECT / "docs", tmp_path / "docs")
    with (tmp_path / "docs" / page).open("a", encoding="utf-8") as file:
        file.write(f"\n{text}\n")
    built = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert built.returncode != 0
    assert complaint in built.stderr


def test_lint_builds_it() -> None:
    lint = (PROJECT / "Makefile").read_text("utf-8").split("\nlint:", 1)[1].split("\n\n", 1)[0]
    assert "mkdocs build --strict" in lint
