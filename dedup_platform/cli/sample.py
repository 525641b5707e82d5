"""`check --sample`: what the first records of a file become, for people and for programs."""

from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from dedup_platform.cli.console import out
from dedup_platform.cli.deployment import Deployment
from dedup_platform.cli.grid import as_given, plain_table, print_table
from dedup_platform.cli.values import print_json
from dedup_platform.sources.sample import Sample, SampledRecord, sampled

_WIDEST = 60
_WIDEST_OF_SEVERAL = 30


def tell_sample(deployment: Deployment, file: Path, stream: str | None, as_json: bool) -> None:
    """Decode the beginning of a file as a stream would, and print what comes of it."""
    chosen = deployment.chosen(stream)
    if len(chosen) > 1:
        names = ", ".join(each.name for each in chosen)
        raise typer.BadParameter(f"{file}: of which stream? Name it with --stream: {names}")
    sample = sampled(chosen[0], file)
    if as_json:
        print_json(_value(sample))
    else:
        _print(out, sample)


def _print(console: Console, sample: Sample) -> None:
    for record in sample.records:
        _print_record(console, record)
    events, total = sample.reasons[None], sample.reasons.total()
    told = [f"{count:,} rejected as {reason}" for reason, count in sample.rejected.items()]
    console.print(f"Of the first {total:,} records: {', '.join([f'{events:,} events', *told])}.", markup=False)


def _print_record(console: Console, record: SampledRecord) -> None:
    became = f"rejected as {record.rejection_reason}" if record.rejection_reason else "an event"
    console.print(f"record {record.offset}, index {record.index}: {became}", markup=False, style="bold")
    if not record.fields:
        console.print(f"it begins {_short(record.payload.decode(errors='replace'))}", markup=False)
    table = plain_table("column", "field~", "what is there~", "becomes~")
    for each in record.fields:
        becomes = "null" if each.value is None else str(each.value)
        text = "" if each.text is None else _short(each.text)
        table.add_row(
            each.column,
            as_given(each.named),
            as_given(text),
            as_given(_short(becomes) + (f": {each.trouble}" if each.trouble else "")),
        )
    if record.fields:
        print_table(console, table)


def print_columns(console: Console, name: str, sample: Sample) -> None:
    """How many of the records that wait at a stream's source have each field, and the first values."""
    if not sample.reasons:
        console.print(f"{name}: nothing waits to be read.", markup=False)
        return
    total, events = sample.reasons.total(), sample.reasons[None]
    rejected = f", others rejected: {rejected_in(sample)}" if events < total else ""
    console.print(f"{name}: of {total:,} records that wait {events:,} are events{rejected}", markup=False)
    table = plain_table("column", "field~", "found#", "empty#", "absent#", "unreadable#", "values~")
    for column, each in sample.columns.items():
        numbers = [f"{number:,}" for number in (each.found, each.empty, each.absent, each.unreadable)]
        values = " | ".join(_short(text, _WIDEST_OF_SEVERAL) for text in each.values)
        table.add_row(column, as_given(each.named), *numbers, as_given(values))
    if sample.columns:
        print_table(console, table)


def rejected_in(sample: Sample) -> str:
    """Why records would be rejected, the most frequent reason first."""
    return ", ".join(f"{reason} {count:,}" for reason, count in sample.rejected.most_common())


def columns_value(sample: Sample) -> dict[str, Any]:
    """What `print_columns` tells, for programs."""
    columns = {
        column: {
            "field": each.named,
            "found": each.found,
            "empty": each.empty,
            "absent": each.absent,
            "unreadable": each.unreadable,
            "values": each.values,
        }
        for column, each in sample.columns.items()
    }
    return _counts(sample) | {"columns": columns}


def _counts(sample: Sample) -> dict[str, Any]:
    return {"events": sample.reasons[None], "rejected": dict(sample.rejected)}


def _value(sample: Sample) -> dict[str, Any]:
    return _counts(sample) | {
        "records": [
            {
                "source_offset": record.offset,
                "source_index": record.index,
                "rejection_reason": record.rejection_reason,
                "fields": {
                    each.column: {
                        "field": each.named,
                        "text": each.text,
                        "value": None if each.value is None else str(each.value),
                        "trouble": each.trouble,
                    }
                    for each in record.fields
                },
            }
            for record in sample.records
        ],
    }


def _short(text: str, widest: int = _WIDEST) -> str:
    return text if len(text) <= widest else text[:widest] + "…"
