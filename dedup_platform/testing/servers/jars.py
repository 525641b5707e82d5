"""Jars by their Maven coordinates, downloaded by the Ivy that PySpark brings; no Maven is needed."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyspark

from dedup_platform.errors import MissingPartError, ServerStartError
from dedup_platform.spark.session import IVY

__all__ = ["download", "install_for_spark", "java"]

_CONFIGURATION = "default"


def java() -> Path:
    """The `java` of JAVA_HOME, else of the PATH. Raises MissingPartError."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        raise MissingPartError("Java 17", "apt-get install openjdk-17-jre-headless")
    return Path(found)


def install_for_spark(coordinates: Sequence[str], is_complete: bool = False) -> Path:
    """Download jars to where `spark.jars_conf` looks for them; returns that folder. Otherwise like `download`."""
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
