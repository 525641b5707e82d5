"""What a checkpoint holds of all receipts before it, as rows of Parquet, and how a fold goes on from it."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import pyarrow as pa
import sqlalchemy as sa

from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.receipts import PartKind, ReadFile, Receipt, parts_of
from dedup_platform.ledger.facts import moment
from dedup_platform.ledger.fold import FilesTold, Proof, Told
from dedup_platform.ledger.schema import BUILT, FILES, UNTOLD
from dedup_platform.planning.cells import Cell
from dedup_platform.planning.moments import EPOCH

_CELL = [pa.field("partition", pa.int32()), pa.field("bucket", pa.int32())]
KINDS: Mapping[PartKind, tuple[sa.Table, pa.Schema]] = {
    "built": (
        BUILT,
        pa.schema([*_CELL, pa.field("input_sequence", pa.int64()), pa.field("fingerprint", pa.string())]),
    ),
    "untold": (
        UNTOLD,
        pa.schema(
            [
                *_CELL,
                pa.field("sequence", pa.int64()),
                pa.field("committed_at", pa.int64()),
                pa.field("disturbed", pa.bool_()),
            ]
        ),
    ),
    "files": (
        FILES,
        pa.schema(
            [
                pa.field("path", pa.string()),
                pa.field("generation", pa.int32()),
                pa.field("size", pa.int64()),
                pa.field("etag", pa.string()),
                pa.field("records", pa.int64()),
                pa.field("skipped", pa.bool_()),
            ]
        ),
    ),
}
"""Kind of part -> the SQL table whose rows it holds, and its columns."""


class Untold(NamedTuple):
    """The newest change of a cell whose files do not tell it."""

    cell: Cell
    sequence: int
    at: datetime
    disturbed: bool


class Content(NamedTuple):
    """What a checkpoint holds, in the form in which facts are taken from receipts."""

    told: list[Told]
    untold: list[Untold]


def read_part(connection: sa.Connection, stream: str, table: str, kind: PartKind) -> pa.Table:
    """All rows of this kind that the control database has of a table."""
    found, schema = KINDS[kind]
    query = sa.select(*found.c[*schema.names]).where(found.c.stream == stream).order_by(*found.primary_key)
    if "table" in found.c:
        query = query.where(found.c.table == table)
    rows = connection.execute(query).all()
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema.names)
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
    )


def read_content(catalog: Catalog, stream: str, receipt: Receipt) -> Content | None:
    """What the checkpoint of this receipt holds; None if a part of it is gone or damaged."""
    parts: dict[PartKind, list[pa.Table]] = {}
    for kind, named in parts_of(receipt).items():
        found = [catalog.read_part(stream, part, KINDS[kind][1]) for part in named]
        if any(part is None for part in found):
            return None
        parts[kind] = found
    files = [FilesTold([ReadFile(**row) for row in part.to_pylist()]) for part in parts.get("files", ())]
    built = [each for part in parts.get("built", ()) for each in _proofs(part)]
    untold = [
        Untold(
            Cell(row["partition"], row["bucket"]),
            row["sequence"],
            moment(row["committed_at"]) or EPOCH,
            row["disturbed"],
        )
        for part in parts.get("untold", ())
        for row in part.to_pylist()
    ]
    return Content([*files, *built], untold)


def _proofs(part: pa.Table) -> Iterator[Proof]:
    how = itemgetter("input_sequence", "fingerprint")
    for (sequence, fingerprint), rows in groupby(sorted(part.to_pylist(), key=how), how):
        yield Proof(sequence, fingerprint, [Cell(row["partition"], row["bucket"]) for row in rows])
