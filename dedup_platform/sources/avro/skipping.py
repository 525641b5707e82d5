"""Where data of Avro end, found without a look at what they hold."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dedup_platform.sources.pieces import read_varint, zigzag
from dedup_platform.sources.records import MAX_RECORD_BYTES

__all__ = ["Skip", "skipping"]

Skip = Callable[[bytes, int], int]
"""From some bytes and the place of a value in them to the place after it. IndexError or ValueError if it has none; of
bytes that are no such value the place may be any."""


def skipping(schema: Mapping[str, Any]) -> Skip:
    """A function that passes data of a schema (parsed by `avro_record`)."""
    return _Skips(schema["__named_schemas"]).of(schema)


class _Skips:
    """Makes those of a schema's types. A type with a name has one, to which all its uses lead."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._made: dict[str, Skip] = {}

    def of(self, schema: Any) -> Skip:
        if isinstance(schema, list):
            return _union([self.of(branch) for branch in schema])
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema) or self._made.get(schema) or self.of(self._named[schema])
        if "name" not in schema:
            return self._complex(schema)
        name = schema["name"]
        self._made[name] = lambda data, at: self._made[name](data, at)  # inside itself, which is made by then
        self._made[name] = made = self._complex(schema)
        return made

    def _complex(self, schema: Mapping[str, Any]) -> Skip:
        match schema["type"]:
            case "record" | "error":
                return _record([self.of(field["type"]) for field in schema["fields"]])
            case "enum":
                return _number
            case "array":
                return _items(self.of(schema["items"]))
            case "map":
                return _items(_record([_sized, self.of(schema["values"])]))
        return _bytes(schema["size"]) if "size" in schema else self.of(schema["type"])


def _record(fields: Sequence[Skip]) -> Skip:
    def skip(data: bytes, at: int) -> int:
        for skip_field in fields:
            at = skip_field(data, at)
        return at

    return skip


def _union(branches: Sequence[Skip]) -> Skip:
    def skip(data: bytes, at: int) -> int:
        branch, at = read_varint(data, at)
        return branches[branch >> 1](data, at)

    return skip


def _items(skip_item: Skip) -> Skip:
    def skip(data: bytes, at: int) -> int:
        while True:
            number, at = read_varint(data, at)
            count = zigzag(number)
            if count < 0:
                at = _number(data, at)
            if abs(count) > MAX_RECORD_BYTES:
                raise ValueError("there cannot be so many")
            if not count:
                return at
            for _ in range(abs(count)):
                at = skip_item(data, at)

    return skip


def _number(data: bytes, at: int) -> int:
    while data[at] >= 0x80:
        at += 1
    return at + 1


def _sized(data: bytes, at: int) -> int:
    size = data[at]
    if size < 0x80:
        return at + 1 + (size >> 1)
    size, at = read_varint(data, at)
    return at + (size >> 1)


def _bytes(size: int) -> Skip:
    return lambda _, at: at + size


_PRIMITIVES: dict[str, Skip] = {
    "null": _bytes(0),
    "boolean": _bytes(1),
    "int": _number,
    "long": _number,
    "float": _bytes(4),
    "double": _bytes(8),
    "bytes": _sized,
    "string": _sized,
}
