"""Ingests a stream again and again until it is killed: `python child.py HOME STREAM_FILE`."""

import sys
import time
from pathlib import Path

from dedup_platform.errors import DedupPlatformError
from dedup_platform.platform import Platform
from dedup_platform.settings import load_settings
from dedup_platform.spark import spark_session
from dedup_platform.stream import load_stream


def main(home: Path, stream_file: Path) -> None:
    settings = load_settings(home=home)
    stream = load_stream(stream_file)
    platform = Platform.open(settings, {stream.name: stream}, spark=lambda: spark_session(settings))
    platform.lake.spark()
    sys.stdout.write("begins\n")
    sys.stdout.flush()
    while True:
        try:
            platform.ingest(stream.name)
        except DedupPlatformError as error:
            # A broker that is being restarted.
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        time.sleep(0.05)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
