"""Data files whose rows are all those of other files, with some columns more, which are not decoded for it.

A column of a Parquet file lies in chunks that mean the same at any other place: only the footer says where they are. So
they are copied as bytes, which takes a tenth of the time that reading and writing their values does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile

from dedup_platform.lake.durable import DurableFileIO, put_away, send_ahead
from dedup_platform.lake.made_chunks import Chunk, RepeatedValues, RisingNumbers
from dedup_platform.lake.parquet_footer import (
    I64,
    LIST,
    MAGIC,
    STRUCT,
    Struct,
    chunk_begins,
    elements,
    footer_bytes,
    read_footer,
    struct_bytes,
    value,
)
from dedup_platform.lake.table_files import TableFiles

_BLOCK_BYTES = 2**20
"""So much of a file of this machine is copied at a time: it is still in the processor's cache when it is written."""
_REMOTE_BLOCK_BYTES = 8 * 2**20
"""The same of a file elsewhere, where each reading is a request."""

# Ids of fields in parquet-format's `parquet.thrift`.
_SCHEMA, _ROWS, _GROUPS, _KEYS, _ENCRYPTED = 2, 3, 4, 5, 8
_NAME, _FIELD_ID = 4, 9
_COLUMNS, _GROUP_BYTES, _GROUP_ROWS, _GROUP_AT, _GROUP_COMPRESSED = 1, 2, 3, 5, 6
_OTHER_FILE, _CHUNK_AT, _CHUNK, _CHUNK_ENCRYPTED = 1, 2, 3, 8
_PATH, _BYTES, _COMPRESSED, _DATA_AT, _INDEX_AT, _DICTIONARY_AT, _BLOOM, _BLOOM_BYTES = 3, 6, 7, 9, 10, 11, 14, 15


@dataclass(frozen=True)
class Whole:
    """All rows of a data file, in its order."""

    file: DataFile
    same: Mapping[str, Any]
    """The columns that the file has not got but `number`, and their value in all rows."""
    first: int
    """The number of the first row."""


_Copy = tuple[Whole, list[Struct]]
"""What is copied, and its row groups."""
_Group = tuple[int, bytes]
"""A row group as a footer tells of it: its rows, and all of it as bytes."""


