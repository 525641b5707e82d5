"""The command that answers questions in SQL: a table for people, csv or JSON for programs."""

from __future__ import annotations

import json
import math
import shutil
import sys
from base64 import b64encode
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dedup_platform.cli.console import err, out, told_to_its_end
from dedup_platform.cli.deployment import Deployment
from dedup_platform.cli.grid import as_given, plain_table, print_table
from dedup_platform.cli.options import JsonOption, StreamsOption
from dedup_platform.cli.process import ON_INTERRUPT
from dedup_platform.errors import QueryError
from dedup_platform.escapes import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from dedup_platform.query import Answer

_PLAN = ["explain_key", "explain_value"]
"""The columns of DuckDB's answer to EXPLAIN, whose values are drawings of many lines."""
SHOWN_ROWS = 1_000
"""A table's columns are as wide as its values, so all of them must be at hand."""


def sql(
    statement: Annotated[str, typer.Argument(metavar="SELECT", help="One statement that only reads.")],
    streams: StreamsOption = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print csv with a header.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Answer SQL over the tables as they are now, in DuckDB's dialect; writes nothing.

    Tables are STREAM.TABLE: SHOW TABLES FROM STREAM lists them, DESCRIBE STREAM.TABLE tells the columns of one. Of each
    event, STREAM.event_sessions has the session, and whether it was late. Times are UTC.
    """
    from dedup_platform.query import Queries

    if as_csv and as_json:
        raise typer.BadParameter("--csv and --json exclude each other")
    deployment = Deployment.of(streams)
    show = _print_csv if as_csv else _print_json if as_json else _print_table
    with TemporaryDirectory(prefix="dedup-platform-sql-") as aside:
        ON_INTERRUPT.append(partial(shutil.rmtree, aside, ignore_errors=True))
        try:
            with Queries(deployment.platform().lake, deployment.streams).answer(statement, Path(aside)) as answer:
                show(answer)
        except QueryError:
            # It may ask for what a stream file that cannot be read was meant to say.
            for problem in (problem for each in deployment.broken for problem in each.problems):
                err.print(problem, markup=False, soft_wrap=True)
            raise


def _print_table(answer: Answer) -> None:
    table, rows = plain_table(), _rows(answer)
    shown = list(islice(rows, SHOWN_ROWS))
    if answer.schema.names == _PLAN:
        out.print(Text("\n".join(visible(plan) for _, plan in shown)))
        return
    for name, *values in zip(answer.schema.names, *shown, strict=True):
        is_number = any(isinstance(value, int | float | Decimal) for value in values)
        table.add_column(as_given(name), justify="right" if is_number else "left", overflow="fold")
    for row in shown:
        table.add_row(*(Text("NULL", "dim") if value is None else as_given(_text(value)) for value in row))
    print_table(out, table)
    if next(rows, None) is not None:
        err.print(f"These are the first {SHOWN_ROWS:,} rows: --csv and --json print all, LIMIT asks for fewer.")


def _print_json(answer: Answer) -> None:
    names = answer.schema.names
    if twice := [name for name in names if names.count(name) > 1]:
        raise QueryError(f"two columns are named {twice[0]}: JSON needs another name for one of them, by AS")
    with told_to_its_end():
        before = "["
        for row in _rows(answer):
            sys.stdout.write(f"{before}\n  {json.dumps(dict(zip(names, map(_plain, row), strict=True)))}")
            before = ","
        sys.stdout.write("[]\n" if before == "[" else "\n]\n")


def _print_csv(answer: Answer) -> None:
    import pyarrow as pa

    from dedup_platform.cli.export import Csv

    header = _for_csv(answer.schema.empty_table())
    with told_to_its_end():
        writer = Csv(sys.stdout.buffer, header.schema)
        for batch in answer.batches:
            writer.write_table(_for_csv(pa.Table.from_batches([batch])))
        writer.close()


def _for_csv(rows: pa.Table) -> pa.Table:
    """The same with text in the columns that Arrow's csv writer cannot write."""
    import pyarrow as pa

    columns = [
        column
        if (pa.types.is_primitive(column.type) and not pa.types.is_interval(column.type))
        or column.type in (pa.string(), pa.binary())
        or pa.types.is_decimal(column.type)
        else pa.array((None if value is None else _text(value) for value in column.to_pylist()), pa.string())
        for column in rows.columns
    ]
    return pa.table(columns, names=rows.column_names)


def _rows(answer: Answer) -> Iterator[tuple[Any, ...]]:
    for batch in answer.batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _text(value: Any) -> str:
    """A value as people read it."""
    import pyarrow as pa

    match value:
        case str():
            return value
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case datetime():
            return value.isoformat(" ")
        case Decimal():
            return f"{value:f}"
        case pa.MonthDayNano() if not value.months:
            return str(timedelta(days=value.days, microseconds=value.nanoseconds // 1_000))
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """A value as JSON has it: bytes are base64, fractions exact texts, and durations without months seconds."""
    import pyarrow as pa

    match value:
        case bytes():
            return b64encode(value).decode()
        case datetime() | date() | time():
            return value.isoformat()
        case pa.MonthDayNano():
            seconds = value.days * 86_400 + value.nanoseconds / 1e9
            return f"{value.months} months and {seconds:g} seconds" if value.months else seconds
        case Decimal():
            return int(value) if value == value.to_integral_value() and value.as_tuple().exponent == 0 else f"{value:f}"
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return value
