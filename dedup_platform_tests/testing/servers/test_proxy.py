"""The proxies that spoil answers: by nothing, by each fault, and before real servers whose clients must cope."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer

from dedup_platform.testing.servers import Faults, FaultyProxy, KafkaServer, LaggingListing, S3Server, free_port
from dedup_platform.testing.servers.process import LOOPBACK
from dedup_platform_tests.servers import new_name, running

ANSWER = bytes(range(256)) * 1000
CALLS = 40


@pytest.fixture(scope="module")
def talker() -> Iterator[int]:
    """The port of a server that answers each connection with ANSWER, once it was asked anything."""
    with socket.create_server((LOOPBACK, 0)) as listening:
        answering = threading.Thread(target=answer_all, args=(listening,))
        answering.start()
        yield listening.getsockname()[1]
        # Closing alone would not wake a thread that waits for a connection.
        listening.shutdown(socket.SHUT_RDWR)
        answering.join()


def answer_all(listening: socket.socket) -> None:
    """Until the socket is shut down."""
    with suppress(OSError):
        while True:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.recv(1)
                connection.sendall(ANSWER)


def ask(port: int) -> bytes:
    """What comes until the connection ends, however it does."""
    answer = b""
    with socket.create_connection((LOOPBACK, port), 10) as connection, suppress(ConnectionError):
        connection.sendall(b"?")
        while piece := connection.recv(1 << 20):
            answer += piece
    return answer


def outcomes(port: int) -> list[bytes]:
    return [ask(port) for _ in range(CALLS)]


def test_without_faults_everything_is_passed_on(talker: int) -> None:
    with FaultyProxy(talker, seed=1) as proxy:
        assert outcomes(proxy.port) == [ANSWER] * CALLS
        assert not proxy.happened


@pytest.mark.parametrize("faults", [Faults(refuse=1), Faults(drop=1)], ids=["refuse", "drop"])
def test_refused_and_dropped_connections_bring_nothing(talker: int, faults: Faults) -> None:
    with FaultyProxy(talker, 1, faults) as proxy:
        assert outcomes(proxy.port) == [b""] * CALLS
        assert proxy.happened.total() == CALLS


def test_answers_are_cut_at_many_places(talker: int) -> None:
    with FaultyProxy(talker, 1, Faults(cut=1)) as proxy:
        lengths = {len(answer) for answer in outcomes(proxy.port)}
    assert len(lengths) > CALLS / 2
    assert max(lengths) < len(ANSWER)


def test_what_is_cut_is_right_as_far_as_it_goes(talker: int) -> None:
    with FaultyProxy(talker, 1, Faults(cut=0.5)) as proxy:
        assert all(ANSWER.startswith(answer) for answer in outcomes(proxy.port))


def test_a_delay_delays(talker: int) -> None:
    with FaultyProxy(talker, 1, Faults(delay=1, delay_seconds=0.2)) as proxy:
        began = time.monotonic()
        assert ask(proxy.port) == ANSWER
        assert time.monotonic() - began > 0.01
        assert proxy.happened["delay"] > 0


def heard(sent: bytes, faults: Faults) -> tuple[bytes, float]:
    """What a server gets of what a client says that hangs up at once, and after how many seconds."""
    with socket.create_server((LOOPBACK, 0)) as listening, FaultyProxy(listening.getsockname()[1], 1, faults) as proxy:
        with socket.create_connection((LOOPBACK, proxy.port)) as client:
            client.sendall(sent)
            server, _ = listening.accept()
        began, got = time.monotonic(), b""
        with server, suppress(ConnectionError):
            while piece := server.recv(1 << 16):
                got += piece
        return got, time.monotonic() - began


def test_a_request_is_lost_or_comes_when_its_client_is_gone() -> None:
    assert heard(b"question", Faults(lose=1))[0] == b""
    said, seconds = heard(b"question", Faults(late=1, delay_seconds=1))
    assert said == b"question"
    assert seconds > 0.05


def test_rates_change_while_it_runs(talker: int) -> None:
    with FaultyProxy(talker, 1) as proxy:
        assert ask(proxy.port) == ANSWER
        proxy.faults.refuse = 1
        assert ask(proxy.port) == b""
        proxy.faults.refuse = 0
        assert ask(proxy.port) == ANSWER


def test_the_seed_decides(talker: int) -> None:
    def refused(seed: int) -> list[bool]:
        with FaultyProxy(talker, seed, Faults(refuse=0.5)) as proxy:
            return [answer == b"" for answer in outcomes(proxy.port)]

    assert refused(1) == refused(1)
    assert refused(1) != refused(2)


def test_severed_connections_end(talker: int) -> None:
    def ends() -> bool:
        proxy.sever()
        try:
            return idle.recv(1) == b""
        except TimeoutError:
            return False  # the proxy may not have accepted it yet

    with FaultyProxy(talker, 1) as proxy, socket.create_connection((LOOPBACK, proxy.port), 0.2) as idle:
        with pytest.raises(TimeoutError):
            idle.recv(1)
        assert any(ends() for _ in range(100))


def test_a_server_that_is_not_there_is_like_one_that_hangs_up() -> None:
    with FaultyProxy(free_port(), 1) as proxy:
        assert ask(proxy.port) == b""


def test_after_the_block_nobody_listens(talker: int) -> None:
    with FaultyProxy(talker, 1) as proxy:
        pass
    with pytest.raises(ConnectionRefusedError):
        ask(proxy.port)


def test_a_producer_gets_all_through_to_kafka_in_the_end(tmp_path: Path) -> None:
    port = free_port()
    with (
        FaultyProxy(port, 1) as proxy,
        running(KafkaServer, tmp_path, port=port, advertised_port=proxy.port) as server,
    ):
        server.create_topic("kept", partitions=1)
        proxy.faults.drop = proxy.faults.cut = 0.05
        producer = Producer(
            {
                "bootstrap.servers": f"{LOOPBACK}:{proxy.port}",
                "enable.idempotence": True,
                "log_level": 0,
                "batch.num.messages": 10,
                "reconnect.backoff.ms": 10,
                "retry.backoff.ms": 10,
            }
        )
        delivered: list[int | None] = []
        for number in range(1000):
            producer.produce("kept", str(number), on_delivery=lambda _, message: delivered.append(message.offset()))
        assert producer.flush(60) == 0
        assert set(delivered) == set(range(1000))
        assert proxy.happened.total() > 0


@contextmanager
def lagging(server: S3Server, *keys: str) -> Iterator[tuple[LaggingListing, str]]:
    """A proxy before a new bucket with these objects, the last one newest; and the bucket's name."""
    bucket = new_name()
    server.create_bucket(bucket)
    for key in keys:
        server.client().put_object(Bucket=bucket, Key=key, Body=b"x")
    with LaggingListing(server.port) as proxy:
        yield proxy, bucket


