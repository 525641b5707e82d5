"""The receipts of commits to derived tables: how their cells were built."""

from collections.abc import Iterable, Mapping

from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.receipts import BuildReceipt, Input
from dedup_platform.ledger import Head
from dedup_platform.planning.cells import Cell
from dedup_platform.tables import INPUT_OF


def build_receipt(
    table: str,
    heads: Mapping[str, Head],
    settings: str,
    reason: str,
    checked: Iterable[Cell],
    rewritten: Iterable[Cell] = (),
) -> BuildReceipt:
    """The receipt of a build that read the head of the table's input and goes on from the table's own.

    `settings` is the fingerprint of the stream's rules. Names every cell that was checked, rewritten or not (rule 6).
    """
    source = INPUT_OF[table]
    # Unchecked: there may be a million cells, and they are cells.
    return BuildReceipt.model_construct(
        table=table,
        built_from={source: Input(snapshot=heads[source].snapshot_id, sequence=heads[source].sequence)},
        fingerprint=settings,
        reason=reason,
        checked=tuple(sorted(checked)),
        rewritten=tuple(sorted(rewritten)),
        previous=heads[table].receipt,
    )


def receipt_of_same_rows(
    catalog: Catalog,
    stream: str,
    table: str,
    heads: Mapping[str, Head],
    settings: str,
    reason: str,
    cells: Iterable[Cell],
) -> BuildReceipt:
    """The receipt of whoever changes no row and says of cells that they are built from their input as it is now."""
    receipt = build_receipt(table, heads, settings, reason, cells)
    last = newest_receipt(catalog, stream, heads[table])
    if last is None:
        return receipt
    # What is told of the whole table is what it was.
    return receipt.model_copy(update={"events": last.events, "longest_reach": last.longest_reach})


def newest_receipt(catalog: Catalog, stream: str, head: Head) -> BuildReceipt | None:
    """The newest receipt of a derived table; None if there is none, or it is lost."""
    receipt = catalog.read_receipt(stream, head.receipt) if head.receipt else None
    return receipt if isinstance(receipt, BuildReceipt) else None
