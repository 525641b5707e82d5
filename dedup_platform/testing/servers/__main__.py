"""`python -m dedup_platform.testing.servers install`: download the jars that tests of real servers need.

What cannot be downloaded is looked for, and how to get it is said where it is missing.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from dedup_platform.errors import DedupPlatformError
from dedup_platform.settings import AWS_JAR, JARS, POSTGRES_JAR
from dedup_platform.spark.jars import check_jars, install_for_spark, jars_of_spark
from dedup_platform.testing.servers.kafka import install_kafka
from dedup_platform.testing.servers.postgres import postgres_program
from dedup_platform.testing.servers.s3 import versitygw


def _install_spark() -> Path:
    jars = (*JARS, POSTGRES_JAR, AWS_JAR)
    folder = install_for_spark(jars)
    check_jars(jars_of_spark(jars))
    return folder


PARTS: dict[str, Callable[[], Path]] = {
    "spark": _install_spark,
    "kafka": install_kafka,
    "s3": versitygw,
    "postgres": lambda: postgres_program("postgres"),
}


def main() -> int:
    """Install the parts that were asked for, or all; returns the exit code, 1 if one is missing."""
    parser = argparse.ArgumentParser(prog="python -m dedup_platform.testing.servers", description=__doc__)
    parser.add_argument("action", choices=["install"])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="part", help=f"of {', '.join(PARTS)}")
    missing = 0
    for name in parser.parse_args().parts or PARTS:
        try:
            _say(f"{name}: {PARTS[name]()}")
        except DedupPlatformError as error:
            _say(f"{name}: {error}")
            missing = 1
    return missing


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