def listed(server: S3Server, proxy: LaggingListing, bucket: str) -> list[str]:
    answer = server.client(proxy.endpoint).list_objects_v2(Bucket=bucket)
    assert answer["KeyCount"] == len(answer.get("Contents", []))
    return [each["Key"] for each in answer.get("Contents", [])]


def test_the_newest_key_is_missing_for_a_while(s3_server: S3Server) -> None:
    with lagging(s3_server, "b", "c") as (proxy, bucket):
        assert listed(s3_server, proxy, bucket) == ["b", "c"]
        time.sleep(1.1)  # times of objects are whole seconds
        s3_server.client().put_object(Bucket=bucket, Key="a", Body=b"x")
        proxy.seconds = 3600
        assert listed(s3_server, proxy, bucket) == ["b", "c"]
        assert proxy.left_out == ["a"]
        assert s3_server.client(proxy.endpoint).get_object(Bucket=bucket, Key="a")["Body"].read() == b"x"
        proxy.seconds = 0.5
        time.sleep(0.6)
        assert listed(s3_server, proxy, bucket) == ["a", "b", "c"]


def test_a_bucket_may_look_empty(s3_server: S3Server) -> None:
    with lagging(s3_server, "only") as (proxy, bucket):
        proxy.seconds = 3600
        assert listed(s3_server, proxy, bucket) == []


def test_all_but_listings_is_passed_on_as_it_is(s3_server: S3Server) -> None:
    with lagging(s3_server) as (proxy, bucket):
        proxy.seconds = 3600
        client, body = s3_server.client(proxy.endpoint), b"x" * 3_000_000
        client.put_object(Bucket=bucket, Key="a b/ü", Body=body)
        assert client.head_object(Bucket=bucket, Key="a b/ü")["ContentLength"] == len(body)
        assert client.get_object(Bucket=bucket, Key="a b/ü", Range="bytes=0-9")["Body"].read() == body[:10]
        client.delete_object(Bucket=bucket, Key="a b/ü")
        with pytest.raises(client.exceptions.NoSuchKey):
            client.get_object(Bucket=bucket, Key="a b/ü")
