"""The sections of the report's page. What people read is told in tables, too, with ids by which programs find it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from xml.etree.ElementTree import Element

from dedup_platform import tables
from dedup_platform.platform.figures import PERCENTILES, PartitionFigures
from dedup_platform.report.charts import bars, curve
from dedup_platform.report.elements import element
from dedup_platform.report.gathering import SHOWN, Report, SessionFigures
from dedup_platform.report.periods import periods
from dedup_platform.stream.values import format_duration

_BY_PERIOD = (("events", "copies", "conflicts"), ("late",), ("rejected",), ("sessions",))
"""What is drawn together."""
_SECONDS = (0, 1, 10, 60, 300, 900, 1800, 3600, 10_800, 43_200, 86_400, 864_000)
"""Where each bar of sessions' durations begins; like durations, none has more than three digits and zeros."""
_EVENTS = (1, 2, 3, 5, 10, 20, 50, 100, 1000)
"""Where each bar of sessions' events begins."""


def totals(report: Report, whole: PartitionFigures) -> Element:
    """All figures of the stream."""
    count = _counts(whole)
    rows = {
        "records": "Records that are events, once or again",
        "events": "Events",
        "copies": "Copies: the same event once more",
        "conflicts": "Conflicts: the same event with other values",
        "late": "Late events",
        "rejected": "Rejected records, which are no events",
    }
    if report.sessions:
        rows["sessions"] = "Sessions"
    count["waiting"] = count["records"] - count["events"] - count["copies"] - count["conflicts"]
    if count["waiting"]:
        rows["waiting"] = "Records that wait for a repair"
    return _section("totals", "In all", _table("total", [(name, text, count[name]) for name, text in rows.items()]))


def saved(whole: PartitionFigures) -> Element:
    """What would have been counted twice."""
    records, duplicates = whole.rows(tables.RAW_EVENTS), whole.rows(tables.DUPLICATE_EVENTS)
    sentence = (
        f"{duplicates:,} of {records:,} records ({_percent(duplicates, records)}) had been delivered before. They are "
        "kept in duplicate_events, and are in no event, session or sum."
    )
    return _section("saved", "What deduplication saved", element("p", sentence))


def by_period(report: Report) -> Element:
    """The figures of each day, or of what is longer."""
    unit, figures = periods(report.stream.partitions, report.partitions)
    columns = [_counts(each) for each in figures.values()]
    charts = []
    drawn = _BY_PERIOD if report.sessions else _BY_PERIOD[:-1]
    for together in drawn:
        title = f"{', '.join(together).capitalize()} by {unit}"
        series = {name: [column[name] for column in columns] for name in together}
        charts += [_title(title, together), bars(title, list(figures), series)]
    told = element(
        "p",
        "Events, copies and conflicts are where they happened (UTC), and sessions where they begin. Rejected records "
        "have no such time, and are where they arrived.",
    )
    names = [name for together in drawn for name in together]
    rows = [[period, *(f"{column[name]:,}" for name in names)] for period, column in zip(figures, columns, strict=True)]
    numbers = element("details", element("summary", "Numbers"), _grid("periods", [unit, *names], rows))
    return _section("by-period", f"By {unit}", told, *charts, numbers)


def lateness(whole: PartitionFigures, grace: timedelta) -> Element:
    """How long after their partition closed late events arrived."""
    late, events = whole.late, whole.rows(tables.DEDUPLICATED_EVENTS)
    marks = {f"p{percent}": late.percentile(percent) or 0 for percent in PERCENTILES}
    sentence = (
        f"{late.events:,} of {events:,} events ({_percent(late.events, events)}) arrived later than "
        f"{format_duration(grace)} after the end of their partition."
    )
    if not late.events:
        return _section("lateness", "Lateness", element("p", sentence))
    seconds = {**marks, "longest": late.longest.total_seconds()}
    rows = [(name, f"{name}, s", value) for name, value in seconds.items()]
    title = "Share of late events that had arrived, by seconds after their partition closed"
    drawn = curve(title, late.seconds, marks)
    return _section("lateness", "Lateness", element("p", sentence), _title(title), drawn, _table("lateness", rows))


