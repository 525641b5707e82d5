"""Jars are what the project knows them to be, or nothing is started."""

import os
from pathlib import Path

import pytest

from dedup_platform.errors import WrongJarError
from dedup_platform.settings import AWS_JAR, JARS, POSTGRES_JAR, Settings
from dedup_platform.spark import jars
from dedup_platform.spark.connect_server import prepare
from dedup_platform.spark.jars import check_jars, jars_conf, jars_of_spark, require_jars
from dedup_platform.spark.session import spark_session
from dedup_platform_tests.conftest import PROJECT

ALL = (*JARS, POSTGRES_JAR, AWS_JAR)


@pytest.fixture
def ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of jars with the real ones in it, which may be spoiled."""
    real = jars_of_spark(ALL)
    if missing := [file.name for file in real if not file.is_file()]:
        pytest.skip(f"{missing} are not there: python -m dedup_platform.testing.servers install spark")
    monkeypatch.setattr(jars, "IVY", tmp_path)
    (tmp_path / "jars").mkdir()
    for file in real:
        os.link(file, tmp_path / "jars" / file.name)
    return tmp_path / "jars"


def spoil(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.unlink()
    file.write_bytes(content)


def test_jars_that_were_tested_are_taken(ivy: Path) -> None:
    require_jars(Settings(home=ivy))
    check_jars(jars_of_spark(ALL))
    assert jars_conf(JARS) == {"spark.jars": ",".join(map(str, jars_of_spark(JARS)))}


@pytest.mark.usefixtures("ivy")
def test_with_another_jar_no_spark_is_started(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    require_jars(settings)
    [_, sqlite] = jars_of_spark(JARS)
    spoil(sqlite)
    settings.make_folders()
    for start in (spark_session, lambda settings: prepare(settings, 1)):
        with pytest.raises(WrongJarError, match=f"{sqlite}: this is not the jar that was tested.*Delete it"):
            start(settings)
    assert not list(settings.home.glob("connect-server.conf"))


def test_whoever_says_where_jars_come_from_is_left_to_it(ivy: Path) -> None:
    spoil(jars_of_spark(JARS)[0])
    require_jars(Settings(home=ivy, spark_conf={"spark.jars": "/elsewhere.jar"}))


def test_a_jar_that_nobody_knows_is_none_that_was_tested(tmp_path: Path) -> None:
    (tmp_path / "another.jar").write_bytes(b"PK")
    with pytest.raises(WrongJarError):
        check_jars([tmp_path / "another.jar"])


def test_all_that_the_project_downloads_is_known() -> None:
    assert {file.name for file in jars_of_spark(ALL)} < jars._known().keys()
    lines = (PROJECT / "dedup_platform" / "spark" / "jars.sha256").read_text().splitlines()
    assert len(lines) == len(jars._known())
