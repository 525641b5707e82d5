"""Schemas of Avro of all kinds, and data of them: as most are written, as some may be written, and as none must be.

Pure: a random number generator in the same state makes the same.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from dedup_platform_tests.sources.hostile_records import TEXTS, TIMES, mutated

LONGS = [0, 1, -1, 63, -64, 64, 10**12, -(10**15), 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), -62_135_596_801]
MOMENTS = [0, -1, 1_709_290_800, 253_370_764_799, 253_370_764_800, 253_402_300_799, 253_402_300_800, -62_135_596_800]
DAYS = [0, -1, 20_000, -719_162, -719_163, 2_932_896, 2_932_897]
FLOATS = [0.0, -0.0, 0.1, 1.0, 1e-4, 9.9e-5, 1e15, 1e16, 123456.789, float("nan"), float("inf"), -float("inf"), 5e-324]
DIGITS = [b"", b"\0", b"\xff", b"\x7f", b"\x80", b"\1\0", b"\xff\x7f", b"\x80" + b"\0" * 7, b"\1" * 9, b"\7" * 1001]
DIGITS += [b"\7" * 2000]
NAMES = ["f0", "f1", "f2", "f3", "f4"]
_LOGICAL = [
    *(
        ("long", f"{name}-{unit}")
        for name in ("timestamp", "local-timestamp")
        for unit in ("millis", "micros", "nanos")
    ),
    *(("int", "time-millis"), ("long", "time-micros"), ("int", "date"), ("string", "uuid"), ("long", "parsec")),
]


def click_schema(random: Random, deepest: int = 2) -> dict[str, Any]:
    """A record with the fields user, id and at among others, and so many levels of parts in them."""
    user = random.choice(["string", ["null", "string"], ["null", "long", "string"], "bytes"])
    at = {"type": "long", "logicalType": f"timestamp-{random.choice(['millis', 'micros', 'nanos'])}"}
    fields = [
        {"name": "user", "type": user},
        {"name": "id", "type": random.choice(["string", "string", "long", ["string", "long"]])},
        {"name": "at", "type": random.choice([at, at, "string", ["null", at], [at, "string"]])},
    ]
    makers = _Schemas(random, deepest)
    others = [{"name": name, "type": makers.of(0)} for name in NAMES[: random.randint(0, len(NAMES))]]
    merged = []
    while fields or others:  # each in its order, as a type is made before it is used by its name
        merged.append((fields if not others or (fields and random.random() < 0.5) else others).pop(0))
    return {"type": "record", "name": "pkg.Click", "fields": merged}


class _Schemas:
    """Makes types; some are used again by their name."""

    def __init__(self, random: Random, deepest: int) -> None:
        self._random = random
        self._deepest = deepest
        self._names: list[str] = []
        self._made = 0

    def of(self, level: int) -> Any:
        """Any type."""
        luck = self._random.random()
        if self._deepest < 0 and luck > 0.6:
            return self._without_parts(level)
        if luck < 0.35 or (self._deepest >= 0 and level > self._deepest):
            return self._random.choice(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
        if luck < 0.5:
            kind, logical = self._random.choice(_LOGICAL)
            return {"type": kind, "logicalType": logical}
        if luck < 0.55 and self._names:
            return self._random.choice(self._names)
        return self._with_parts(level)

    def _without_parts(self, level: int) -> Any:
        decimal = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
        date = {"type": "int", "logicalType": "date"}
        match self._random.randrange(6):
            case 0:
                return self._named("enum", symbols=["A", "B", "C"])
            case 1:
                return self._fixed(level)
            case 2:
                return self._random.sample(["null", "long", "string", "boolean", "double", "float"], 3)
        return self._random.choice([decimal, ["null", date], [date, "string"]])

    def _with_parts(self, level: int) -> Any:
        match self._random.randrange(8):
            case 0:
                return self._union(level)
            case 1:
                return {"type": "array", "items": self.of(level + 1)}
            case 2:
                return self._map(level)
            case 3:
                return self._named("enum", symbols=["A", "B", "C"][: self._random.randint(1, 3)])
            case 4:
                return self._fixed(level)
            case 5:
                scale = self._random.choice([0, 2, 10])
                return {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}
            case _:
                return self._record(level)

    def _union(self, level: int) -> Any:
        kinds: list[Any] = ["null", "long", "string", "boolean", "double", {"type": "int", "logicalType": "date"}]
        chosen = self._random.sample([*kinds, self._record, self._fixed, self._map], self._random.randint(1, 4))
        return [make(level) if callable(make) else make for make in chosen]

    def _map(self, level: int) -> Any:
        return {"type": "map", "values": self.of(level + 1)}

    def _fixed(self, _: int) -> Any:
        size = self._random.choice([0, 2, 16])
        logical: dict[int, dict[str, Any]] = {
            16: {"logicalType": "uuid"},
            2: {"logicalType": "decimal", "precision": 4, "scale": 1},
        }
        parts = logical.get(size, {}) if self._random.random() < 0.7 else {}
        return self._named("fixed", size=size, **parts)

    def _record(self, level: int) -> Any:
        record = self._named("record")
        fields = [{"name": name, "type": self.of(level + 1)} for name in NAMES[: self._random.randint(0, 3)]]
        if self._random.random() < 0.2:
            fields.append({"name": "next", "type": ["null", record["name"]]})
        return record | {"fields": fields}

    def _named(self, kind: str, **parts: Any) -> dict[str, Any]:
        self._made += 1
        made = {"type": kind, "name": f"pkg.T{self._made}"} | parts
        if kind != "record":  # one inside which it is would be used before its end
            self._names.append(made["name"])
        return made


def paths_in(schema: Any, wholes: bool) -> Iterator[list[str]]:
    """The ways to the values in a record; also to those that have parts, if `wholes` are meant, too."""
    for field in schema["fields"]:
        branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
        parts = [
            branch for branch in branches if isinstance(branch, dict) and branch["type"] in ("record", "array", "map")
        ]
        if wholes or not parts:
            yield [field["name"]]
        for part in parts:
            if part["type"] == "record":
                yield from ([field["name"], *path] for path in paths_in(part, wholes))


class Data:
    """Data of one schema, of which about such a share of values is not what most have."""

    def __init__(self, random: Random, schema: Mapping[str, Any], share_of_odd: float) -> None:
        self._random = random
        self._share = share_of_odd
        self._schema = schema
        self._named: dict[str, Any] = {}
        self._learn(schema)

    def some(self, count: int) -> list[bytes]:
        """So many, some of them damaged."""
        data = [self._of(self._schema, 0) for _ in range(count)]
        return [self._damaged(datum) if self._is_odd() else datum for datum in data]

    def _learn(self, schema: Any) -> None:
        if isinstance(schema, list):
            for branch in schema:
                self._learn(branch)
        elif isinstance(schema, dict):
            if "name" in schema:
                self._named[schema["name"]] = schema
            for part in [
                *(field["type"] for field in schema.get("fields", ())),
                schema.get("items"),
                schema.get("values"),
            ]:
                self._learn(part)

    def _is_odd(self) -> bool:
        return self._random.random() < self._share

    def _damaged(self, datum: bytes) -> bytes:
        match self._random.randrange(4):
            case 0:
                return datum[: self._random.randrange(len(datum) + 1)]
            case 1:
                return datum + self._random.choice([b"\0", b"\2", b"\xff" * 11, datum])
            case _:
                return mutated(self._random, datum)

    def _of(self, schema: Any, level: int) -> bytes:
        if isinstance(schema, list):
            index = self._random.randrange(len(schema))
            return self._long(self._odd([-1, len(schema), 2**40], index)) + self._of(schema[index], level)
        if isinstance(schema, str):
            return self._primitive(schema) if schema not in self._named else self._of(self._named[schema], level)
        return self._complex(schema, level)

    def _complex(self, schema: Mapping[str, Any], level: int) -> bytes:
        match schema["type"]:
            case "record":
                return b"".join(self._field(field, level) for field in schema["fields"])
            case "enum":
                index = self._random.randrange(len(schema["symbols"]))
                return self._long(self._odd([-1, len(schema["symbols"])], index))
            case "array":
                return self._blocks(lambda: self._of(schema["items"], level + 1))
            case "map":
                return self._blocks(lambda: self._primitive("string") + self._of(schema["values"], level + 1))
            case "fixed":
                return self._random.randbytes(schema["size"])
        return self._logical(schema) or self._of(schema["type"], level)

    def _field(self, field: Mapping[str, Any], level: int) -> bytes:
        if field == {"name": "at", "type": "string"} and not self._is_odd():
            return self._sized(self._random.choice(TIMES).encode())
        is_inside_itself = field["name"] == "next" and isinstance(field["type"], list)
        if is_inside_itself and (level > 4 or self._random.random() < 0.9):
            return b"\0"
        return self._of(field["type"], level + 1)

    def _logical(self, schema: Mapping[str, Any]) -> bytes | None:
        logical = schema.get("logicalType", "")
        if logical == "decimal":
            return self._sized(self._random.choice(DIGITS if self._is_odd() else DIGITS[:8]))
        if logical == "date":
            return self._long(self._odd([*DAYS, *LONGS], self._random.randrange(20_000)))
        if "time" not in logical:
            return None
        ticks = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}[logical.rpartition("-")[2]]
        seconds = (
            self._random.choice(MOMENTS) if self._is_odd() else self._random.randrange(1_709_000_000, 1_710_000_000)
        )
        seconds = seconds % 86_400 if logical.startswith("time-") else seconds
        fraction = self._random.choice([0, 0, ticks // 2, self._random.randrange(ticks)])
        return self._long(self._odd(LONGS, max(min(seconds * ticks + fraction, 2**63 - 1), -(2**63))))

    def _primitive(self, kind: str) -> bytes:
        match kind:
            case "null":
                return b""
            case "boolean":
                return self._random.choice([b"\0", b"\1", b"\2" if self._is_odd() else b"\1"])
            case "int" | "long":
                return self._long(self._odd(LONGS, self._random.randrange(-1000, 1000)))
            case "float":
                return (
                    struct.pack("<f", min(self._float(), 3e38))
                    if self._random.random() < 0.5
                    else self._random.randbytes(4)
                )
            case "double":
                return struct.pack("<d", self._float()) if self._random.random() < 0.8 else self._random.randbytes(8)
            case "bytes":
                return self._sized(self._random.randbytes(self._random.randrange(20)))
        odd = [b"\xff", b"\xed\xa0\x80", b"x" * 200, b"\0", b'"\\'] if self._is_odd() else [b"u1", b"u2", b"e1", b""]
        return self._sized(self._random.choice([*(text.encode() for text in TEXTS[-20:]), *odd, *odd, *odd]))

    def _float(self) -> float:
        return self._odd(FLOATS, self._random.choice([self._random.random(), self._random.randrange(10**6) / 100]))

    def _sized(self, value: bytes) -> bytes:
        return self._long(self._odd([-1, len(value) + 1, 2**40, 2**63 - 1], len(value), 0.1)) + value

    def _blocks(self, item: Any) -> bytes:
        written = b""
        for _ in range(self._random.choice([0, 1, 1, 2])):
            items = [item() for _ in range(self._random.choice([1, 2, 3, 8]))]
            count = self._odd([2**62, -(2**63), 0, 2**24 + 1, 500], len(items), 0.05)
            inside = b"".join(items)
            written += (
                self._long(-count) + self._long(len(inside)) if self._random.random() < 0.3 else self._long(count)
            )
            written += inside
        return written + b"\0"

    def _odd(self, odd: Sequence[Any], usual: Any, share: float = 0.3) -> Any:
        return self._random.choice(odd) if self._is_odd() and self._random.random() < share else usual

    def _long(self, number: int) -> bytes:
        written = bytearray(long(min(max(number, -(2**63)), 2**63 - 1)))
        if len(written) < 9 and self._is_odd() and self._random.random() < 0.1:
            written[-1] |= 0x80
            written += b"\x80\0"  # longer than it need be
        return bytes(written)


def avro_file(random: Random, schema: Mapping[str, Any], data: Sequence[bytes], share_of_odd: float) -> bytes:
    """A file of these data in blocks, which about such a share of does not end as it should."""
    is_packed = random.random() < 0.5
    known = {"avro.schema": json.dumps(schema), "avro.codec": "deflate" if is_packed else "null"}
    metadata = b"".join(_sized(part.encode()) for pair in known.items() for part in pair)
    sync = random.randbytes(16)
    written = b"Obj\1" + long(len(known)) + metadata + b"\0" + sync
    left = list(data)
    while left:
        size = random.choice([1, 5, 40])
        some, left = left[:size], left[size:]
        count = len(some) + (random.choice([-1, 1, 2**40]) if random.random() < share_of_odd / 3 else 0)
        content = b"".join(some) + (b"\0" if random.random() < share_of_odd / 3 else b"")
        end = sync if random.random() > share_of_odd / 3 else random.randbytes(16)
        written += long(count) + _sized(_deflated(content) if is_packed else content) + end
    return written


def _sized(value: bytes) -> bytes:
    return long(len(value)) + value


def _deflated(content: bytes) -> bytes:
    deflating = zlib.compressobj(1, wbits=-15)
    return deflating.compress(content) + deflating.flush()


def long(number: int) -> bytes:
    """A number as Avro writes it."""
    left, written = (number << 1) ^ (number >> 63), bytearray()
    while left >= 0x80:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*written, left])
