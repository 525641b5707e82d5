"""Spark's Java reads an archive of its classes where there is one that only we can write."""

import subprocess
from pathlib import Path

import pyspark
import pytest

from dedup_platform.settings import Settings
from dedup_platform.spark.class_archive import archive_options, class_archive
from dedup_platform.spark.jars import java
from dedup_platform.spark.session import spark_conf

INSTALL = "there is no archive of Spark's classes: python -m dedup_platform.spark.class_archive"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    class_archive().parent.mkdir(parents=True)
    return tmp_path


def driver_options(home: Path) -> str:
    return spark_conf(Settings(home=home))["spark.driver.extraJavaOptions"]


def test_without_one_java_is_told_of_none(cache: Path) -> None:
    assert archive_options() == ""
    assert "SharedArchiveFile" not in driver_options(cache)


def test_one_that_is_there_is_read(cache: Path) -> None:
    class_archive().touch(0o600)
    assert f"'-XX:SharedArchiveFile={class_archive()}'" in driver_options(cache)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_one_that_others_may_write_is_not(mode: int) -> None:
    class_archive().touch()
    class_archive().chmod(mode)
    assert archive_options() == ""


def test_another_java_has_another(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = class_archive()
    (cache / "bin").mkdir()
    (cache / "bin" / "java").touch(0o755)
    (cache / "release").write_text('JAVA_VERSION="17.0.99"')
    monkeypatch.setenv("JAVA_HOME", str(cache))
    assert class_archive() != first


def test_the_one_of_this_machine_is_of_this_java_and_these_jars() -> None:
    if not class_archive().is_file():
        pytest.skip(INSTALL)
    jars = Path(pyspark.__file__).parent / "jars"
    # As Spark's own script names them.
    command = [str(java()), "-XX:+UseParallelGC", f"-XX:SharedArchiveFile={class_archive()}", "-Xshare:on", "-Xlog:cds"]
    spark = ["-cp", f"{jars.parent}/conf/:{jars}/*", "org.apache.spark.deploy.SparkSubmit", "--version"]
    done = subprocess.run([*command, *spark], capture_output=True, text=True, check=False)
    assert "Mapped dynamic region" in done.stdout, done.stdout + done.stderr
