"""A million events through a real broker, while ingest is killed again and again and the broker is restarted.

The order of kills, batches and copies follows from a seed. At the end every committed message is one row of raw, no
more and no less, whatever was killed when.
"""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from dedup_platform.platform import Platform
from dedup_platform.processes import free_port
from dedup_platform.settings import ENV_PREFIX, Settings
from dedup_platform.spark.connect_server import connect_server
from dedup_platform.stream import Stream
from dedup_platform.tables import RAW_EVENTS
from dedup_platform.testing.servers import KafkaServer
from dedup_platform_tests.conftest import for_other_homes
from dedup_platform_tests.ingest.kafka.topics import NAME, Topic, platform_of, topic_stream
from dedup_platform_tests.servers import running
from dedup_platform_tests.soak.forks import forking

CHILD = "dedup_platform_tests.soak.child"
PARTITIONS = 8
KILLS_A_MILLION, FEWEST_KILLS, RESTARTS = 50, 12, 3
COPIES = 0.02
BATCH = 25_000
USERS = 20_000
START = datetime(2026, 11, 20, tzinfo=UTC)


IDEMPOTENT: dict[str, Any] = {"enable.idempotence": True}
# Sends again whatever it did not hear of: a broker that was restarted may have the first one, too.
RETRYING_BLINDLY: dict[str, Any] = {"enable.idempotence": False, "acks": 1, "request.timeout.ms": 2_000}


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A warm Spark for all children: a killed one leaves work behind that its server still finishes.

    They share one session, and with it workers that have imported everything.
    """
    home = tmp_path_factory.mktemp("soak-spark")
    with connect_server(Settings(home=home), free_port()) as server:
        yield for_other_homes(server)


def test_no_record_is_lost_or_doubled(
    soak_seed: int, soak_events: int, tmp_path: Path, remote: str, spark: SparkSession
) -> None:
    chance = random.Random(soak_seed)
    most = max(FEWEST_KILLS, soak_events * KILLS_A_MILLION // 1_000_000)
    with running(KafkaServer, tmp_path / "kafka") as server:
        topic = Topic(server, "soak")
        server.create_topic(topic.name, PARTITIONS)
        stream = topic_stream(tmp_path, topic, max_batch_records=BATCH)
        with ThreadPoolExecutor(2) as pool:
            producing = [
                pool.submit(produce, topic, soak_seed, soak_events, way) for way in (IDEMPOTENT, RETRYING_BLINDLY)
            ]
            kills = kill_again_and_again(chance, most, stream, tmp_path / "home", remote, server, producing)
        for each in producing:
            each.result()
        platform = platform_of(tmp_path / "home", stream, spark)
        platform.ingest(NAME)
        committed = topic.places()
        found = places_in_raw(platform)
        assert kills >= most
        assert len(committed) >= soak_events
        assert not [place for place, times in found.items() if times > 1], "doubled"
        assert not committed - found.keys(), "lost"
        assert not found.keys() - committed, "made up"
        positions = {each.partition: each.next for each in platform.source.offsets(NAME)}
        assert topic.group_offsets(f"dedup_platform.{NAME}") == positions
        platform.repair(NAME)
        assert platform.verify(NAME) == []
        events = platform.read(NAME, "deduplicated_events").count()
        assert events == soak_events


def places_in_raw(platform: Platform) -> Counter[tuple[int, int]]:
    """Partition and offset of every row, with the number of rows."""
    rows = platform.read(NAME, RAW_EVENTS).select("source_partition", "source_offset").toArrow()
    return Counter(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def kill_again_and_again(
    chance: random.Random,
    most: int,
    stream: Stream,
    home: Path,
    remote: str,
    server: KafkaServer,
    producing: "list[Future[None]]",
) -> int:
    """Start an ingest, kill it at a random moment, and so on, until enough were killed and all was produced."""
    restarts = chance.sample(range(5, most), RESTARTS)
    kills = 0
    arguments, log = (str(home), str(stream.origin)), home.parent / "children.log"
    with forking(CHILD, arguments, log, {f"{ENV_PREFIX}SPARK_REMOTE": remote}) as fork:
        while kills < most or not all(each.done() for each in producing):
            process = fork("ingest")
            time.sleep(chance.uniform(0, 3))
            if kills in restarts:
                server.kill()
                time.sleep(chance.uniform(0, 1))
                server.start()
            os.kill(process, signal.SIGKILL)
            kills += 1
    return kills


def produce(topic: Topic, seed: int, events: int, way: dict[str, Any]) -> None:
    """Half of the events, some of them twice, by a producer of one kind."""
    half = way is RETRYING_BLINDLY
    chance = random.Random(f"{seed} {half}")
    brokers = {"bootstrap.servers": topic.server.brokers, "linger.ms": 20, "message.timeout.ms": 300_000}
    producer = Producer({**brokers, "log_level": 0, **way})
    for number in range(int(half), events, 2):
        user = f"user-{chance.randrange(USERS)}"
        at = START + timedelta(milliseconds=chance.randrange(2 * 86_400_000))
        value = json.dumps({"user": user, "id": f"e{number}", "at": at.isoformat()})
        for _ in range(2 if chance.random() < COPIES else 1):
            while not is_taken(producer, topic.name, value, user):
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(300) == 0


def is_taken(producer: Producer, topic: str, value: str, key: str) -> bool:
    """Whether the producer had room for it."""
    try:
        producer.produce(topic, value, key=key)
    except BufferError:
        return False
    return True