@dataclass(frozen=True)
class WholeFiles:
    """Makes files of a table from whole files of another one, whose columns it has, too."""

    source: TableFiles
    target: TableFiles
    number: str
    """The column of the target that numbers rows."""

    def look(self, file: DataFile) -> list[Struct] | None:
        """The row groups of a file whose columns are those that the target needs, and no others; None of any other.

        Files of other writers, or from before the table got a column, may be such.
        """
        with self.source.io.new_input(file.file_path).open() as opened:
            try:
                footer = read_footer(opened)
            except ValueError:
                return None
        columns = [_without_id(each) for each in elements(footer, _SCHEMA)[1:]]
        is_whole = len(columns) == len(self.source.metadata.schema().fields) and _is_plain(footer)
        is_known = is_whole and all(self._known.get(each[_NAME]) == each for each in columns)
        return elements(footer, _GROUPS) if is_known else None

    def write(self, place: Sequence[int | None], parts: Sequence[Whole]) -> list[DataFile]:
        """Write some files' rows as one new file, whose partition has these values, one file after the other.

        Those that cannot be copied as they are make another one.
        """
        others: list[Whole] = []
        # One after the other: footers of all of them would be a hundred thousand objects in memory.
        copies = self._copies(parts, others)
        files = [self._copied(place, chain([first], copies))] if (first := next(copies, None)) else []
        if others:
            files.append(self.target.write_at(place, pa.concat_tables(map(self._read, others))))
        return files

    def _copies(self, parts: Iterable[Whole], others: list[Whole]) -> Iterator[_Copy]:
        """Those that can be copied; the others come to that list."""
        for part in parts:
            if groups := self.look(part.file):
                yield part, groups
            else:
                others.append(part)

    def _copied(self, place: Sequence[int | None], copies: Iterable[_Copy]) -> DataFile:
        key = self.target.new.key(place)
        path = self.target.new.location(key)
        output = self.target.io.new_output(path)
        with output.create(overwrite=True) as out:
            out.write(MAGIC)
            groups = list[_Group]()
            for part, before in copies:
                groups += self._moved(part, before, out)
                send_ahead(output)
            footer = self._footer(groups)
            out.write(footer)
        put_away(output)
        return self.target.new.described(path, key, len(output), pq.read_metadata(BytesIO(MAGIC + footer)))

    def _read(self, part: Whole) -> pa.Table:
        """The rows of a file with the other columns of the target."""
        schema = self.target.new.arrow_schema
        names = [field.name for field in self.source.metadata.schema().fields]
        rows = self.source.read([part.file], names)
        for name, each in part.same.items():
            rows = rows.append_column(name, pa.repeat(pa.scalar(each, schema.field(name).type), len(rows)))
        return rows.append_column(self.number, pa.arange(part.first, part.first + len(rows)))

    @cached_property
    def _template(self) -> Struct:
        """The footer of a file of the target without any row."""
        content = pa.BufferOutputStream()
        schema = self.target.new.arrow_schema
        pq.write_table(schema.empty_table(), content, store_decimal_as_integer=True)
        return read_footer(pa.BufferReader(content.getvalue()))

    @cached_property
    def _known(self) -> dict[tuple[int, Any], Struct]:
        """The target's columns by name. Elements of lists come after all that a source may have."""
        return {each[_NAME]: _without_id(each) for each in reversed(elements(self._template, _SCHEMA)[1:])}

    def _moved(self, part: Whole, groups: Iterable[Struct], out: pa.NativeFile) -> Iterator[_Group]:
        """Copy the row groups of a file, each behind its new columns; returns them as they are now."""
        first = part.first
        block = _BLOCK_BYTES if isinstance(self.source.io, DurableFileIO) else _REMOTE_BLOCK_BYTES
        with self.source.io.new_input(part.file.file_path).open() as opened:
            for group in groups:
                rows = value(group, _GROUP_ROWS)
                begins = out.tell()
                made = [*self._repeated(part.same).chunks(rows), self._numbers.chunk(first, rows)]
                columns = [*_put(made, out), *_copy(group, opened, out, block)]
                yield rows, struct_bytes(self._group(columns, rows, begins))
                first += rows

    @cached_property
    def _numbers(self) -> RisingNumbers:
        return RisingNumbers(self.target.new.arrow_schema.field(self.number))

    def _repeated(self, same: Mapping[str, Any]) -> RepeatedValues:
        key = tuple(sorted(same.items()))
        if key not in self._known_repeated:
            self._known_repeated[key] = RepeatedValues(
                pa.schema([field for field in self.target.new.arrow_schema if field.name in same]), same
            )
        return self._known_repeated[key]

    @cached_property
    def _known_repeated(self) -> dict[tuple[Any, ...], RepeatedValues]:
        return {}

    def _group(self, columns: Sequence[Struct], rows: int, begins: int) -> Struct:
        """A row group; its columns are in the schema's order."""
        by_name = {elements(value(column, _CHUNK), _PATH)[0]: column for column in columns}
        ordered = [by_name[field.name.encode()] for field in self.target.new.arrow_schema]
        sizes = (sum(value(value(column, _CHUNK), field) for column in ordered) for field in (_BYTES, _COMPRESSED))
        uncompressed, compressed = sizes
        return {
            _COLUMNS: (LIST, (STRUCT, ordered)),
            _GROUP_BYTES: (I64, uncompressed),
            _GROUP_ROWS: (I64, rows),
            _GROUP_AT: (I64, begins),
            _GROUP_COMPRESSED: (I64, compressed),
        }

    def _footer(self, groups: Sequence[_Group]) -> bytes:
        footer = {field: each for field, each in self._template.items() if field != _KEYS}
        footer[_ROWS] = (I64, sum(rows for rows, _ in groups))
        footer[_GROUPS] = (LIST, (STRUCT, [group for _, group in groups]))
        return footer_bytes(footer)


def _is_plain(footer: Struct) -> bool:
    chunks = [chunk for group in elements(footer, _GROUPS) for chunk in elements(group, _COLUMNS)]
    return _ENCRYPTED not in footer and not any(
        _OTHER_FILE in chunk or _CHUNK_ENCRYPTED in chunk or _CHUNK not in chunk for chunk in chunks
    )


def _without_id(column: Struct) -> Struct:
    return {field: each for field, each in column.items() if field != _FIELD_ID}


def _copy(group: Struct, source: pa.NativeFile, out: pa.NativeFile, block: int) -> list[Struct]:
    """Copy the bytes of a row group, so many at a time; returns its columns as they are now."""
    chunks = [value(column, _CHUNK) for column in elements(group, _COLUMNS)]
    begins = min(map(chunk_begins, chunks))
    ends = max(chunk_begins(chunk) + value(chunk, _COMPRESSED) for chunk in chunks)
    moved = out.tell() - begins
    for at in range(begins, ends, block):
        out.write(source.read_at(min(block, ends - at), at))
    return [_moved(chunk, moved) for chunk in chunks]


def _put(made: Sequence[Chunk], out: pa.NativeFile) -> list[Struct]:
    """Write chunks, one after the other; returns their columns as they are now."""
    begins = accumulate((len(content) for content, _ in made), initial=out.tell())
    out.write(b"".join(content for content, _ in made))
    return [_moved(chunk, at - chunk_begins(chunk)) for at, (_, chunk) in zip(begins, made, strict=False)]


def _moved(chunk: Struct, by: int) -> Struct:
    """A column that lies elsewhere now; what is beside the row groups (indexes, filters) is not there any more."""
    kept = {field: each for field, each in chunk.items() if field not in (_INDEX_AT, _BLOOM, _BLOOM_BYTES)}
    for field in (_DATA_AT, _DICTIONARY_AT):
        if value(kept, field):
            kept[field] = (I64, value(kept, field) + by)
    return {_CHUNK_AT: (I64, 0), _CHUNK: (STRUCT, kept)}
