"""`check --sample`: what the first records of a file become, for people and for programs."""

from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from dedup_platform.cli.console import out
from dedup_platform.cli.deployment import Deployment
from dedup_platform.cli.output import as_given, plain_table
from dedup_platform.cli.values import print_json
from dedup_platform.sources.sample import Sample, SampledRecord, sampled

_WIDEST = 60


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
    told = [f"{count:,} rejected as {reason}" for reason, count in sample.reasons.items() if reason]
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
        console.print(table)


def _value(sample: Sample) -> dict[str, Any]:
    return {
        "events": sample.reasons[None],
        "rejected": {reason: count for reason, count in sample.reasons.items() if reason},
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


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST else text[:_WIDEST] + "…"
