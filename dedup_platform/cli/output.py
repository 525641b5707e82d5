"""What the command line shows: tables for people, plain values for programs. Nothing is computed here but totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console

from dedup_platform.cli.grid import plain_table, print_table
from dedup_platform.orchestration.publish_words import saved
from dedup_platform.planning.words import CELL, explained

if TYPE_CHECKING:
    from dedup_platform.demo import Score
    from dedup_platform.ingest.kafka import PartitionOffsets
    from dedup_platform.maintenance.upkeep import Upkeep
    from dedup_platform.planning.health import Check
    from dedup_platform.planning.planner import StaleCell, TablePlan
    from dedup_platform.platform import Status
    from dedup_platform.stream import Stream

SHOWN = 10
"""How many files that are left alone are listed."""
ID_LENGTH = 12


def print_streams(console: Console, streams: Iterable[Stream]) -> None:
    """One line for each stream."""
    from dedup_platform.stream import format_duration

    table = plain_table("stream", "partitions", "window", "timeout", "source~")
    for stream in streams:
        source = f"{stream.source.format}: {_source(stream)}"
        partitions = f"{stream.partitions.granularity}s from {stream.partitions.key(_first(stream))}"
        window = format_duration(stream.deduplicate.window)
        timeout = format_duration(stream.sessions.timeout) if stream.sessions else "no sessions"
        table.add_row(stream.name, partitions, window, timeout, source)
    print_table(console, table)


def print_switched_off(console: Console, stream: str, tables: Sequence[str]) -> None:
    """What becomes of tables whose stream has no sessions any more; nothing where there are none."""
    if tables:
        console.print(
            f"{stream}: the stream file has no `sessions`, so {' and '.join(tables)} stay as they are. "
            "With `sessions` in it again they are brought up to date.",
            markup=False,
        )


def _source(stream: Stream) -> str:
    if stream.source.kind == "kafka":
        return f"{stream.kafka.topic} at {stream.kafka.brokers}"
    return stream.files.place


def print_plans(console: Console, plans: Sequence[tuple[Stream, TablePlan]]) -> None:
    """What is stale and why, grouped by table and reason, and the runs that the policy asks for."""
    table = plain_table("stream", "table", "reason", "", "cells#", "partitions", "rows waiting#", "for#")
    for stream, plan in plans:
        for (reason, ready), cells in groupby(sorted(plan.stale, key=_why), key=_why):
            table.add_row(plan.stream, plan.table, reason, "ready" if ready else "waits", *_extent(stream, list(cells)))
    if not table.row_count:
        console.print("Nothing is stale.")
        return
    print_table(console, table)
    for line in (CELL, *explained(each.reason for _, plan in plans for each in plan.stale)):
        console.print(f"  {line}", style="dim", markup=False, highlight=False)
    for stream, plan in plans:
        for run in plan.runs:
            ends = span(stream, run.partitions)
            console.print(
                f"A run would repair {plan.stream}.{plan.table} in {ends} ({run.reason}) and what follows it."
            )


def print_status(console: Console, statuses: Iterable[tuple[Stream, Status, Sequence[Check]]]) -> None:
    """Each stream's tables, its source, who works on what, and what is not as it should be."""
    from dedup_platform.cli.file_changes import print_changes_of_file
    from dedup_platform.platform.claims import claim_sentence

    has_cells = False
    for stream, status, checks in statuses:
        has_cells |= bool(status.tables)
        waiting = status.waiting
        waits = f"{waiting.amount} wait, {len(waiting.changed):,} changed" if waiting else "the source cannot be asked"
        files = "" if stream.source.kind == "kafka" else f"{status.files_read:,} files read with "
        read = f"{files}{status.records_read:,} records"
        console.print(f"[bold]{status.stream}[/bold]: {read}, {status.rejected:,} of them rejected; {waits}")
        _print_checks(console, checks)
        print_switched_off(console, status.stream, status.switched_off)
        table = plain_table("table", "rows#", "cells#", "stale#", "files#", "size#")
        for each in status.tables:
            numbers = [f"{number:,}" for number in (each.rows, each.cells, each.stale_cells, each.files)]
            table.add_row(each.table, *numbers, size(each.bytes))
        if status.tables:
            print_table(console, table)
            console.print(f"  {_progress(status)}", markup=False)
        for target, held in status.claims.items():
            for claim in held:
                console.print(f"  {target}: {claim_sentence(stream, claim)}", markup=False)
        _print_followers(console, status)
        if status.audit:
            console.print(f"  all commits together: {saved(status.audit)}", markup=False)
        print_changes_of_file(console, stream, status.changes)
        reasons = waiting.reasons if waiting else ()
        for path, reason in reasons[:SHOWN]:
            console.print(f"  {path}: {reason}", markup=False)
        if len(reasons) > SHOWN:
            console.print(f"  and {len(reasons) - SHOWN:,} more files that are left alone")
        for left_out in status.skipped[:SHOWN]:
            console.print(f"  {left_out}: skipped", markup=False)
        if len(status.skipped) > SHOWN:
            console.print(f"  and {len(status.skipped) - SHOWN:,} more that are skipped")
    if has_cells:
        console.print(f"  {CELL}", style="dim", highlight=False)


def _print_checks(console: Console, checks: Iterable[Check]) -> None:
    """What is not as it should be, and what to type; nothing of what is."""
    for each in checks:
        if not each.is_passed:
            found = "[red]unhealthy[/red]" if each.is_unhealthy else "tried again soon"
            console.print(f"  {found} ({each.name}): type `{each.command}`")
            console.print(f"  {each.what}", markup=False)


