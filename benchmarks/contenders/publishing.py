"""This platform with feeds and sinks, and the least that it takes to bring the same rows to the same places."""

import json
import shutil
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import polars as pl
import psycopg2
import pyarrow.parquet as pq
from confluent_kafka import Producer
from pyiceberg.exceptions import NoSuchTableError

from benchmarks.contenders.ours import STREAM, Ours
from dedup_platform import tables
from dedup_platform.changes.reading import FRESH, FeedReader
from dedup_platform.lake.snapshots import head
from dedup_platform.platform import Platform
from dedup_platform.sinks import Position, Target
from dedup_platform.sinks.messages import Json, Message, messages
from dedup_platform.sinks.opening import KEYS
from dedup_platform.sinks.postgres import as_text
from dedup_platform.stream import Publish
from dedup_platform.tables import SESSIONS

SINK = "copy"


class Publishing(Ours):
    """Rebuilds with and without feeds; then all sessions go to a sink, and beside it the same rows as they are."""

    def clear(self) -> None:
        for feed in tables.FOLLOWED:
            try:
                self.platform.lake.catalog.iceberg.drop_table((STREAM, feed))
            except NoSuchTableError:
                continue
            shutil.rmtree(Path(self.settings.warehouse) / STREAM / feed)
        super().clear()

    def rebuild_with_feeds(self) -> dict[str, Any]:
        """Everything from nothing, and what that changed."""
        told = self.rebuild()
        done = self.platform.publish_changes(STREAM)
        return told | {"changes": sum(each.changes.total() for each in done)}

    def publish(self, sink: dict[str, str], secrets: dict[str, str]) -> dict[str, Any]:
        """Bring all sessions to a sink, which is empty."""
        said = Publish.model_validate({"sinks": {SINK: sink | {"follows": SESSIONS}}})
        stream = self.stream.model_copy(update={"publish": said})
        settings = self.settings.model_copy(update={"postgres": secrets})
        done = Platform(settings, {STREAM: stream}, self._spark).publish(STREAM, SINK)
        return {"rows": done.sent.total()}

    def make_ready(self) -> None:
        """Have in memory what the plain ways send. Not timed: it is to be the floor."""
        catalog, stream = self.platform.lake.catalog, self.stream
        snapshot = head(catalog.load_table(STREAM, SESSIONS)).snapshot_id
        reader = FeedReader(self.platform.lake, stream, SESSIONS, SINK)
        rows = pl.concat(list(reader.rows(Position("", 1, FRESH, snapshot))))
        target = Target(STREAM, SINK, SESSIONS, tables.columns(stream, SESSIONS), KEYS[SESSIONS])
        names = [column.name for column in target.columns]
        self._texts = as_text(rows.select(*names, "_commit_version"))
        self._messages = list(messages(rows, Json(target, "debezium"), begins=True))

    def copy_plainly(self, uri: str, secrets: dict[str, str], like: str) -> dict[str, Any]:
        """One COPY into a table like another one, which has the same key."""
        with closing(psycopg2.connect(uri, **secrets)) as opened, opened as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS plain; CREATE TABLE plain (LIKE {like} INCLUDING ALL)")
            self._texts.seek(0)
            cursor.copy_expert("COPY plain FROM STDIN", self._texts, 2**20)
            return {"rows": cursor.rowcount}

    def produce_plainly(self, brokers: str, topic: str) -> dict[str, Any]:
        """A producer that is told of no message and commits nothing."""
        return _produced(brokers, topic, self._messages)

    def produce_by_script(self, brokers: str, topic: str) -> dict[str, Any]:
        """The same without messages at hand: rows of the table's files, each dumped as JSON."""
        table = self.platform.lake.catalog.load_table(STREAM, SESSIONS)
        files = (urlsplit(task.file.file_path).path for task in table.scan().plan_files())
        rows = (row for file in files for batch in pq.ParquetFile(file).iter_batches() for row in batch.to_pylist())
        return _produced(brokers, topic, ((row["session_id"], json.dumps(row, default=str)) for row in rows))


def _produced(brokers: str, topic: str, messages: Iterable[Message]) -> dict[str, Any]:
    producer, rows = Producer({"bootstrap.servers": brokers, "compression.type": "zstd", "linger.ms": 20}), 0
    for key, value in messages:
        rows += 1
        while True:
            try:
                producer.produce(topic, key=key, value=value)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    return {"rows": rows}
