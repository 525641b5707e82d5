"""How many messages of a topic make a batch."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from dedup_platform.planning.moments import utc_datetime
from dedup_platform.sources.kafka import Range
from dedup_platform.sources.kafka.deliveries import stamped_at
from dedup_platform.sources.kafka.reading import messages_of, size_of
from dedup_platform.stream import KafkaSource

_FIRST_BYTES_A_SECOND = 4 * 2**20  # of a process that has not taken in any batch yet
_SAMPLE = 20  # messages that tell about how large they are
_MESSAGE_BYTES = 100.0  # what a message costs beside its value


def sample(source: KafkaSource, options: Mapping[str, str], ranges: Sequence[Range]) -> tuple[float, datetime]:
    """About how many bytes a message has, and when the first came, by the beginning of the longest range."""
    longest = max(ranges, key=len)
    start = longest.start
    few = Range(longest.partition, start, min(longest.end, start.offset + _SAMPLE))
    found = list(messages_of(source, options, few))
    if not found:
        return _MESSAGE_BYTES, datetime.now(UTC)
    size = sum(size_of(message) + _MESSAGE_BYTES for message in found) / len(found)
    return size, utc_datetime(min(stamped_at(message.timestamp()) for message in found))


def first_stamp(source: KafkaSource, options: Mapping[str, str], ranges: Sequence[Range]) -> datetime | None:
    """When the first message of the longest range came; None of no ranges, or if its first offset holds none."""
    longest = max(ranges, key=len, default=None)
    if longest is None:
        return None
    first = Range(longest.partition, longest.start, longest.start.offset + 1)
    found = [stamped_at(message.timestamp()) for message in messages_of(source, options, first)]
    return utc_datetime(found[0]) if found else None


def most(source: KafkaSource, size: float, bytes_a_second: float | None) -> int:
    """How many messages of about this size a batch may read; at which speed, where that is known."""
    in_time = (bytes_a_second or _FIRST_BYTES_A_SECOND) * source.transaction_timeout.total_seconds()
    return max(1, min(source.max_batch_records, int(min(source.max_batch_bytes, in_time) / size)))
