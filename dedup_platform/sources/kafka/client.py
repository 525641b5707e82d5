"""How the platform speaks to Kafka: properties of its clients, and one error for all that may go wrong."""

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from dedup_platform.errors import SourceError
from dedup_platform.stream import KafkaSource

__all__ = ["SECONDS_TO_ANSWER", "Asking", "described", "failures_named", "is_of_no_topic", "properties", "reason_of"]

T = TypeVar("T")

SECONDS_TO_ANSWER = 30.0
"""How long brokers may be away, as in a restart, before it is an error."""

_SECONDS_BETWEEN_LOOKS = 0.5
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_REFUSALS = (KafkaError._AUTHENTICATION, KafkaError._SSL)

_LOG = logging.getLogger(__name__)


def properties(source: KafkaSource, options: Mapping[str, str]) -> dict[str, Any]:
    """What every client is made with; `options` are the deployment's and may hold passwords."""
    return {
        "bootstrap.servers": source.brokers,
        "client.id": "dedup_platform",
        # Without these librdkafka writes to standard error, whatever logging says.
        "logger": _LOG,
        "error_cb": _ignore,
        **options,
    }


class Asking:
    """Asks brokers, and is told at once if they refuse its login or its certificate.

    librdkafka tries that again and again, and in the end only says that no answer came in time.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """By these properties of a client."""
        self._refused: KafkaError | None = None
        noted: dict[str, Any] = {**options, "error_cb": self._note}
        self.admin = AdminClient(noted)

    def answer(self, future: "Future[T]") -> T:
        """What a future of `admin`, whose time is limited, comes to. KafkaException also if the brokers refuse us."""
        while not self._refused:
            try:
                return future.result(_SECONDS_BETWEEN_LOOKS)
            except TimeoutError:
                # Calls `_note`.
                self.admin.poll(0)
        raise KafkaException(self._refused)

    def _note(self, error: KafkaError) -> None:
        _ignore(error)
        if error.code() in _REFUSALS:
            self._refused = error


def described(source: KafkaSource) -> str:
    """The topic and its brokers, for errors."""
    return f"topic {source.topic} at {source.brokers}"


@contextmanager
def failures_named(source: KafkaSource) -> Iterator[None]:
    """Turn librdkafka's exceptions into a SourceError that names the topic."""
    try:
        yield
    except KafkaException as error:
        raise SourceError(described(source), _reason(error)) from None


def reason_of(error: object) -> str:
    """Why something failed, from what a KafkaException is of."""
    if not isinstance(error, KafkaError):
        return str(error)
    if error.code() in _REFUSALS:
        return f"the brokers refuse the connection: {error.str()}"
    if error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT):
        return f"the brokers do not answer ({error.str()})"
    return error.str() or error.name()


def is_of_no_topic(error: KafkaException) -> bool:
    """Whether there is no topic of the name that was asked about."""
    told = error.args[0] if error.args else error
    return isinstance(told, KafkaError) and told.code() in _UNKNOWN


def _reason(error: KafkaException) -> str:
    if is_of_no_topic(error):
        return "there is no such topic; create it, or correct source.topic"
    return reason_of(error.args[0] if error.args else error)


def _ignore(error: KafkaError) -> None:
    """Clients reconnect by themselves; what lasts shows where somebody waits for an answer."""
    _LOG.debug("%s", error)
