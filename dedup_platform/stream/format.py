"""How records are written: the format of files or messages, and what a format needs besides its name.

Schemas are read and compiled with the stream file, and go with the stream to workers that do not see the file.
"""

import codecs
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from dedup_platform.stream.definitions import paths_in
from dedup_platform.stream.fields import Fields, definitions
from dedup_platform.stream.paths import FieldPath, FieldSpelling, field_path, field_spelling
from dedup_platform.stream.values import FieldName, FieldNames, Part, Problem, Text, origin_of

__all__ = [
    "AvroFormat",
    "CsvFormat",
    "Format",
    "JsonFormat",
    "ProtobufFormat",
    "Registry",
    "SchemaFile",
    "named_fields",
]


@dataclass(frozen=True)
class SchemaFile:
    """A schema: the path that the stream file names, and the compiled content (JSON, or a FileDescriptorSet)."""

    path: str
    content: bytes


def _schema_file(read: Callable[[Path], bytes]) -> PlainValidator:
    def load(value: Any, info: ValidationInfo) -> SchemaFile:
        if not isinstance(value, str) or not value:
            raise ValueError("is no path; write one that is absolute or relative to the stream file's folder")
        path = origin_of(info.context).parent / value
        try:
            return SchemaFile(value, read(path))
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from None

    return PlainValidator(load)


def _read_avro(path: Path) -> bytes:
    from dedup_platform.stream import schemas

    return schemas.read_avro(path)


def _read_protobuf(path: Path) -> bytes:
    from dedup_platform.stream import schemas

    return schemas.read_protobuf(path)


_AS_PATH = PlainSerializer(lambda file: file.path)
_A_PATH = WithJsonSchema({"title": "path", "type": "string"})


def _delimiter(value: str) -> str:
    if len(value) != 1 or value in '"\r\n\0':
        raise ValueError('must be one character, but no quote or end of a line: "\\t" is the tabulator')
    return value


def _quote(value: str) -> str:
    if len(value) > 1 or (value and value in "\r\n\0"):
        raise ValueError('must be one character, but no end of a line; "" if nothing is quoted')
    return value


_ENCODINGS = re.compile(
    r"utf-8|(utf-16|utf-32)(-le|-be)?|ascii|latin-1|iso-8859-\d+|(cp|windows-)\d+|koi8-[rtu]|mac-roman"
    r"|shift_jis|euc-(jp|kr)|iso-2022-jp|gbk|gb18030|big5"
)


def _encoding(value: str) -> str:
    try:
        codecs.lookup(value)
    except LookupError:
        is_known = False
    else:
        is_known = _ENCODINGS.fullmatch(value) is not None
    if not is_known:
        raise ValueError(
            f"{value!r} is no known encoding; write one like utf-8, utf-16, latin-1, windows-1252, shift_jis"
        )
    return value


class CsvFormat(Part):
    """How lines are written: the names of the columns, in order, where there is no header; what stands between them.

    Lines that begin by `comment` are no records.
    """

    columns: FieldNames | None = None
    """The names of the columns, in order, where the files have no header."""
    delimiter: Annotated[Text, AfterValidator(_delimiter)] = Field(",", exclude_if=lambda value: value == ",")
    """What stands between values: one character, `"\\t"` for the tabulator."""
    quote: Annotated[Text, AfterValidator(_quote)] = Field('"', exclude_if=lambda value: value == '"')
    """What values are between that hold a delimiter, itself twice, or an end of a line; `""`: nothing is quoted."""
    encoding: Annotated[Text, AfterValidator(_encoding)] = Field("utf-8", exclude_if=lambda value: value == "utf-8")
    """In what encoding files and messages are. A record's payload is its line in UTF-8."""
    comment: FieldName | None = Field(None, exclude_if=lambda value: value is None)
    """Lines that begin by it are no records."""

    @model_validator(mode="after")
    def _quote_is_no_delimiter(self) -> "CsvFormat":
        if self.quote == self.delimiter:
            raise ValueError(f"quote and delimiter are both {self.quote!r}")
        return self


class JsonFormat(Part):
    """Messages that hold many events: `records` names the list of objects, one event each."""

    records: FieldName
    """The field that holds the list of events; `explode` says the same of any path."""


class AvroFormat(Part):
    """The schema of messages: their writer's or, with a registry, the one to which their writers' are resolved."""

    schema_file: Annotated[SchemaFile, _schema_file(_read_avro), _AS_PATH, _A_PATH] = Field(alias="schema")
    """The file of the schema (`.avsc`), absolute or relative to the stream file's folder."""


class ProtobufFormat(Part):
    """A .proto or a descriptor set, and the message in it; `records` names the field that holds many events, if any."""

    schema_file: Annotated[SchemaFile, _schema_file(_read_protobuf), _AS_PATH, _A_PATH] = Field(alias="schema")
    """A `.proto` or a descriptor set, absolute or relative to the stream file's folder."""
    message: FieldName
    """The message type, with its package."""
    records: FieldName | None = None
    """The repeated field that holds many events, if one does."""

    @field_validator("message")
    @classmethod
    def _is_in_schema(cls, value: str, info: ValidationInfo) -> str:
        from dedup_platform.stream import schemas

        if file := info.data.get("schema_file"):
            schemas.message_type(file.content, value)
        return value

    @field_validator("records")
    @classmethod
    def _is_in_message(cls, value: str | None, info: ValidationInfo) -> str | None:
        from dedup_platform.stream import schemas

        if value and "message" in info.data and "schema_file" in info.data:
            schemas.event_type(info.data["schema_file"].content, info.data["message"], value)
        return value


