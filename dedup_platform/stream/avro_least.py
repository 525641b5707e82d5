"""How much one datum of an Avro schema holds at least, which may be any multiple of what the schema and it take."""

from collections.abc import Mapping
from typing import Any

__all__ = ["least_values"]


def least_values(schema: Any, named: Mapping[str, Any]) -> int:
    """How many values a datum has that is as small as it can be; `named` are the schemas that have names.

    A type inside itself counts nothing there.
    """
    return _Least(named).of(schema)


class _Least:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._known: dict[str, int] = {}

    def of(self, schema: Any) -> int:
        if isinstance(schema, list):
            return min(map(self.of, schema), default=0)
        if isinstance(schema, str):
            return self._by_name(schema) if schema in self._named else 1
        return self._by_name(schema["name"]) if "name" in schema else self._complex(schema)

    def _by_name(self, name: str) -> int:
        if name not in self._known:
            self._known[name] = 0
            self._known[name] = self._complex(self._named[name])
        return self._known[name]

    def _complex(self, schema: Mapping[str, Any]) -> int:
        match schema["type"]:
            case "record" | "error":
                return 1 + sum(self.of(field["type"]) for field in schema["fields"])
            case "array" | "map" | "enum" | "fixed":
                return 1
        return self.of(schema["type"])
