"""Takes a stream's tables away for good, whatever dies in between and whoever writes meanwhile.

A table leaves the catalog first, and then its files go: those that were listed before, and no others. So a table that
another process makes anew in the same folder keeps its files, and a writer that still has the old one is refused by the
catalog, which does not know that table any more. The list is written down before the table leaves the catalog: whoever
comes after a crash deletes what it names.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from pyarrow.fs import FileInfo, FileSelector
from pyiceberg.exceptions import NamespaceNotEmptyError, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from dedup_platform import tables
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.snapshots import total_rows

OURS = (*tables.FOLLOWER_OF.values(), tables.AUDIT, *reversed(tables.ALL))
"""The tables of a stream in the order in which they go: what was taken in goes last."""
_AT_ONCE = 16
"""So many files are deleted side by side: on S3 each is a request."""


@dataclass(frozen=True)
class TableSize:
    """What of a table goes. Files and bytes are those of its folder: of its history, too."""

    table: str
    rows: int
    files: int
    bytes: int


class TableRemoval:
    """The tables of one stream, by the stream's name: there need not be a stream file any more."""

    def __init__(self, catalog: Catalog, stream: str) -> None:
        self._catalog, self._stream = catalog, stream

    def tables(self) -> list[str]:
        """Those of ours that there are, in the order in which they go."""
        found = self._names()
        return [table for table in OURS if table in found]

    def others(self) -> list[str]:
        """Tables that somebody else made in the stream's namespace."""
        return sorted(self._names() - set(OURS))

    def sizes(self) -> Iterator[TableSize]:
        """What the tables hold."""
        for table in self.tables():
            try:
                loaded, stored = self._with_files(table)
            except FileNotFoundError:
                yield TableSize(table, 0, 0, 0)
            except NoSuchTableError:
                continue
            else:
                rows = total_rows(loaded) if loaded.current_snapshot() else 0
                yield TableSize(table, rows, len(stored), sum(each.size for each in stored))

    def is_left_over(self) -> bool:
        """Whether files are there that somebody began to take away, or receipts without tables."""
        return bool(self._lists() or (not self._has_raw() and self._catalog.stored_receipts(self._stream)))

    def remove(self) -> None:
        """Take all tables away, with their files and receipts; also the rest of what was begun before."""
        begun = self._lists()
        for table in self.tables():
            self._remove(table)
        self._remove_receipts()
        for name in begun:
            _delete(self._catalog.files, self._listed(name))
            self._delete_list(name)

    def remove_namespace(self) -> None:
        """Take the empty namespace away, and empty folders; one with tables of others stays."""
        with suppress(NoSuchNamespaceError, NamespaceNotEmptyError):
            self._catalog.iceberg.drop_namespace(self._stream)
        if not self._catalog.settings.is_on_s3:
            _remove_empty_folders(Path(self._catalog.settings.warehouse) / self._stream)

    def _remove(self, table: str) -> None:
        try:
            loaded, stored = self._with_files(table)
        except NoSuchTableError:
            return  # another process was faster
        except FileNotFoundError:
            # Its metadata is lost, and with it where its files are.
            self._drop(table)
            return
        addresses = _addresses(loaded, stored)
        name = self._write_list(addresses)
        self._drop(table)
        # A REST catalog may have lent us keys for the table's files.
        _delete(load_file_io(self._catalog.file_properties(loaded), loaded.location()), addresses)
        self._delete_list(name)

    def _drop(self, table: str) -> None:
        with suppress(NoSuchTableError):
            self._catalog.iceberg.drop_table((self._stream, table))

    def _with_files(self, table: str) -> tuple[Table, list[FileInfo]]:
        """A table and all files in its folder. Raises NoSuchTableError, or FileNotFoundError if it is damaged."""
        return self._catalog.load_table(self._stream, table), self._catalog.stored_files(self._stream, table)

    def _remove_receipts(self) -> None:
        """Delete the receipts of tables that are gone: a new table is there before its first receipt."""
        stored = self._catalog.stored_receipts(self._stream)
        if not self._has_raw():
            for each in stored:
                self._catalog.delete_receipt(self._stream, each.base_name)

    def _listed(self, name: str) -> list[str]:
        """What a list names; nothing if it was not written to its end: then its table is still in the catalog."""
        try:
            with self._catalog.files.new_input(f"{self._folder}/{name}").open() as file:
                addresses: list[str] = json.loads(file.read())
        except (FileNotFoundError, ValueError):
            return []
        return addresses

    def _delete_list(self, name: str) -> None:
        with suppress(FileNotFoundError):  # another process was faster
            self._catalog.files.delete(f"{self._folder}/{name}")

    def _write_list(self, addresses: Sequence[str]) -> str:
        name = f"{uuid4().hex}.json"
        with self._catalog.files.new_output(f"{self._folder}/{name}").create() as file:
            file.write(json.dumps(addresses).encode())
        return name

    def _lists(self) -> list[str]:
        """What was begun, by the names of the lists."""
        scheme, host, path = PyArrowFileIO.parse_location(self._folder)
        folder = PyArrowFileIO(self._catalog.files.properties).fs_by_scheme(scheme, host)
        found = folder.get_file_info(FileSelector(path, allow_not_found=True))
        return [each.base_name for each in found if each.is_file]

    def _names(self) -> set[str]:
        with suppress(NoSuchNamespaceError):
            return {name for *_, name in self._catalog.iceberg.list_tables(self._stream)}
        return set()

    def _has_raw(self) -> bool:
        return tables.RAW_EVENTS in self._names()

    @property
    def _folder(self) -> str:
        return f"{self._catalog.settings.warehouse}/{self._stream}/removals"


def _addresses(table: Table, files: Iterable[FileInfo]) -> list[str]:
    """The files of a table as its FileIO takes them."""
    scheme, _, _ = PyArrowFileIO.parse_location(table.location())
    return [each.path if scheme == "file" else f"{scheme}://{each.path}" for each in files]


def _remove_empty_folders(root: Path) -> None:
    for folder, _, _ in os.walk(root, topdown=False):
        with suppress(OSError):
            # It is not empty, or gone.
            Path(folder).rmdir()


def _delete(io: FileIO, addresses: Sequence[str]) -> None:
    def delete(address: str) -> None:
        with suppress(FileNotFoundError):
            io.delete(address)

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for _ in threads.map(delete, addresses):
            pass
