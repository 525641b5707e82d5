"""Jars by their Maven coordinates: where they are, how they get there, and that they are what they should be.

`jars.sha256` holds the SHA-256 of each, as `sha256sum` writes it: else a repository, a proxy or whoever may write to
the folder could have Java run anything with the rights of its user. The Ivy that PySpark brings downloads them; no
Maven is needed.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import pyspark

from dedup_platform.errors import MissingPartError, ServerStartError, WrongJarError
from dedup_platform.settings import Settings

__all__ = [
    "IVY",
    "cache_folder",
    "check_jars",
    "download",
    "install_for_spark",
    "jars_conf",
    "jars_of_spark",
    "java",
    "require_jars",
]

IVY = Path.home() / ".ivy2.5.2"  # Spark 4.1's own default
_HASHES = Path(__file__).with_name("jars.sha256")
_CONFIGURATION = "default"
_OWN_WAYS = {"spark.jars", "spark.jars.ivySettings", "spark.jars.repositories"}
"""Who sets one of these has jars of their own, or gets them from elsewhere."""


def jars_conf(jars: Sequence[str]) -> dict[str, str]:
    """Properties that add these Maven coordinates, from Ivy's folder where they are, else downloaded by Spark."""
    # Given as files they need no resolution: half a second less, no network, and no forty lines of report.
    files = jars_of_spark(jars)
    if all(file.is_file() for file in files):
        return {"spark.jars": ",".join(map(str, files))}
    return {"spark.jars.packages": ",".join(jars), "spark.jars.ivy": str(IVY)}


def cache_folder() -> Path:
    """Where the user keeps what can be had or made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dedup_platform"


def require_jars(settings: Settings) -> None:
    """Have the jars that Spark needs be where `jars_conf` looks for them, downloaded if need be, and be the right ones.

    Raises WrongJarError, ServerStartError if they cannot be downloaded, MissingPartError if there is no Java. Who
    configures where jars come from is left to it.
    """
    if _OWN_WAYS & settings.spark_conf.keys():
        return
    files = jars_of_spark(settings.jars)
    if not all(file.is_file() for file in files):
        install_for_spark(settings.jars)
    check_jars(files)


def check_jars(files: Iterable[Path]) -> None:
    """Raises WrongJarError for the first of these jars that is not what it should be."""
    for file in files:
        told = file.stat()
        _check(file, told.st_size, told.st_mtime_ns)


@cache
def _check(file: Path, size: int, changed_at: int) -> None:  # noqa: ARG001  # a file that changed is looked at again
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if _known().get(file.name) != found:
        raise WrongJarError(str(file), found)


@cache
def _known() -> dict[str, str]:
    """The hash of each jar, by the name of its file."""
    lines = (line.split() for line in _HASHES.read_text(encoding="ascii").splitlines())
    return {name: known for known, name in lines}


def jars_of_spark(jars: Iterable[str]) -> list[Path]:
    """Where Spark's jars of these coordinates are, or would be."""
    return [IVY / "jars" / f"{jar.replace(':', '_', 1).replace(':', '-')}.jar" for jar in jars]


def java() -> Path:
    """The `java` of JAVA_HOME, else of the PATH. Raises MissingPartError."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        raise MissingPartError("Java 17", "apt-get install openjdk-17-jre-headless")
    return Path(found)


def install_for_spark(coordinates: Sequence[str], is_complete: bool = False) -> Path:
    """Download jars to where `jars_conf` looks for them; returns that folder. Otherwise like `download`."""
    folder = IVY / "jars"
    download(coordinates, folder, IVY, "[organization]_[artifact]-[revision](-[classifier]).[ext]", is_complete)
    return folder


def download(coordinates: Sequence[str], folder: Path, ivy: Path, names: str, is_complete: bool = False) -> None:
    """Download jars (`group:artifact:version`) and what they need into `folder`, named as Ivy's pattern `names` says.

    `is_complete` says that they need nothing else.

    `ivy` is Ivy's own folder, whose cache is used. Raises ServerStartError with what Ivy printed if one cannot be had.
    """
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    with tempfile.TemporaryDirectory() as scratch:
        module = Path(scratch, "ivy.xml")
        module.write_text(_module(coordinates, is_complete), encoding="utf-8")
        wanted = ["-ivy", str(module), "-confs", _CONFIGURATION, "-retrieve", str(folder / names)]
        command = [str(java()), "-jar", str(jar), "-cache", str(ivy / "cache"), *wanted]
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode:
        raise ServerStartError("Ivy", f"could not get {', '.join(coordinates)}", result.stdout + result.stderr)


def _module(coordinates: Sequence[str], is_complete: bool) -> str:
    """The description of a module that needs these jars, in Ivy's words."""
    transitive = "false" if is_complete else "true"
    attributes = f'conf="{_CONFIGURATION}-&gt;default" transitive="{transitive}"'
    needed = "".join(
        f'<dependency org="{group}" name="{artifact}" rev="{version}" {attributes}/>'
        for group, artifact, version in (each.split(":") for each in coordinates)
    )
    configurations = f'<configurations><conf name="{_CONFIGURATION}"/></configurations>'
    info = '<info organisation="dedup_platform" module="jars"/>'
    return f'<ivy-module version="2.0">{info}{configurations}<dependencies>{needed}</dependencies></ivy-module>'