def _print_followers(console: Console, status: Status) -> None:
    """How far feeds and sinks have come."""
    for feed in status.feeds:
        behind = ", and its table has newer commits" if feed.is_behind else ""
        console.print(f"  {feed.feed}: version {feed.version:,}{behind}")
    table = plain_table(
        "sink", "follows", "version#", "behind#", "refused#", "sent#", "suppressed#", "forced#", "moved"
    )
    for sink in status.sinks:
        version = "-" if sink.version is None else f"{sink.version:,}"
        behind = "begins" if sink.is_beginning else "-" if sink.behind is None else f"{sink.behind:,}"
        totals = sink.totals
        numbers = [f"{each:,}" for each in (sink.refused, totals.sent, totals.suppressed + totals.known, totals.forced)]
        table.add_row(
            sink.sink, sink.follows, version, behind, *numbers, moment(sink.moved_at) if sink.moved_at else "-"
        )
    if status.sinks:
        print_table(console, table)


def print_upkeep(console: Console, done: Mapping[str, Sequence[Upkeep]]) -> None:
    """What maintenance did to each stream's tables: numbers before and after it."""
    for name, upkeeps in done.items():
        table = plain_table(
            "table", "files#", "manifests#", "snapshots#", "orphans removed#", "metadata#", "all#", "seconds#"
        )
        table.title = name
        for each in upkeeps:
            before, after = each.before, each.after
            table.add_row(
                each.table,
                f"{before.files:,} → {after.files:,}",
                f"{before.manifests:,} → {after.manifests:,}",
                f"{before.snapshots:,} → {after.snapshots:,}",
                f"{each.orphans_removed:,}",
                f"{size(before.metadata_bytes)} → {size(after.metadata_bytes)}",
                f"{size(before.bytes)} → {size(after.bytes)}",
                f"{each.seconds:.1f}",
            )
        if table.row_count:
            print_table(console, table)
        else:
            console.print(f"{name}: nothing was taken in yet")
        for each in upkeeps:
            if each.waits:
                console.print(each.waits)


def print_scores(console: Console, title: str, scores: Iterable[Score]) -> None:
    """Found against expected, line by line."""
    table = plain_table("", "found#", "truth#", "")
    table.title = title
    for score in scores:
        sign = "[green]=[/green]" if score.right else "[red]differs[/red]"
        table.add_row(score.name, _value(score.found), _value(score.expected), sign)
    print_table(console, table)


def print_offsets(console: Console, offsets: Iterable[PartitionOffsets]) -> None:
    """How far each partition of a topic has been read, and what its consumer group says."""
    table = plain_table("partition#", "next#", "end#", "waiting#", "group#", "began anew#")
    for each in offsets:
        group = "-" if each.group is None else f"{each.group:,}"
        numbers = [f"{number:,}" for number in (each.partition, each.next, each.end, each.waiting)]
        table.add_row(*numbers, group, f"{each.generation:,}")
    print_table(console, table)


def moment(time: datetime) -> str:
    """A time to the second, in UTC: `2026-01-31 23:59:59`."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def span(stream: Stream, partitions: Iterable[int]) -> str:
    """`2026-01-03` or `2026-01-03 … 2026-01-05`."""
    ordinals = sorted(partitions)
    first, last = stream.partitions.key(ordinals[0]), stream.partitions.key(ordinals[-1])
    return first if first == last else f"{first} … {last}"


def short(text: str) -> str:
    """Enough of an id to find it again."""
    return text if len(text) <= ID_LENGTH else f"{text[:ID_LENGTH]}…"


def print_changes(console: Console, title: str, rows: Iterable[tuple[str, str, str]]) -> None:
    """What something was before and is now, by its name."""
    table = plain_table("", "before", "after")
    table.title = title
    for name, before, after in rows:
        table.add_row(short(name), before, after)
    print_table(console, table)


def size(number: int) -> str:
    """Bytes for people: `1.2 MB`."""
    value, unit = float(number), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def _progress(status: Status) -> str:
    """The newest point, and how many partitions may still change."""
    point, found = status.point, Counter(status.partitions.values())
    named = f"point {point.name} of {moment(point.made_at)}, as of snapshot {point.as_of}" if point else "no point yet"
    states = ", ".join(f"{found[state]:,} {state}" for state in ("open", "closed", "settled"))
    unsettled = next((key for key, state in status.partitions.items() if state != "settled"), None)
    since = f", unsettled from {unsettled} on" if unsettled else ""
    watermark = f"; watermark {moment(status.watermark)}" if status.watermark else ""
    return f"{named}; partitions: {states}{since}{watermark}"


def _extent(stream: Stream, cells: Sequence[StaleCell]) -> tuple[str, str, str, str]:
    from dedup_platform.stream import format_duration

    longest = max(cell.waiting for cell in cells)
    waiting = format_duration(timedelta(seconds=round(longest.total_seconds())))
    rows = sum(cell.rows for cell in cells)
    return f"{len(cells):,}", span(stream, (cell.cell.partition for cell in cells)), f"{rows:,}", waiting


def _why(cell: StaleCell) -> tuple[str, bool]:
    return cell.reason, cell.ready


def _first(stream: Stream) -> int:
    return stream.partitions.ordinal(stream.partitions.start)


def _value(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    return f"{value:,}" if isinstance(value, int) else short(str(value))
