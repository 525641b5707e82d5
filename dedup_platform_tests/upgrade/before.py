"""A home of the version before, as it was packed: tables, receipts, control database and Dagster's records.

It was lived in at `PLACE`: five ingests, a change of the number of buckets, a changed file that was accepted, rejected
lines, upkeep with checkpoints, and repairs of late data, all by the command line. Iceberg's metadata holds absolute
paths, so whoever unpacks it elsewhere moves them.
"""

import sqlite3
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fastavro

ARCHIVE = Path(__file__).with_name("before.tar.xz")
PLACE = "/srv/before"


def unpack(folder: Path) -> None:
    """Unpack it into a folder, as if it had been lived in there: `home`, `events`, `events.yaml`, `expected.json`."""
    unpack_archive(ARCHIVE, folder)
    warehouse = folder / "home" / "warehouse"
    for path in warehouse.rglob("*.metadata.json"):
        path.write_text(path.read_text(encoding="utf-8").replace(PLACE, str(folder)), encoding="utf-8")
    manifests = list(warehouse.rglob("metadata/*.avro"))
    # A list of manifests tells how long each of them is, so the lists come last.
    for path in sorted(manifests, key=lambda path: path.name.startswith("snap-")):
        _move(path, folder)
    with sqlite3.connect(folder / "home" / "catalog.db") as catalog:
        for column in ("metadata_location", "previous_metadata_location"):
            catalog.execute(f"UPDATE iceberg_tables SET {column} = replace({column}, ?, ?)", (PLACE, str(folder)))
    catalog.close()


def unpack_archive(path: Path, folder: Path) -> None:
    """Unpack an archive of this package into a folder."""
    with tarfile.open(path) as archive:
        # Pythons before 3.11.4 have no filters, and need none for an archive of ours.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(folder)


def _move(path: Path, folder: Path) -> None:
    with path.open("rb") as file:
        found = fastavro.reader(file)
        rows = [_moved(row, folder) for row in found]
        schema, codec = found.writer_schema, found.codec
        told = {name: value for name, value in found.metadata.items() if not name.startswith("avro.")}
    with path.open("wb") as file:
        assert schema is not None
        fastavro.writer(file, schema, rows, codec=codec, metadata=told)


def _moved(value: Any, folder: Path) -> Any:
    if isinstance(value, str):
        return value.replace(PLACE, str(folder))
    if isinstance(value, list):
        return [_moved(each, folder) for each in value]
    if not isinstance(value, Mapping):
        return value
    moved = dict(_moved_items(value, folder))
    if "manifest_length" in moved:
        moved["manifest_length"] = Path(moved["manifest_path"]).stat().st_size
    return moved


def _moved_items(value: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, Any]]:
    return ((name, _moved(each, folder)) for name, each in value.items())
