"""A topic of Kafka as a copy: rows and position in one transaction of a producer that fences all before it."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message as Delivered, Producer

from dedup_platform.errors import RefusedRowsError, SinkError, SinkTakenError
from dedup_platform.sinks.encodings import Encoded, encoded_as
from dedup_platform.sinks.kafka_log import Log, LogState
from dedup_platform.sinks.messages import Json, messages, portions, tombstones
from dedup_platform.sinks.sink import Batch, SinkState, Target
from dedup_platform.sources.kafka.client import reason_of
from dedup_platform.stream import KafkaSink

_LOG = logging.getLogger(__name__)
_SECONDS = 60.0
"""For brokers to answer, and for a transaction to end."""
_PORTION_ROWS = 25_000
_TAKEN = {
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
}
Headers = dict[str, str | bytes | None]
_FORCED: Headers = {"dedup_platform.forced": "true"}
"""The header of messages that somebody wanted again."""
_SCHEMA = "dedup_platform.schema"
"""The header that names the schema of a message which begins by no id of one."""
_REFUSED = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.INVALID_MSG}


class KafkaTopic:
    """The sink of one topic. Beside it stands `<topic>.positions`, compacted: how far it has come, what it refused."""

    def __init__(
        self, target: Target, said: KafkaSink, options: Mapping[str, str], registry_login: str | None = None
    ) -> None:
        self._target, self._said, self._login = target, said, registry_login
        # Without a logger librdkafka writes to standard error, whatever logging says.
        common: dict[str, Any] = {"bootstrap.servers": said.brokers, "client.id": "dedup_platform", "logger": _LOG}
        self._options = common | {"error_cb": _ignore} | dict(options)
        self._log = Log(said.topic, self._options)
        self._producer: Producer | None = None
        self._state = LogState()
        self._failed: list[KafkaError] = []
        self._encoded: Encoded | None = None

    def open(self) -> SinkState:
        self.close()
        with self._failures_named():
            self._create()
            self._producer = Producer(
                self._options
                | {
                    # Of the topic: whoever writes to it, under whatever name, ends all who did before.
                    "transactional.id": f"dedup_platform.{self._said.topic}",
                    "transaction.timeout.ms": int(_SECONDS * 1000),
                    "compression.type": "zstd",
                    "linger.ms": 20,
                    # Most of what a message costs is to be told that it came.
                    "delivery.report.only.error": True,
                    "on_delivery": self._note,
                }
            )
            # Connects: while it is not connected, it would wait half a second for the coordinator of its transactions.
            self._producer.list_topics(self._said.topic, _SECONDS)
            # Ends what an earlier producer left open, one way or the other: only then is the position what it says.
            self._producer.init_transactions(_SECONDS)
            self._state = self._check_owner(self._log.read())
        return self._state.told()

    def write(self, batch: Batch) -> None:
        if self._producer is None or batch.before != self._state.position:
            raise SinkTakenError(self._target.stream, self._target.sink)
        with self._failures_named():
            self._failed.clear()
            began = self._log.ends() if batch.begins else self._state.began
            encoded = self._encoded_as(batch)
            after = self._state.after(batch, began, encoded.schemas)
            # Before the transaction, which must end in time: a large topic takes long to read.
            left = self._log.older_than(began) if batch.completes and any(began.values()) else set()
            self._producer.begin_transaction()
            self._produce(self._producer, batch, left, encoded)
            for key, value in self._state.records(after):
                self._send(self._producer, self._log.positions, key, value)
            self._producer.commit_transaction(_SECONDS)
            self._state = after

    def look(self) -> SinkState:
        try:
            return self._check_owner(self._log.read()).told()
        except KafkaException as error:
            if _code(error.args[0]) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return SinkState()
            raise SinkError(self._target.stream, self._target.sink, reason_of(error.args[0])) from None

    def close(self) -> None:
        producer, self._producer = self._producer, None
        self._state, self._failed = LogState(), []
        if producer:
            with suppress(KafkaException):
                producer.purge()

    def _encoded_as(self, batch: Batch) -> Encoded:
        """How values are written. A registry is asked before the transaction, and only where there are any."""
        if self._encoded is None and len(batch.changes):
            self._encoded = encoded_as(self._target, self._said, self._login)
        return self._encoded or Encoded(Json(self._target, self._said.envelope))

    def _produce(self, producer: Producer, batch: Batch, left: set[str], encoded: Encoded) -> None:
        """Send a batch, and tombstones of the keys that are left from before and did not come again."""
        is_read = batch.begins or batch.completes or batch.forced or batch.after.snapshot_id is not None
        headers = _FORCED if batch.forced else None
        of_values = {**(headers or {}), _SCHEMA: encoded.schema} if encoded.schema else headers
        topic = self._said.topic
        # While the next ones are made, these are on their way. What fails of them the end of the transaction tells: to
        # ask here costs milliseconds each time.
        for changes in portions(batch.changes, _PORTION_ROWS):
            made = messages(changes, encoded.encoding, is_read)
            for key, value in made:
                try:  # as `_send`, without a call for each of a million
                    producer.produce(topic, value, key, headers=headers if value is None else of_values)
                except BufferError:
                    self._send(producer, topic, key, value, headers if value is None else of_values)
            if left:
                left.difference_update(key for key, _ in made)
        for key, value in tombstones(sorted(left)):
            self._send(producer, topic, key, value, headers)

    def _create(self) -> None:
        try:
            self._log.create()
        except ValueError as error:
            raise SinkError(self._target.stream, self._target.sink, str(error), lasting=True) from None

    def _check_owner(self, found: LogState) -> LogState:
        target = self._target
        of = f"{target.stream}.{target.table}"
        if found.of not in ("", of):
            reason = f"topic {self._said.topic} has the changes of {found.of}; name another topic"
            raise SinkError(target.stream, target.sink, reason, lasting=True)
        return replace(found, of=of)

    def _send(
        self, producer: Producer, topic: str, key: str, value: str | bytes | None, headers: Headers | None = None
    ) -> None:
        while True:
            try:
                producer.produce(topic, value, key, headers=headers)
                return
            except BufferError:
                producer.poll(0.1)  # what was delivered makes room

    def _note(self, error: KafkaError | None, message: Delivered) -> None:  # noqa: ARG002
        if error is not None:
            self._failed.append(error)

    @contextmanager
    def _failures_named(self) -> Iterator[None]:
        """After any failure but a refused row the producer is gone: nobody knows what became of its transaction.

        A late end of it, which a broker was slow to read, could otherwise end the next one.
        """
        try:
            yield
        except KafkaException as error:
            told = error.args[0] if error.args else error
            codes = {each.code() for each in (*self._failed, told) if isinstance(each, KafkaError)}
            refused = next((each for each in (*self._failed, told) if _code(each) in _REFUSED), None)
            if refused is not None and self._is_aborted():
                raise RefusedRowsError(reason_of(refused)) from None
            self.close()
            if codes & _TAKEN:
                raise SinkTakenError(self._target.stream, self._target.sink) from None
            raise SinkError(self._target.stream, self._target.sink, reason_of(told)) from None

    def _is_aborted(self) -> bool:
        try:
            assert self._producer
            self._producer.abort_transaction(_SECONDS)
        except KafkaException:
            return False
        finally:
            self._failed.clear()
        return True


def _code(error: object) -> int | None:
    return error.code() if isinstance(error, KafkaError) else None


def _ignore(error: KafkaError) -> None:
    """Clients reconnect by themselves; what lasts shows where somebody waits for an answer."""
    _LOG.debug("%s", error)
