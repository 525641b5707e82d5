"""Where the reading of a range ends, by a consumer that tells what a broker may tell at its worst moments."""

import time
from dataclasses import dataclass, field
from itertools import count

import pytest
from confluent_kafka import KafkaError

from dedup_platform.errors import SourceError
from dedup_platform.sources.kafka import Place, Range, reading
from dedup_platform.sources.kafka.deliveries import offset_of
from dedup_platform.stream import KafkaSource

SOURCE = KafkaSource.model_validate({"kind": "kafka", "brokers": "127.0.0.1:9092", "topic": "clicks", "format": "json"})
RANGE = Range(0, Place(0), 100)


@dataclass
class Told:
    """A message, or that the partition ends here."""

    at: int
    code: int | None = None

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)

    def value(self) -> bytes:
        return b"{}"

    def key(self) -> None:
        return None

    def headers(self) -> None:
        return None


@dataclass
class Consumer:
    """Tells these one after the other, and then nothing more."""

    left: list[Told] = field(default_factory=list)

    def assign(self, _: object) -> None:
        pass

    def poll(self, _: float) -> Told | None:
        return self.left.pop(0) if self.left else None

    def consume(self, most: int, _: float) -> list[Told]:
        taken, self.left = self.left[:most], self.left[most:]
        return taken

    def close(self) -> None:
        self.left.append(end(-1))


def messages(*offsets: int) -> list[Told]:
    return [Told(offset) for offset in offsets]


def end(offset: int) -> Told:
    return Told(offset, KafkaError._PARTITION_EOF)


def offsets_read(monkeypatch: pytest.MonkeyPatch, *told: Told) -> list[int]:
    monkeypatch.setattr(reading, "Consumer", lambda _: Consumer(list(told)))
    # Each look at the clock is a second later.
    monkeypatch.setattr(time, "monotonic", count().__next__)
    return [offset_of(message) for message in reading.messages_of(SOURCE, {}, RANGE)]


def test_a_partition_that_ends_early_for_a_while_is_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [*messages(*range(95)), end(95), *messages(*range(95, 100)), end(100)]
    assert offsets_read(monkeypatch, *told) == list(range(100))


def test_a_partition_that_ends_early_for_good_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = (
        r"topic clicks at .*: partition 0: offsets 0 to 99: the broker says that the partition ends at offset 95, and "
        r"nothing more came for 30 s"
    )
    with pytest.raises(SourceError, match=expected):
        offsets_read(monkeypatch, *messages(*range(95)), end(95), *[end(95)] * 3)


def test_a_broker_that_is_silent_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match="partition 0: offsets 0 to 99: nothing came for 30 s"):
        offsets_read(monkeypatch, *messages(0))


@pytest.mark.parametrize("at", [100, 103])
def test_last_offsets_that_hold_no_message_end_with_the_partition(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    assert offsets_read(monkeypatch, *messages(0, 1), end(at)) == [0, 1]


def test_last_offsets_that_hold_no_message_end_with_the_next_message(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offsets_read(monkeypatch, *messages(0, 100), *messages(101)) == [0]


def test_headers_whose_names_are_no_text_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's clients refuse to give any of them."""

    def refuse(_: Told) -> None:
        raise SystemError("<method 'headers'> returned a result with an exception set")

    monkeypatch.setattr(Told, "headers", refuse)
    monkeypatch.setattr(reading, "Consumer", lambda _: Consumer(messages(*range(100))))
    assert len(list(reading.messages_of(SOURCE, {}, RANGE))) == 100
