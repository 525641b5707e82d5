"""One more file of the click stream, days late: what it changes is known before it is written."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from dedup_platform.demo.files import FOLDER, line, write_file
from dedup_platform.demo.truth import Click, Repair, Truth, Visit

EXTENDED_BY = timedelta(minutes=10)
RECEIVED_BEFORE_NOW = timedelta(hours=1)


def late_file(folder: Path, truth: Truth) -> Truth:
    """Write three late records into old partitions and say what they must change.

    One extends a visit, one bridges two visits (the visit that arrived first keeps its id), one repeats a known click.
    """
    chances = truth.chances
    first, second = chances.bridge
    extending = Click(chances.extend.user, "late-extends", chances.extend.ended_at + EXTENDED_BY, "/checkout", 1)
    midway = first.ended_at + (second.started_at - first.ended_at) / 2
    bridging = Click(first.user, "late-bridges", midway, "/checkout", 1)
    received = truth.now - RECEIVED_BEFORE_NOW
    events = (extending, bridging, chances.repeat)
    write_file(folder / FOLDER / "late.json.gz", [(received, line(event, received)) for event in events])
    extended = chances.extend._replace(ended_at=extending.occurred_at, events=chances.extend.events + 1)
    merged = Visit(first.user, first.started_at, second.ended_at, first.events + second.events + 1)
    return replace(
        truth,
        records=truth.records + 3,
        deduplicated=truth.deduplicated + 2,
        duplicates=truth.duplicates + 1,
        late_events=truth.late_events + 2,
        amount=truth.amount + Decimal("0.02"),
        sessions=truth.sessions - {chances.extend, first, second} | {extended, merged},
        repair=Repair(
            extended=(chances.extend, extended),
            kept=chances.kept,
            retired=second if chances.kept == first else first,
            merged=merged,
            partitions=partitions(extending, bridging, chances.repeat),
        ),
    )


def partitions(extending: Click, bridging: Click, repeated: Click) -> dict[str, frozenset[str]]:
    """Table -> the days in which a cell may be rewritten; all three visits lie within their days."""
    changed = frozenset({day(extending), day(bridging)})
    return {
        "raw_events": changed | {day(repeated)},
        "duplicate_events": frozenset({day(repeated)}),
        "deduplicated_events": changed,
        "session_fragments": changed,
        "sessions": changed,
    }


def day(event: Click) -> str:
    return event.occurred_at.date().isoformat()
