"""What the documents say is so: their commands exist, their tables are complete, their examples work."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
import yaml
from typer.core import TyperGroup
from typer.testing import CliRunner

from dedup_platform import cli
from dedup_platform.errors import DedupPlatformError
from dedup_platform.settings import ENV_PREFIX, Settings, load_settings
from dedup_platform.sources import records
from dedup_platform.stream import Health, load_stream, load_streams

PROJECT = Path(__file__).parent.parent
DOCUMENTS = [PROJECT / "README.md", PROJECT / "CHANGELOG.md", *sorted((PROJECT / "docs").rglob("*.md"))]
BIN = Path(sys.executable).parent


def fenced(document: Path, language: str) -> list[str]:
    """The document's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def commands() -> Iterator[list[str]]:
    """Every command line of the documents, as words: the lines of shell blocks, and what stands in `quotes`."""
    for document in DOCUMENTS:
        blocks = [line for block in fenced(document, "sh") for line in block.splitlines()]
        quoted = re.findall(r"`((?:make|dedup-platform) [^`…]*)`", document.read_text("utf-8"))
        for line in [*blocks, *quoted]:
            if not line.startswith("export "):
                yield [word.removeprefix(".venv/bin/") for word in shlex.split(line)]


def rows(document: str, heading: str) -> list[list[str]]:
    """The cells of the first table after a heading, without its own head."""
    section = (PROJECT / document).read_text("utf-8").split(f"## {heading}\n", 1)[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def names(cell: str) -> list[str]:
    """What stands in `quotes` in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def is_understood(words: list[str]) -> bool:
    """Whether the command line has this command and these options; asking for help parses without running."""
    return CliRunner().invoke(cli.app, [*words, "--help"]).exit_code == 0


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_of_the_documents_exists(words: list[str]) -> None:
    if words[0] == "make":
        makefile = (PROJECT / "Makefile").read_text("utf-8")
        targets = re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE)
        settings = re.findall(r"^([A-Z_]+) \?=", makefile, re.MULTILINE)
        assert {word for word in words[1:] if "=" not in word} <= set(targets)
        assert {word.partition("=")[0] for word in words[1:] if "=" in word} <= set(settings)
    else:
        assert words[0] == "dedup-platform"
        assert is_understood(words[1:])


def test_a_command_that_does_not_exist_would_be_found() -> None:
    assert is_understood(["run", "--stream", "clicks"])
    assert not is_understood(["refresh"])
    assert not is_understood(["run", "--fast"])


def test_every_command_is_in_the_readme() -> None:
    told = {names(row[0])[0].split()[1] for row in rows("README.md", "Commands")}
    commands = typer.main.get_command(cli.app)
    assert isinstance(commands, TyperGroup)
    assert told == set(commands.commands)


def test_links_lead_to_files() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text("utf-8")):
            assert target.startswith("https://") or (document.parent / target).exists(), f"{document.name}: {target}"


def test_files_and_folders_that_are_named_exist() -> None:
    for document in DOCUMENTS:
        for path in re.findall(r"`((?:dedup_platform|docs|streams|\.ci)/[\w./-]+)`", document.read_text("utf-8")):
            assert (PROJECT / path).exists(), f"{document.name}: {path}"


def test_check_of_the_examples() -> None:
    command = [str(BIN / "dedup-platform"), "check", "--offline", "--streams", "streams"]
    wide = {**os.environ, "COLUMNS": "300"}
    result = subprocess.run(command, cwd=PROJECT, env=wide, capture_output=True, text=True, check=True)
    assert all(name in result.stdout for name in ("clicks", "cloudtrail", "online_retail"))


def test_make_alone_prints_help() -> None:
    result = subprocess.run(["make"], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert all(
        f"make {target}" in result.stdout for target in ("setup", "demo", "test", "lint", "dev", "bench", "lock")
    )


def test_the_shortest_stream_file_is_one(tmp_path: Path) -> None:
    text, *sources = fenced(PROJECT / "README.md", "yaml")
    file = tmp_path / "visits.yaml"
    for source in [line for line in text.splitlines() if line.startswith("source:")] + sources:
        file.write_text(re.sub("^source:.*$", source.strip(), text, flags=re.MULTILINE))
        assert load_stream(file).source.model_dump(include={"kind"}) == {"kind": re.findall(r"kind: (\w+)", source)[0]}
    assert len(sources) == 2


def test_example_streams_are_named_as_their_files() -> None:
    streams = load_streams(PROJECT / "streams")
    assert [f"{name}.yaml" for name in streams] == [stream.origin.name for stream in streams.values()]


def test_settings_are_all_told_with_their_defaults() -> None:
    told = {names(row[0])[0]: row[1] for row in rows("docs/reference.md", "Settings")}
    assert told.keys() == {*(f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields), "DAGSTER_HOME"}
    settings = load_settings(home=Path("/home"))
    for name, default in told.items():
        value = getattr(settings, name.removeprefix(ENV_PREFIX).lower())
        if value is None:
            assert default == "none"
        elif name != f"{ENV_PREFIX}HOME":
            assert str(value) == names(default)[0].replace("<home>", "/home").replace("sqlite:////", "sqlite:///")


def test_exit_codes_are_those_of_the_command_line() -> None:
    told = {int(row[0]) for row in rows("docs/operating.md", "Exit codes of the command line")}
    assert told == {0, cli.NOT_EQUAL, cli.FAILED, cli.INTERRUPTED, *(code for _, code in cli.EXIT_CODES)}


def test_rejection_reasons_are_all_told() -> None:
    told_reasons = rows("docs/semantics.md", "Rejected records")
    told = {name.replace("NAME", "").replace("NUMBER", "") for row in told_reasons for name in names(row[0])}
    constants = {name: value for name, value in vars(records).items() if name in records.__all__ and name.isupper()}
    assert told == {value for value in constants.values() if isinstance(value, str)}


def test_health_is_told_as_it_is() -> None:
    from dedup_platform.planning.health import DESCRIPTIONS
    from dedup_platform.platform.metrics import METRICS

    assert {names(row[0])[0] for row in rows("docs/health.md", "The checks")} == DESCRIPTIONS.keys()
    assert [name for row in rows("docs/health.md", "Metrics") for name in names(row[0])] == list(METRICS)
    [said] = fenced(PROJECT / "docs" / "health.md", "yaml")
    assert Health.model_validate(yaml.safe_load(said)["health"]).model_fields_set == Health.model_fields.keys()
    assert [names(row[0])[0] for row in rows("docs/health.md", "Limits")] == list(Health.model_fields)


def test_errors_are_drawn_as_they_are() -> None:
    from dedup_platform import errors

    drawn, inner = (re.findall(f"^{lead}[├└]── (\\w+) ", errors.__doc__ or "", re.MULTILINE) for lead in ("", "│   "))
    assert set(inner) <= {kind.__name__ for kind in errors.ConflictError.__subclasses__()}
    assert sorted(drawn) == sorted(kind.__name__ for kind in DedupPlatformError.__subclasses__())
    assert sorted([*drawn, "DedupPlatformError"]) == sorted(errors.__all__)