def sessions(figures: SessionFigures | None) -> Element:
    """How long sessions are, in time and in events."""
    if figures is None or not figures.seconds:
        why = "The stream file has no sessions." if figures is None else "There are no sessions yet."
        return _section("sessions", "Sessions", element("p", why))
    rows = [
        ("median-seconds", "Median duration, s", figures.median_seconds or 0),
        ("median-events", "Median of events", figures.median_events or 0),
    ]
    begins = [format_duration(timedelta(seconds=seconds)) for seconds in _SECONDS]
    drawn = [
        *_histogram("Sessions by duration", "durations", figures.seconds, _SECONDS, begins),
        *_histogram("Sessions by events", "events", figures.events, _EVENTS, [f"{number:,}" for number in _EVENTS]),
    ]
    return _section("sessions", "Lengths of sessions", _table("session", rows), *drawn)


def sources(report: Report) -> Element:
    """The sources that bring most of what is repeated, late or rejected."""
    header = ["source", "records", "copies", "conflicts", "late", "rejected", "of its records"]
    rows = []
    for each in report.sources:
        numbers = (each.records, each.copies, each.conflicts, each.late, each.rejected)
        rows.append([each.source, *(f"{number:,}" for number in numbers), _percent(each.trouble, each.records)])
    most = f"Of {report.source_count:,} in all, the {len(rows)} with most copies, conflicts, late and rejected records."
    told = element("p", most)
    return _section("sources", "Worst sources", told, *([_grid("worst-sources", header, rows)] if rows else []))


def reasons(report: Report) -> Element:
    """Why records were rejected."""
    shown = list(report.reasons.items())[:SHOWN]
    others = sum(report.reasons.values()) - sum(count for _, count in shown)
    rows = [[reason, f"{count:,}"] for reason, count in [*shown, *([("others", others)] if others else [])]]
    told = _grid("reasons", ["reason", "records"], rows) if rows else element("p", "No record was rejected.")
    return _section("rejected", "Rejected records", told)


def _counts(figures: PartitionFigures) -> dict[str, int]:
    return {
        "records": figures.rows(tables.RAW_EVENTS),
        "events": figures.rows(tables.DEDUPLICATED_EVENTS),
        "copies": figures.copies,
        "conflicts": figures.conflicts,
        "late": figures.late.events,
        "rejected": figures.rejected,
        "sessions": figures.rows(tables.SESSIONS),
    }


def _histogram(
    title: str, name: str, counts: Mapping[int, int], begins: Sequence[int], labels: Sequence[str]
) -> Iterable[Element]:
    """A bar for each range of values, as far as there are any."""
    ends = (*begins[1:], None)
    found = [
        sum(count for value, count in counts.items() if begin <= value and (end is None or value < end))
        for begin, end in zip(begins, ends, strict=True)
    ]
    used = max(place for place, count in enumerate(found) if count) + 1
    named = [f"from {label}" for label in labels[:used]]
    rows = [[label, f"{count:,}"] for label, count in zip(named, found[:used], strict=True)]
    yield _title(title)
    yield bars(title, named, {"sessions": found[:used]})
    yield element("details", element("summary", "Numbers"), _grid(name, ["length", "sessions"], rows))


def _section(name: str, title: str, *inside: Element) -> Element:
    return element("section", element("h2", title), *inside, id=name)


def _title(title: str, names: Sequence[str] = ()) -> Element:
    legend = [element("span", name, class_=f"legend series-{number}") for number, name in enumerate(names)]
    return element("h3", title, *(legend if len(names) > 1 else []))


def _table(prefix: str, rows: Iterable[tuple[str, str, float]]) -> Element:
    """A number in each row, with an id."""
    made = [
        element("tr", element("th", text, scope="row"), element("td", f"{number:,}", id=f"{prefix}-{name}"))
        for name, text, number in rows
    ]
    return element("table", element("tbody", *made))


def _grid(name: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> Element:
    head = element("thead", element("tr", *(element("th", text) for text in header)))
    made = [
        element("tr", element("th", first, scope="row"), *(element("td", text) for text in others))
        for first, *others in rows
    ]
    return element("table", head, element("tbody", *made), id=name)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"
