"""How much of what was read is in memory as one frame of rows."""

__all__ = ["MAX_BYTES", "MAX_CONTEXT_BYTES", "MAX_ROWS", "rows_of"]

MAX_ROWS = 32768
MAX_BYTES = 4 * 2**20
"""Of payloads."""
MAX_CONTEXT_BYTES = 16 * 2**20
"""Of payload_contexts: so that many rows fit whose header of csv has 2 KB, and few that tell a key of 1 MB each."""


def rows_of(size: int) -> int:
    """How many rows may be together that tell so many bytes each beside their payload, at least one."""
    return max(1, min(MAX_ROWS, MAX_CONTEXT_BYTES // max(1, size)))
