"""`python -m dedup_platform.testing.servers install`: download the jars that tests of real servers need."""

import argparse
import sys

from dedup_platform.errors import DedupPlatformError
from dedup_platform.settings import AWS_JAR, JARS, POSTGRES_JAR
from dedup_platform.spark import IVY
from dedup_platform.testing.servers.jars import download
from dedup_platform.testing.servers.kafka import install_kafka
from dedup_platform.testing.servers.postgres import postgres_program
from dedup_platform.testing.servers.s3 import versitygw


def main() -> int:
    """Install what can be downloaded, and say what else is missing; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dedup_platform.testing.servers", description=__doc__)
    parser.add_argument("action", choices=["install"])
    parser.parse_args()
    try:
        _say(f"Kafka: {install_kafka()}")
        download(
            (*JARS, POSTGRES_JAR, AWS_JAR),
            IVY / "jars",
            IVY,
            "[organization]_[artifact]-[revision](-[classifier]).[ext]",
        )
        _say(f"Spark's jars: {IVY / 'jars'}")
        _say(f"S3: {versitygw()}")
        _say(f"Postgres: {postgres_program('postgres')}")
    except DedupPlatformError as error:
        _say(f"error: {error}")
        return 1
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
