"""Which logical types of Avro are read as such: decimals, dates, times, timestamps and UUIDs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["LogicalType", "logical_type"]

_TICKS = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
_TIMES = {"millis": "int", "micros": "long"}
_MOST_DECIMALS = 1000
"""A file could say that there are so many that no memory holds the text of a number."""


@dataclass(frozen=True)
class LogicalType:
    """What values mean. Timestamps and times count ticks, so many a second; a decimal has so many decimals."""

    name: Literal["timestamp", "time", "date", "uuid", "decimal"]
    ticks: int = 1
    zone: str = ""
    """Z for a timestamp in UTC."""
    scale: int = 0


def logical_type(schema: Mapping[str, Any]) -> LogicalType | None:
    """That of a type; None where it is unknown, or not what Avro lets stand on this type."""
    logical, kind = str(schema.get("logicalType")), schema["type"]
    name, _, unit = logical.rpartition("-")
    if name in ("timestamp", "local-timestamp") and unit in _TICKS and kind == "long":
        return LogicalType("timestamp", _TICKS[unit], "Z" if name == "timestamp" else "")
    if name == "time" and unit in _TIMES and kind == _TIMES[unit]:
        return LogicalType("time", _TICKS[unit])
    if logical == "date" and kind == "int":
        return LogicalType("date")
    if logical == "uuid" and kind == "fixed" and schema["size"] == 16:
        return LogicalType("uuid")
    scale = schema.get("scale", 0)
    if logical == "decimal" and kind in ("bytes", "fixed") and type(scale) is int and scale <= _MOST_DECIMALS:
        return LogicalType("decimal", scale=scale)
    return None
