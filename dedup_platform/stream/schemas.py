"""Schemas of Avro and Protobuf: read, compiled and looked into. What cannot be used raises ValueError with the reason.

Only what meets these formats imports this module: the libraries take longer to load than all stream files.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastavro import parse_schema
from fastavro.schema import SchemaParseException
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from dedup_platform.regular_files import opened
from dedup_platform.stream.avro_least import least_values

__all__ = [
    "WRAPPERS",
    "avro_record",
    "batch_field",
    "compiled_proto",
    "event_type",
    "message_type",
    "outermost_message",
    "read_avro",
    "read_protobuf",
    "registered_messages",
]

WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
"""Messages that stand for the one value in them."""
_MOST_BYTES = 16 * 2**20
_MOST_VALUES = 100_000
_MAIN = "registered schema.proto"
_FRAGMENT = "a descriptor set must hold all that it imports: protoc --include_imports --descriptor_set_out"


def read_avro(path: Path) -> bytes:
    """The Avro schema of a file, as the JSON that it is."""
    content = _content(path)
    avro_record(content)
    return content


def read_protobuf(path: Path) -> bytes:
    """A FileDescriptorSet: what a file holds or, of a .proto, what it becomes with all that it imports."""
    content = _content(path)
    if path.suffix == ".proto":
        return compiled_proto(path.parent, path.name)
    _file_pool(content)
    return content


def _content(path: Path) -> bytes:
    with opened(path) as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"is larger than {_MOST_BYTES // 2**20} MiB, as no schema is")
    return content


@lru_cache(256)
def avro_record(content: bytes, *referenced: bytes) -> Mapping[str, Any]:
    """The schema of a record, parsed; its names are whole, and `__named_schemas` has what each of them stands for.

    `referenced` are the schemas whose names it uses, each after those that it uses itself.
    """
    named: dict[str, Any] = {}
    try:
        for each in referenced:
            parse_schema(json.loads(each), named_schemas=named)
        schema = parse_schema(json.loads(content), named_schemas=named)
        values = least_values(schema, named)
    except (AttributeError, KeyError, RecursionError, SchemaParseException, TypeError, ValueError) as error:
        raise ValueError(f"is no Avro schema: {_line(str(error))}") from None
    if any(type(each.get("size", 0)) is not int for each in named.values()):
        raise ValueError("is no Avro schema: the size of a fixed is no whole number")
    if any(type(field["name"]) is not str for each in named.values() for field in each.get("fields", ())):
        raise ValueError("is no Avro schema: the name of a field is no text")
    if any(not isinstance(each.get("symbols", []), list) for each in named.values()):
        raise ValueError("is no Avro schema: the symbols of an enum are no list")
    if values > _MOST_VALUES:
        raise ValueError(f"cannot be used: one record has at least {values} values; allowed: up to {_MOST_VALUES}")
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError('is not the Avro schema of a record; write {"type": "record", "name": …, "fields": […]}')
    return schema


def compiled_proto(folder: Path, name: str) -> bytes:
    """The FileDescriptorSet of a .proto file and of all that it imports from its folder, or from Protobuf itself."""
    with TemporaryDirectory() as out:
        compiled = Path(out, "set")
        # In the folder: protoc takes what is before a colon, and names that begin with - or @, for something else. With
        # -P, for what lies there is no code of ours.
        protoc = [sys.executable, "-P", "-m", "grpc_tools.protoc", "-I.", "--include_imports"]
        done = subprocess.run(
            [*protoc, f"--descriptor_set_out={compiled}", f"./{name}"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ValueError(f"cannot be compiled: {_line(done.stderr)}")
        return compiled.read_bytes()


def registered_messages(text: str, references: tuple[tuple[str, str], ...]) -> Sequence[Descriptor]:
    """The outermost messages of a .proto's text, which imports others by (name, text)."""
    found = _compiled_messages(text, references)
    if isinstance(found, ValueError):
        raise found
    return found


