"""Random lives of a stream that reads a topic of a real broker."""

import pytest

from dedup_platform.testing.servers import KafkaServer
from dedup_platform_tests.lives.__main__ import judged
from dedup_platform_tests.lives.program import LENGTH

LIVES = 1
TESTS = 3
THOROUGH = 40
"""Times as many lives where there is time."""
SHORT = 8
"""Operations in each of them where it is short."""


@pytest.mark.parametrize("number", range(TESTS))
def test_a_life_from_a_topic_is_right_at_every_published_snapshot(
    number: int, thorough: bool, kafka_server: KafkaServer
) -> None:
    lives = LIVES * (THOROUGH if thorough else 1)
    seeds = range(number * lives, (number + 1) * lives)
    length = LENGTH if thorough else SHORT
    lived = (judged(seed, kafka_server.brokers, length) for seed in seeds)
    wrong = [f"seed {seed}: {what}" for seed, what in lived if what]
    assert wrong == []
