"""A process with its own Spark that does what it is told, a line of JSON at a time, and answers each with a line.

Its first answer, an empty one, says that it is ready. A command is {"home", "stream", "places", "do", ...}: `places`
are the settings of what is not in the home. An answer is {} when it is done, {"retry": message} for an error that says
so of itself, {"failed": traceback} for anything else.
"""

import json
import sys
import tempfile
import traceback
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from dedup_platform import tables
from dedup_platform.errors import ConflictError
from dedup_platform.platform import Platform
from dedup_platform.settings import JARS, POSTGRES_JAR, Settings
from dedup_platform.spark.jars import jars_conf
from dedup_platform.spark.session import spark_session
from dedup_platform.stream import load_stream
from dedup_platform.testing import HeldClock, temporary_platform


def main(now: datetime) -> None:
    """Answer until there are no more commands."""
    with tempfile.TemporaryDirectory() as home:
        jars = jars_conf((*JARS, POSTGRES_JAR))
        spark = spark_session(Settings(home=Path(home), spark_master="local[1]", spark_conf=jars))

        @cache
        def platform(home: str, stream_file: str, places: str) -> Platform:
            stream = load_stream(Path(stream_file))
            return temporary_platform(Path(home), stream, spark, HeldClock(now), **json.loads(places))

        say({})
        for line in sys.stdin:
            command = json.loads(line)
            say(answer(platform(command["home"], command["stream"], json.dumps(command["places"])), command))
        spark.stop()


def answer(platform: Platform, command: dict[str, Any]) -> dict[str, str]:
    [stream] = platform.streams
    try:
        match command["do"]:
            case "ingest":
                platform.ingest(stream)
            case "repair":
                platform.repair(stream)
            case "recompute":
                for table in tables.DERIVED:
                    platform.recompute(stream, table, command["partitions"])
    except ConflictError as error:
        return {"retry": str(error)}
    except Exception:
        return {"failed": traceback.format_exc()}
    return {}


def say(what: dict[str, str]) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(datetime.fromisoformat(sys.argv[1]))