@lru_cache(256)
def _compiled_messages(text: str, references: tuple[tuple[str, str], ...]) -> Sequence[Descriptor] | ValueError:
    """The same, or why there are none: that takes as long to find out."""
    try:
        return _messages_of(text, references)
    except ValueError as error:
        return error


def _messages_of(text: str, references: tuple[tuple[str, str], ...]) -> Sequence[Descriptor]:
    with TemporaryDirectory() as folder:
        main = Path(folder, _MAIN)
        for name, imported in references:
            file = Path(os.path.normpath(Path(folder, name)))
            if not file.is_relative_to(folder) or file == main:
                raise ValueError(f"{name!r} is no name that a schema can be imported by")
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(imported, "utf-8")
            except OSError as error:
                raise ValueError(f"{name!r} is no name that a schema can be imported by: {error.strerror}") from None
        main.write_text(text, "utf-8")
        pool, _ = _file_pool(compiled_proto(Path(folder), _MAIN))
    return list(pool.FindFileByName(_MAIN).message_types_by_name.values())


@lru_cache(256)
def message_type(descriptors: bytes, name: str) -> Descriptor:
    """The message of this full name in a FileDescriptorSet."""
    pool, files = _file_pool(descriptors)
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        known = _names(m for file in files for m in pool.FindFileByName(file).message_types_by_name.values())
        raise ValueError(f"is no message of the schema; allowed: {', '.join(known)}") from None


def outermost_message(descriptors: bytes) -> str:
    """The full name of the one message of a FileDescriptorSet that no other has in it; ValueError if there are more."""
    pool, files = _file_pool(descriptors)
    # What a file imports stands before it.
    own = [*pool.FindFileByName(files[-1]).message_types_by_name.values()]
    inner = {field.message_type for message in own for field in message.fields if field.message_type != message}
    outermost = [message.full_name for message in own if message not in inner]
    if len(outermost) != 1:
        raise ValueError(f"has several messages; name one of them: {', '.join(outermost or _names(own))}")
    return outermost[0]


def _names(messages: Iterable[Descriptor]) -> list[str]:
    return [message.full_name for message in messages]


def batch_field(message: Descriptor, name: str) -> FieldDescriptor:
    """The field of a message that holds many events."""
    repeated = [field for field in message.fields if _is_batch(field)]
    found = next((field for field in repeated if field.name == name), None)
    if found is None:
        allowed = ", ".join(field.name for field in repeated) or "none, as it has none"
        raise ValueError(f"is no repeated message field of {message.full_name}; allowed: {allowed}")
    return found


def event_type(descriptors: bytes, message: str, records: str | None) -> Descriptor:
    """What one event is: the message itself, or an element of its field `records`."""
    outer = message_type(descriptors, message)
    return batch_field(outer, records).message_type if records else outer


def _is_batch(field: FieldDescriptor) -> bool:
    # A group and a map's entry are messages too, but no bytes of their own and no events.
    if field.type != FieldDescriptor.TYPE_MESSAGE or not field.is_repeated:
        return False
    return not field.message_type.GetOptions().map_entry


@lru_cache(64)
def _file_pool(descriptors: bytes) -> tuple[DescriptorPool, list[str]]:
    """A pool of all files of a set, and the names of those files."""
    pool = DescriptorPool()
    try:
        files = FileDescriptorSet.FromString(descriptors).file
        for file in files:
            pool.Add(file)
    except DecodeError:
        raise ValueError("is no Protobuf descriptor set; a schema in text is a file that ends in .proto") from None
    except TypeError as error:
        raise ValueError(f"cannot be used: {_line(str(error))}; {_FRAGMENT}") from None
    if not files:
        raise ValueError("is a descriptor set without any files")
    return pool, [file.name for file in files]


def _line(text: str) -> str:
    return " ".join(text.split())
