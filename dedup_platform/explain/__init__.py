"""Why a row is as it is: where its records came from, which rule decided, and which commits are behind it.

Reads metadata and the cells concerned; no Spark, and nothing is written.
"""

from dedup_platform.explain.event import ANY_ENTITY, EventAnswer
from dedup_platform.explain.record import RecordAnswer
from dedup_platform.explain.session import SessionAnswer

__all__ = ["ANY_ENTITY", "EventAnswer", "RecordAnswer", "SessionAnswer"]
