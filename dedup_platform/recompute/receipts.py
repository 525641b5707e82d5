"""What a commit to a derived table tells of how it was built: a receipt, and the properties of its snapshot."""

from collections.abc import Iterable, Mapping
from typing import Any

from dedup_platform.lake.catalog import Catalog, new_receipt_name
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
) -> dict[str, Any]:
    """The receipt of a build that read the head of the table's input and goes on from the table's own.

    `settings` is the fingerprint of the stream's rules. Names every cell that was checked, rewritten or not (rule 6).
    """
    source = INPUT_OF[table]
    return {
        "name": new_receipt_name(),
        "table": table,
        "built_from": {source: {"snapshot": heads[source].snapshot_id, "sequence": heads[source].sequence}},
        "fingerprint": settings,
        "reason": reason,
        "checked": sorted(checked),
        "rewritten": sorted(rewritten),
        "previous": heads[table].receipt,
    }


def receipt_of_same_rows(
    catalog: Catalog,
    stream: str,
    table: str,
    heads: Mapping[str, Head],
    settings: str,
    reason: str,
    cells: Iterable[Cell],
) -> dict[str, Any]:
    """The receipt of whoever changes no row and says of cells that they are built from their input as it is now."""
    receipt = build_receipt(table, heads, settings, reason, cells)
    last = (receipt["previous"] and catalog.read_receipt(stream, receipt["previous"])) or {}
    # What is told of the whole table is what it was.
    return receipt | {name: last[name] for name in ("events", "longest_reach") if name in last}


def build_properties(receipt: Mapping[str, Any]) -> dict[str, str]:
    """What the snapshot itself tells of such a receipt."""
    [(source, read)] = receipt["built_from"].items()
    return {
        "receipt": receipt["name"],
        "built-from": f"{source}@{read['snapshot']}",
        "fingerprint": receipt["fingerprint"],
        "reason": receipt["reason"],
    }
