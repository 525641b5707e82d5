"""The schemas that these tests write messages by, and the messages' classes."""

from pathlib import Path
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from dedup_platform.stream.schemas import compiled_proto, message_type

PROTO = """
syntax = "proto3";
package pkg;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "parts/place.proto";

enum Kind { UNKNOWN = 0; CLICK = 1; }

message Event {
  string user = 1;
  string id = 2;
  google.protobuf.Timestamp at = 3;
  int64 n = 4;
  double price = 5;
  optional int32 maybe = 6;
  float ratio = 7;
  bool paid = 8;
  Kind kind = 9;
  bytes raw = 10;
  uint64 large = 11;
  repeated int32 counts = 12;
  map<int32, string> names = 13;
  Place place = 14;
  google.protobuf.Int64Value wrapped = 15;
  oneof either { string left = 16; int64 right = 17; }
  map<bool, Place> places = 18;
  Event inner = 19;
  sint32 low = 20;
  fixed64 stamp = 21;
}

message Batch {
  string sender = 1;
  repeated Event events = 2;
  message Inside { string user = 1; }
}
"""
PLACE = 'syntax = "proto3"; package pkg; message Place { string name = 1; int32 level = 2; }'

BATCH: dict[str, Any] = {"protobuf": {"schema": "events.proto", "message": "pkg.Batch", "records": "events"}}
SINGLE: dict[str, Any] = {"protobuf": {"schema": "events.proto", "message": "pkg.Event"}}


def write_protos(folder: Path) -> None:
    """PROTO as events.proto, PLACE as parts/place.proto beside it, and both as the descriptor set events.desc."""
    (folder / "parts").mkdir()
    (folder / "parts/place.proto").write_text(PLACE)
    (folder / "events.proto").write_text(PROTO)
    (folder / "events.desc").write_bytes(compiled_proto(folder, "events.proto"))


def message_class(folder: Path, name: str) -> Any:
    """The class of a message of the folder's schema."""
    return GetMessageClass(message_type((folder / "events.desc").read_bytes(), name))


def varint(number: int) -> bytes:
    """A number as Avro and Protobuf write it: 7 bits a byte, the lowest first."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
