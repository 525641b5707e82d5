"""`python -m dedup_platform_tests.working_daemon pyspark.worker`: the daemon with a worker of ours, for a test to ask.

A third argument is after how many seconds without workers it ends.
"""

import json
import sys
from io import BytesIO
from typing import BinaryIO

import pyspark.worker
from pyspark.serializers import UTF8Deserializer, write_with_length

from dedup_platform import worker_daemon

ROWS, KEYS = 200_000, 1_000


def work(infile: BinaryIO, outfile: BinaryIO) -> None:
    """What tasks do in several threads. The order says how many messages of which topic to read, or is null."""
    order = json.loads(UTF8Deserializer().loads(infile))
    done = {"modules": list(sys.modules), "rows": columns(), "messages": 0}
    if order:
        done["messages"] = messages(**order)
    write_with_length(json.dumps(done).encode(), outfile)


def columns() -> int:
    """Grouped and sorted by Polars, written and read by Arrow, both with all their threads; how many rows there are."""
    import polars as pl
    import pyarrow.parquet as pq

    numbers = pl.DataFrame({"number": pl.int_range(ROWS, eager=True)}).with_columns(key=pl.col("number") % KEYS)
    sums = numbers.group_by("key").agg(pl.col("number").sum(), pl.len()).sort("number", "key")
    buffer = BytesIO()
    pq.write_table(numbers.join(sums, on="key").sort("key", "number").to_arrow(), buffer, row_group_size=ROWS // 20)
    return int(pq.read_table(BytesIO(buffer.getvalue()), use_threads=True).num_rows)


def messages(topic: str, count: int, settings: dict[str, str]) -> int:
    """How many of so many messages a consumer gets."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return len(consumer.consume(count, timeout=60))
    finally:
        consumer.close()


if __name__ == "__main__":
    pyspark.worker.main = work
    if len(sys.argv) > 2:
        worker_daemon._SECONDS_UNUSED = float(sys.argv[2])
    worker_daemon.main()