def _registry_url(value: str) -> str:
    url = urlsplit(value)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError("is no address; write one like http://registry:8081")
    if "@" in url.netloc:
        raise ValueError("must hold no password; set DEDUP_PLATFORM_REGISTRY_LOGIN to user:password instead")
    return value.rstrip("/")


class Registry(Part):
    """The schema registry by whose ids the messages begin."""

    url: Annotated[FieldName, AfterValidator(_registry_url)]
    """Its address, without a password."""


def _explode(value: Any) -> FieldSpelling:
    if value == "*":
        return "*"
    field = field_spelling(value)
    steps = field_path(field).steps
    if not steps or not all(isinstance(step, str) for step in steps):
        raise ValueError(f"{value!r} is no path of names to a list of events, like Records or detail.events")
    return field


Explode = Annotated[
    FieldSpelling,
    PlainValidator(_explode),
    PlainSerializer(lambda value: value, return_type=Any),
    WithJsonSchema(
        {"title": "path of names", "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    ),
]
"""Where in a record the list is whose values are the events; `"*"`: the record is the list."""


class Format(Part):
    """How the records of a source are written. What a format needs stands beside it, under the format's own name."""

    format: Literal["csv", "json", "parquet", "avro", "protobuf"]
    """The format of the files or messages."""
    csv: CsvFormat | None = None
    """More about csv."""
    json_format: JsonFormat | None = Field(None, alias="json")
    """More about json."""
    avro: AvroFormat | None = None
    """More about avro."""
    protobuf: ProtobufFormat | None = None
    """More about protobuf; needed for it."""
    explode: Explode | None = Field(None, exclude_if=lambda value: value is None)
    """Where in a record the list is whose values are the events; `"*"`: the record is the list."""
    registry: Registry | None = None
    """The schema registry by whose ids messages begin."""

    @model_validator(mode="after")
    def _parts_are_of_this_format(self) -> "Format":
        parts = {"csv": self.csv, "json": self.json_format, "avro": self.avro, "protobuf": self.protobuf}
        for name, part in parts.items():
            if part and name != self.format:
                raise ValueError(f"{name} is for the format {name}, not for {self.format}")
        if self.explode and self.format in ("csv", "protobuf"):
            hint = "a line has no list" if self.format == "csv" else "write protobuf: {records: …}"
            raise ValueError(f"explode is for json, avro and parquet, not for {self.format}: {hint}")
        if self.explode == "*" and self.format != "json":
            raise ValueError(f'explode: "*" is for json; a record of {self.format} is no list, name one in it')
        if self.explode and self.json_format:
            raise ValueError("explode and json.records say the same; write explode")
        if self.format == "protobuf" and not self.protobuf:
            raise ValueError("the format protobuf needs its message; write protobuf: {schema: …, message: …}")
        return self

    @property
    def encoding(self) -> str:
        """That of files or messages of texts."""
        return self.csv.encoding if self.csv else "utf-8"

    @property
    def list_steps(self) -> tuple[str, ...] | None:
        """The names that lead to the list of events in a record; None if each record is an event."""
        if self.json_format:
            return (self.json_format.records,)
        if self.explode is None:
            return None
        return () if self.explode == "*" else tuple(map(str, field_path(self.explode).steps))

    def check_files(self) -> None:
        """Raise ValueError unless files can be read with this."""
        if self.registry:
            raise ValueError("registry is for messages; files do not begin by a schema's id")
        if self.json_format:
            raise ValueError("json.records is for messages; for the lists in files write explode: …")
        if self.avro:
            raise ValueError("avro.schema is for messages; an Avro file holds the schema of its records")

    def check_messages(self) -> None:
        """Raise ValueError unless messages can be read with this: a message has no header and no schema of its own."""
        if self.format == "parquet":
            raise ValueError("parquet is for files; allowed for messages: csv, json, avro, protobuf")
        if self.format == "csv" and not (self.csv and self.csv.columns):
            raise ValueError("messages of csv have no header; write csv: {columns: […]}")
        if self.format == "csv" and self.registry:
            raise ValueError("a registry has no schemas of csv; allowed: json, avro, protobuf")
        if self.format == "avro" and not (self.avro or self.registry):
            raise ValueError("messages of avro need a schema; write avro: {schema: …} or registry: {url: …}")

    def problems(self, fields: Fields) -> Iterator[Problem]:
        """What the stream's fields name and the records, as far as the stream file tells, never have."""
        for loc, path in named_fields(fields):
            if wrong := self._wrong(path):
                yield ("fields", *loc), wrong

    def _wrong(self, path: FieldPath) -> str | None:
        columns = self.csv.columns if self.csv else None
        if columns and path.plain not in columns and path.name not in columns:
            return f"{path.text!r} is no field of the records; allowed: {', '.join(columns)}"
        if not self.avro and not self.protobuf:
            return None
        from dedup_platform.stream import schema_paths, schemas

        if self.avro:
            return schema_paths.wrong_in_avro(path, schemas.avro_record(self.avro.schema_file.content), self.list_steps)
        assert self.protobuf
        part = self.protobuf
        return schema_paths.wrong_in_protobuf(
            path, schemas.event_type(part.schema_file.content, part.message, part.records)
        )


def named_fields(fields: Fields) -> Iterator[tuple[tuple[str, ...], FieldPath]]:
    """Every field of a record that the stream names, with the path of its key below `fields`."""
    return ((loc, path) for loc, field in definitions(fields) for path in paths_in(field))
