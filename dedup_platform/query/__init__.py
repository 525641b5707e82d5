"""SQL over the tables of all streams as they are now, by DuckDB in this process: writes nothing, needs no Spark."""

from dedup_platform.query.queries import Answer, Queries
from dedup_platform.query.views import EVENT_SESSIONS, event_sessions

__all__ = ["EVENT_SESSIONS", "Answer", "Queries", "event_sessions"]
