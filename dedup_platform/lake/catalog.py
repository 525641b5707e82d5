"""The deployment's Iceberg catalog: tables by their names, receipts and parts of checkpoints by theirs. No Spark."""

import logging
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileInfo, FileSelector
from pyiceberg.catalog import Catalog as IcebergCatalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from sqlalchemy import bindparam, select
from sqlalchemy.exc import DBAPIError

from dedup_platform.lake.monotonic import monotonic_catalog
from dedup_platform.lake.receipts import AnyReceipt, Part, Receipt, digest_of, parse_receipt, receipt_text
from dedup_platform.settings import CATALOG, ENV_PREFIX, Settings, of_files
from dedup_platform.uris import reaching

_LOG = logging.getLogger(__name__)


class Catalog:
    """The deployment's Iceberg catalog, read through PyIceberg."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._catalog: IcebergCatalog | None = None
        self._newest: dict[tuple[str, str], tuple[str, TableMetadata]] = {}

    @property
    def iceberg(self) -> IcebergCatalog:
        """PyIceberg's own catalog, opened at first use; UnreachableError if it cannot be."""
        if self._catalog is None:
            self.settings.make_folders()
            self._catalog = self._open()
        return self._catalog

    def _open(self) -> IcebergCatalog:
        properties = self.settings.catalog_properties()
        with reaching(f"{ENV_PREFIX}CATALOG_URI"):
            kind = monotonic_catalog(self.settings.catalog_kind)
            try:
                return kind(CATALOG, **properties)
            except DBAPIError:
                # Another process made the catalog's own tables between our look and our try: now they are there.
                return kind(CATALOG, **properties)

    def load(self, stream: str, table: str) -> Table | None:
        """The table as it is now; None until it has been created with its first snapshot."""
        try:
            found = self.load_table(stream, table)
        except NoSuchTableError:
            return None
        return found if found.current_snapshot() else None

    def load_table(self, stream: str, table: str) -> Table:
        """The table as it is now; raises NoSuchTableError."""
        if isinstance(self.iceberg, SqlCatalog):
            return self._load_from_sql(self.iceberg, stream, table)
        return self.iceberg.load_table((stream, table))

    def _load_from_sql(self, catalog: SqlCatalog, stream: str, table: str) -> Table:
        """Metadata files are immutable: the one that was read last is read again only if the catalog names another."""
        place = (stream, table)
        location = _metadata_location(catalog, stream, table)
        if location is None:
            raise NoSuchTableError(f"Table does not exist: {stream}.{table}")
        io = load_file_io(self.settings.file_properties(), location)
        newest = self._newest.get(place)
        if newest is None or newest[0] != location:
            newest = self._newest[place] = (location, FromInputFile.table_metadata(io.new_input(location)))
        return Table(place, newest[1], location, io, catalog)

    def write_receipt(self, stream: str, receipt: Receipt) -> None:
        """Write the immutable note that a commit's summary names; it must be there before the commit is published.

        Receipts lie beside the tables, not inside them, so that orphan removal never takes them.
        """
        with self.files.new_output(self._receipt_path(stream, receipt.name)).create() as file:
            file.write(receipt_text(receipt))

    def read_receipt(self, stream: str, name: str) -> AnyReceipt | None:
        """A receipt by its name; None if it is gone or damaged. Raises NewerVersionError."""
        try:
            with self.files.new_input(self._receipt_path(stream, name)).open() as file:
                return parse_receipt(stream, name, file.read())
        except FileNotFoundError:
            return None
        except ValueError as error:
            _LOG.warning("%s: the receipt %s is damaged and counts as lost: %s", stream, name, error)
            return None

    def receipts_from(self, stream: str, name: str | None) -> Iterator[tuple[str, AnyReceipt | None]]:
        """A receipt and those before it, each with its name, as far back as none is gone or damaged: that is None.

        One that names a newer one as the one before it is damaged. Raises NewerVersionError.
        """
        passed = set[str]()
        while name:
            receipt = self.read_receipt(stream, name)
            passed.add(name)
            if receipt and receipt.previous in passed:
                _LOG.warning("%s: the receipt %s is damaged and counts as lost: it leads to itself", stream, name)
                receipt = None
            yield name, receipt
            name = receipt.previous if receipt else None

    def write_part(self, stream: str, name: str, rows: pa.Table) -> Part:
        """Write a part of a checkpoint, for a receipt to name."""
        content = pa.BufferOutputStream()
        pq.write_table(rows, content, compression="zstd")
        text = content.getvalue().to_pybytes()
        with self.files.new_output(self._receipt_path(stream, name)).create() as file:
            file.write(text)
        return Part(name=name, rows=len(rows), digest=digest_of(text))

    def read_part(self, stream: str, part: Part, schema: pa.Schema) -> pa.Table | None:
        """The rows of a part of a checkpoint, with these columns; None if it is gone or damaged."""
        try:
            with self.files.new_input(self._receipt_path(stream, part.name)).open() as file:
                text = file.read()
        except FileNotFoundError:
            return None
        try:
            return _rows_of(part, text, schema)
        except (ValueError, KeyError, OSError, pa.ArrowException) as error:
            _LOG.warning("%s: the part %s of a checkpoint is damaged and counts as lost: %s", stream, part.name, error)
            return None

    def stored_receipts(self, stream: str) -> list[FileInfo]:
        """Every receipt of a stream and every part of a checkpoint, whether anything names it or not."""
        scheme, host, path = PyArrowFileIO.parse_location(self._receipt_path(stream, ""))
        folder = PyArrowFileIO(self.files.properties).fs_by_scheme(scheme, host)
        return [file for file in folder.get_file_info(FileSelector(path, allow_not_found=True)) if file.is_file]

    def delete_receipt(self, stream: str, name: str) -> None:
        """Delete a receipt that nothing names any more; it may be gone already."""
        with suppress(FileNotFoundError):
            self.files.delete(self._receipt_path(stream, name))

    def stored_files(self, stream: str, table: str) -> list[FileInfo]:
        """Every file in the table's folder, whether anything refers to it or not."""
        found = self.load_table(stream, table)
        scheme, host, path = PyArrowFileIO.parse_location(found.location())
        folder = PyArrowFileIO(found.io.properties).fs_by_scheme(scheme, host)
        return [file for file in folder.get_file_info(FileSelector(path, recursive=True)) if file.is_file]

    def file_properties(self, table: Table) -> dict[str, str]:
        """What reading and writing a table's files takes; a REST catalog may have lent us keys of its own for it."""
        return self.settings.file_properties() | of_files(table.io.properties)

    @property
    def files(self) -> FileIO:
        """Reads, writes and deletes single files of the warehouse."""
        return load_file_io(self.settings.file_properties(), self.settings.warehouse)

    def _receipt_path(self, stream: str, name: str) -> str:
        return f"{self.settings.warehouse}/{stream}/receipts/{name}"


_ADDED = {"skipped": False}
"""Columns that older parts of checkpoints do not have, with the value that all their rows would have."""


def _rows_of(part: Part, text: bytes, schema: pa.Schema) -> pa.Table:
    if part.digest is not None and part.digest != digest_of(text):
        raise ValueError("its digest is another one")
    rows = pq.read_table(pa.BufferReader(text))
    for name in _ADDED.keys() & set(schema.names) - set(rows.column_names):
        rows = rows.append_column(name, pa.repeat(_ADDED[name], len(rows)))
    rows = rows.select(schema.names).cast(schema)
    if len(rows) != part.rows:
        raise ValueError(f"it has {len(rows)} rows instead of {part.rows}")
    return rows


_LOCATION = select(IcebergTables.metadata_location).where(
    IcebergTables.catalog_name == CATALOG,
    IcebergTables.table_namespace == bindparam("stream"),
    IcebergTables.table_name == bindparam("table"),
)
"""Made once: it is asked dozens of times by every command, and making it takes longer than asking."""


def _metadata_location(catalog: SqlCatalog, stream: str, table: str) -> str | None:
    with catalog.engine.connect() as connection:
        return connection.execute(_LOCATION, {"stream": stream, "table": table}).scalar()
