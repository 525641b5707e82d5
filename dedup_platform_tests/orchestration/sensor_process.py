"""Evaluates all sensors of DEDUP_PLATFORM_STREAMS and prints how many Java processes that started."""

import sys

import psutil  # type: ignore[import-untyped]

from dedup_platform.definitions import definitions
from dedup_platform.orchestration.embedded import open_instance
from dedup_platform.orchestration.rehearsal import evaluate
from dedup_platform.settings import load_settings

loaded = definitions()
with open_instance(load_settings()) as instance:
    for sensor in loaded.sensors or ():
        evaluate(loaded, instance, sensor.name)
java = [child for child in psutil.Process().children(recursive=True) if "java" in child.name()]
sys.stdout.write(f"{len(java)} java processes\n")
