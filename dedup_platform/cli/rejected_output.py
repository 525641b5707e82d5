"""What the commands about rejected records print for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from dedup_platform.cli.grid import as_given, plain_table, print_table
from dedup_platform.cli.output import moment, span
from dedup_platform.cli.values import beginning, record_value

if TYPE_CHECKING:
    from dedup_platform.replay.rejected import Outcome, ReasonCount, RejectedRecord
    from dedup_platform.stream import Stream

RECORDS_SHOWN = 20
"""How many rejected records are listed."""


def print_rejected(console: Console, reasons: Sequence[ReasonCount], records: Sequence[RejectedRecord]) -> None:
    """Rejected records counted by reason, and some of them one by one."""
    if not reasons:
        console.print("No record is rejected, or none that is meant.")
        return
    table = plain_table("reason", "records#", "first arrived", "last arrived", "sources~")
    for each in reasons:
        sources = ", ".join(each.sources[:3]) + (f" and {len(each.sources) - 3:,} more" if each.sources[3:] else "")
        times = moment(each.oldest), moment(each.newest)
        table.add_row(as_given(each.reason), f"{each.records:,}", *times, as_given(sources))
    print_table(console, table)
    if records:
        print_table(console, _records(records))


def print_record(console: Console, record: RejectedRecord) -> None:
    """One record, whole; what is no text is hexadecimal."""
    for name, value in record_value(record).items():
        console.print(f"{name}: {'none' if value is None else value}", markup=False, highlight=False, soft_wrap=True)


def print_outcome(console: Console, stream: Stream, outcome: Outcome) -> None:
    """What a replay, a drop or a redecode did."""
    if outcome.snapshot_id is None:
        console.print("Nothing changed, and nothing was committed.")
        return
    counted = ((outcome.accepted, "became events"), (outcome.rejected, "were rejected"), (outcome.altered, "changed"))
    told = ", ".join(f"{count:,} {what}" for count, what in counted if count)
    console.print(f"{stream.name}: of its records, {told}.", highlight=False)
    if outcome.cells:
        partitions = {cell.partition for cell in outcome.cells}
        console.print(
            f"Cells with other rows: {len(outcome.cells):,}, in {span(stream, partitions)}; "
            f"the next run repairs what depends on them."
        )


def _records(records: Iterable[RejectedRecord]) -> Table:
    table = plain_table("source~", "partition#", "offset#", "index#", "arrived", "reason", "payload begins~")
    for each in records:
        places = [str(place) for place in (each.source_partition, each.source_offset, each.source_index)]
        table.add_row(
            as_given(each.source),
            *places,
            moment(each.arrival_time),
            as_given(each.rejection_reason),
            as_given(beginning(each) or ""),
        )
    return table
