"""Starts an ingest for each line that it reads, and tells its process id; its arguments are HOME and STREAM_FILE.

An ingest goes on until it is killed.
"""

import sys
from pathlib import Path

from dedup_platform.errors import DedupPlatformError
from dedup_platform.platform import Platform
from dedup_platform.settings import Settings, load_settings
from dedup_platform.spark.session import spark_session
from dedup_platform.stream import Stream, load_stream
from dedup_platform_tests.soak.forks import begun, fork_for_each_line


def main(home: Path, stream_file: Path) -> None:
    settings, stream = load_settings(home=home), load_stream(stream_file)
    fork_for_each_line(lambda _: ingest_for_ever(settings, stream))


def ingest_for_ever(settings: Settings, stream: Stream) -> None:
    platform = Platform(settings, {stream.name: stream}, spark=lambda: spark_session(settings))
    platform.lake.spark()
    for _ in begun():
        try:
            platform.ingest(stream.name)
        except DedupPlatformError as error:
            # A broker that is being restarted.
            sys.stderr.write(f"{type(error).__name__}: {error}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
