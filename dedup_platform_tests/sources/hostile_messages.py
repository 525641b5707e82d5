"""Files of Protobuf messages as they come, and as they should not: mostly alike, then damaged in fields and bytes.

Pure: a seed makes the same file.
"""

import struct
from pathlib import Path
from random import Random

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from dedup_platform.stream.schemas import compiled_proto, message_type
from dedup_platform_tests.sources.hostile_records import TIMES, mutated
from dedup_platform_tests.sources.schemas import varint

PROTO_3 = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Kind { option allow_alias = true; UNKNOWN = 0; CLICK = 1; TAP = 1; MINUS = -1; VIEW = 300; }
message Place {
  string name = 1;
  int32 level = 2;
  Place within = 3;
  google.protobuf.Timestamp since = 4;
  repeated sint64 steps = 5;
  optional bool open = 6;
  Kind kind = 7;
}
message Event {
  string user = 1;
  string id = 2;
  google.protobuf.Timestamp at = 3;
  int32 i32 = 4;
  int64 i64 = 5;
  uint32 u32 = 6;
  uint64 u64 = 7;
  sint32 s32 = 8;
  sint64 s64 = 9;
  fixed32 f32 = 10;
  fixed64 f64 = 11;
  sfixed32 sf32 = 12;
  sfixed64 sf64 = 13;
  float ratio = 14;
  double n = 15;
  bool paid = 16;
  bytes raw = 17;
  Kind kind = 18;
  optional int32 maybe = 19;
  optional string note = 20;
  oneof either { string left = 21; int64 right = 22; Place where = 23; }
  repeated int32 counts = 24;
  repeated string tags = 25;
  map<string, int32> labels = 26;
  map<int32, Place> places = 27;
  Place place = 28;
  Event inner = 29;
  google.protobuf.Int64Value wrapped = 30;
  google.protobuf.StringValue name = 31;
  repeated Place stops = 32;
  repeated fixed32 marks = 33;
  repeated Kind kinds = 34;
  google.protobuf.Timestamp seen = 3000;
}
message Batch { string sender = 1; repeated Event events = 2; }
"""
PROTO_2 = """
syntax = "proto2";
enum Kind { UNKNOWN = 5; CLICK = 1; VIEW = 300; }
message Place {
  required string name = 1;
  optional int32 level = 2 [default = 7];
  optional group Old = 3 { optional string text = 1; }
  extensions 100 to 199;
}
extend Place { optional Place beside = 100; }
message Event {
  required string user = 1;
  optional string id = 2;
  optional string at = 3 [default = "2024-03-01T11:00:00Z"];
  optional double n = 4 [default = 1.5];
  optional Kind kind = 5;
  optional bool paid = 6;
  optional bytes raw = 7 [default = "abc"];
  oneof either { string left = 8; Kind other = 9; }
  repeated int64 counts = 10 [packed = true];
  repeated uint32 marks = 11;
  optional Place place = 12;
  optional group Inner = 13 { optional string text = 1; }
  repeated Kind kinds = 14;
  map<string, Place> places = 15;
}
message Batch { optional string sender = 1; repeated Event events = 2; }
"""

NUMBERS = [*(0, 1, 2, 5, 127, 128, 300, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40 + 1), *(2**63 - 1, 2**63, 2**64 - 1)]
_SECONDS = [1709290800, 1709290801, 0, 253_402_300_799, 253_402_300_800, 2**64 - 1, 2**64 - 62_135_596_800, 2**63]
_NANOS = [0, 0, 500_000_000, 123_456_000, 123_456_789, 1, 999_999_999, 1_000_000_000, 2**64 - 1, 2**32]
_FLOATS = [0.0, -0.0, 0.1, 5.0, 1e-5, 1e16, 123456789.0, 1e300, 5e-324, float("nan"), float("inf"), float("-inf")]
_TEXTS = ["u1", "u2", "", "é", "x" * 13, "y" * 200, "1.50", "12", "2024-03-01T11:00:00Z", "2024-03-01T11:00:00.123456Z"]
_NO_TEXTS = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\x80", b"\xc3"]
_FIXED = {
    **dict.fromkeys((FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32), "<I"),
    **dict.fromkeys((FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64), "<Q"),
    FieldDescriptor.TYPE_FLOAT: "<f",
    FieldDescriptor.TYPE_DOUBLE: "<d",
}
_ODD_TAGS = [b"\0\1", b"\x02\0", b"\x07", b"\x0e\1", b"\x80\x80\x80\x80\x80\1\1", b"\x8a\x00\x01u"]
_ODD_TAGS += [
    b"\xf8\xff\xff\xff\x0f\1",
    b"\xf8\xff\xff\xff\x1f\1",
    b"\x0a",
    b"\x1a\x80",
    b"\x8a\x80\x80\x80\x80\x00\x01u",
]
_ODD_SIZES = [
    b"\x12\x81\x80\x80\x80\x80\x00e",
    b"\x0a\xff\xff\xff\xff\x07",
    b"\x0a" + b"\xff" * 9 + b"\1",
    b"\x0a\x05u",
]
_ODD_NUMBERS = [b"\x20" + b"\xff" * 9 + last for last in (b"\1", b"\2", b"\x7f", b"\xff", b"\xff\1")]
_ODD_TYPES = [b"\x08\1", b"\x15abcd", b"\x22\1\1", b"\x7a\0", b"\xca\1\1\xff"]
_UNKNOWN = [b"\xa2\x3f\3new", b"\xa0\x3f\1", b"\xa1\x3f12345678", b"\xa5\x3f1234"]
_UNKNOWN += [b"\xa5\x3f123", b"\xa0\x3f" + b"\xff" * 10]
_GROUPS = [b"\xa3\x3f\xa4\x3f", b"\xa3\x3f\x08\1\xa4\x3f", b"\xa3\x3f", b"\xa4\x3f", b"\x6b\x0a\1t\x6c", b"\x6b\x74"]
_EXTENSIONS = [b"\x62\x07\x0a\1p\xa2\x06\1\x08", b"\x62\x08\x0a\1p\xa2\x06\2\x08\1"]
ODD_FIELDS = [*_ODD_TAGS, *_ODD_SIZES, *_ODD_NUMBERS, *_ODD_TYPES, *_UNKNOWN, *_GROUPS, *_EXTENSIONS]
_VARINT_OF_ENUMS = [0, 1, 5, 300, 2**64 - 1, 7, 2**32, 2**32 + 1]


def write_schemas(folder: Path) -> None:
    """PROTO_2 and PROTO_3 as the descriptor sets proto2.desc and proto3.desc."""
    for name, text in (("proto2", PROTO_2), ("proto3", PROTO_3)):
        (folder / f"{name}.proto").write_text(text)
        (folder / f"{name}.desc").write_bytes(compiled_proto(folder, f"{name}.proto"))


def event_kind(schema: Path) -> Descriptor:
    """The type of an event in one of these schemas."""
    return message_type(schema.read_bytes(), "Event")


def events(random: Random, kind: Descriptor, count: int, share_of_odd: float) -> list[bytes]:
    """Encoded events, of which about such a share is not like the others."""
    always, others = kind.fields[:3], kind.fields[3:]
    usual = [*always, *random.sample(others, random.randint(0, len(others)))]
    return [_event(random, kind, usual, random.random() < share_of_odd) for _ in range(count)]


def message_file(random: Random, messages: list[bytes]) -> bytes:
    """Messages with their lengths."""
    content = b"".join(varint(len(message)) + message for message in messages)
    if random.random() < 0.3:
        content = random.choice([mutated(random, content), content[: random.randrange(len(content) + 1)]])
    return content


def batch_of(random: Random, messages: list[bytes]) -> bytes:
    """A batch that holds these messages."""
    parts = [b"\x12" + varint(len(message)) + message for message in messages]
    if random.random() < 0.3:
        parts.insert(random.randrange(len(parts) + 1), random.choice([b"\x0a\1s", *ODD_FIELDS]))
    return b"".join(parts)


def _event(random: Random, kind: Descriptor, usual: list[FieldDescriptor], is_odd: bool) -> bytes:
    if not is_odd:
        fields = sorted((field for field in usual if random.random() < 0.98), key=lambda field: field.number)
        return b"".join(_field(random, field, 0, 0.0) for field in fields)
    odd = random.choice([0.0, 0.05, 0.3])
    fields = [*usual[:3], *random.choices(list(kind.fields), k=random.choice([0, 3, 10, 40, 300]))]
    parts = [_field(random, field, 0, odd) for field in fields]
    for _ in range(random.choice([0, 0, 1, 2])):
        parts.insert(random.randrange(len(parts) + 1), random.choice(ODD_FIELDS))
    encoded = b"".join(parts)
    if random.random() < 0.3:
        encoded = random.choice([mutated(random, encoded), encoded[: random.randrange(len(encoded) + 1)]])
    return encoded


def _field(random: Random, field: FieldDescriptor, depth: int, odd: float) -> bytes:
    """A field, or several values of one that is repeated; such a share is odd."""
    if not field.is_repeated:
        return _encoded(random, field, depth, odd)
    values = [_encoded(random, field, depth, odd) for _ in range(random.randint(0, 3))]
    if field.message_type or field.type in _SIZED or random.random() < 0.3:
        return b"".join(values)
    packed = b"".join(_value(random, field, depth, odd) for _ in range(random.choice([0, 1, 5, 12])))
    if random.random() < odd:
        packed += random.choice([b"\x80", b"\xff" * 9 + b"\1", b"\xff" * 9 + b"\x7f", b"\xff" * 10 + b"\1", b"\1\1\1"])
    return _tag(field, 2) + varint(len(packed)) + packed


_SIZED = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def _encoded(random: Random, field: FieldDescriptor, depth: int, odd: float) -> bytes:
    if field.type == FieldDescriptor.TYPE_GROUP:
        inside = b"".join(_field(random, each, depth + 1, odd) for each in field.message_type.fields)
        return _tag(field, 3) + inside + _tag(field, 4) if random.random() < 0.1 else b""
    value = _value(random, field, depth, odd)
    if random.random() < odd:
        return varint(field.number << 3 | random.choice([0, 1, 2, 3, 5])) + value
    if field.message_type or field.type in _SIZED:
        return _tag(field, 2) + varint(len(value)) + value
    return _tag(field, {"<I": 5, "<f": 5, "<Q": 1, "<d": 1}.get(_FIXED.get(field.type, ""), 0)) + value


def _tag(field: FieldDescriptor, encoded_as: int) -> bytes:
    return varint(field.number << 3 | encoded_as)


def _value(random: Random, field: FieldDescriptor, depth: int, odd: float) -> bytes:
    if field.message_type:
        return _inside(random, field, depth, odd)
    if field.type in _SIZED:
        if field.name == "at" and random.random() > odd:
            return random.choice(TIMES).encode()
        is_broken = random.random() < (0.5 if field.type == FieldDescriptor.TYPE_BYTES else odd)
        return random.choice(_NO_TEXTS) if is_broken else random.choice(_TEXTS).encode()
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        number = random.choice([*_FLOATS, round(random.uniform(-1e4, 1e4), 2), random.uniform(-1, 1)])
        return struct.pack("<d", number) if field.type == FieldDescriptor.TYPE_DOUBLE else _float(number)
    if field.name in ("seconds", "nanos"):
        usual = _SECONDS[:2] if field.name == "seconds" else _NANOS[:7]
        return varint(random.choice(usual if random.random() > odd else [*_SECONDS, *_NANOS]))
    if field.enum_type:
        return varint(random.choice([*_VARINT_OF_ENUMS] if random.random() < max(odd, 0.02) else [1, 300]))
    if field.type in _FIXED:
        size = 2 ** (32 if _FIXED[field.type] == "<I" else 64)
        return struct.pack(_FIXED[field.type], random.choice(NUMBERS) % size)
    return varint(random.choice(NUMBERS))


def _float(number: float) -> bytes:
    try:
        return struct.pack("<f", number)
    except OverflowError:
        return struct.pack("<f", 0.1)


def _inside(random: Random, field: FieldDescriptor, depth: int, odd: float) -> bytes:
    if depth > 3:
        return b""
    kind = field.message_type
    known = kind.fields if kind.GetOptions().map_entry or len(kind.fields) < 3 else random.sample(list(kind.fields), 2)
    ordered = sorted(known, key=lambda each: each.number)
    return b"".join(_field(random, each, depth + 1, odd) for each in ordered if random.random() < 0.9)
