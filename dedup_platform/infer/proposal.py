"""The proposal: what a stream file should say, found in a sample, where a person or an option may choose otherwise."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any

import polars as pl

from dedup_platform.errors import InferenceError
from dedup_platform.infer.arrival import Arrival, arrival_in_topic, arrival_of
from dedup_platform.infer.attributes import ProposedAttribute, attributes_of
from dedup_platform.infer.columns import Column, columns_of, percent
from dedup_platform.infer.layout import Layout
from dedup_platform.infer.roles import entities, event_ids, event_times, with_substitute
from dedup_platform.infer.timeout import Timeout, timeout_of
from dedup_platform.infer.times import TimeColumn, joined_texts, joined_times, time_column, time_columns, zone_column
from dedup_platform.planning.moments import utc_datetime
from dedup_platform.sources.records import Fields
from dedup_platform.sources.times import time_reader
from dedup_platform.stream import ISO_8601

__all__ = ["LONGEST", "Choose", "Option", "Proposal", "Said", "Sampled", "proposed"]

LONGEST = 256 * 1024
"""Bytes of a record that is looked at."""
_ALL = "*"
_OTHERS = 3
_NAMES = 12


@dataclass(frozen=True)
class Sampled:
    """Some records of a source: their fields, and of each where it was and when that was last modified."""

    place: str
    """What was read, for people."""
    layout: Layout
    records: Sequence[Fields]
    sources: Sequence[str]
    modified: Sequence[datetime]
    malformed: int = 0
    """Records that could not be read."""
    is_topic: bool = False

    @property
    def is_flat(self) -> bool:
        """Whether names of fields are no paths."""
        return self.layout.format == "csv"


@dataclass(frozen=True)
class Option:
    """What may be chosen, and what tells for it."""

    text: str
    evidence: str


Choose = Callable[[str, Sequence[Option]], Sequence[str]]
"""What to take for `entity`, `id`, `time` or `timezone`, the likeliest option first: one field or several, or none to
leave it to the proposal."""


@dataclass(frozen=True)
class Said:
    """What a key of the stream file says, and why."""

    value: Any
    evidence: str


@dataclass(frozen=True)
class Proposal:
    """All that `stream_text` writes."""

    sampled: Sampled
    entity: Said
    event_id: Said
    event_time: Said
    arrival: Arrival
    attributes: Sequence[ProposedAttribute]
    others: Sequence[ProposedAttribute]
    start: Said
    timeout: Timeout
    unknown_entity: float
    """The share of records without an entity."""


def _nothing_to_read(sampled: Sampled) -> str:
    if not sampled.malformed:
        return "holds no record yet"
    return f"none of {sampled.malformed:,} records could be read; those of more than {LONGEST // 1024} KiB are left out"


def proposed(sampled: Sampled, choose: Choose, now: datetime) -> Proposal:
    """What a sample tells. InferenceError if it does not tell enough, or if what is chosen is not in it."""
    if not sampled.records:
        raise InferenceError(sampled.place, _nothing_to_read(sampled))
    columns = columns_of(sampled.records, sampled.is_flat)
    times = time_columns(columns, now)
    finder = _Finder(sampled.place, columns, choose)
    time = finder.time(times, now)
    zone = finder.zone(time)
    time, value = _in_zone(time, zone), _time_value(time, zone.said.value)
    arrival = (
        arrival_in_topic(times, time)
        if sampled.is_topic
        else arrival_of(times, time, sampled.sources, sampled.modified, value)
    )
    ids = finder.event_id(time, arrival.field, sampled.is_flat)
    entity = finder.entity([*time.fields, *ids.fields])
    taken = {*time.fields, *zone.fields, *ids.fields, *entity.fields, *([arrival.field] if arrival.field else [])}
    attributes, others = attributes_of(columns, taken, times)
    return Proposal(
        sampled=sampled,
        entity=entity.said,
        event_id=ids.said,
        event_time=Said(value, _time_evidence(time, zone.said)),
        arrival=arrival,
        attributes=attributes,
        others=others,
        start=_start(time),
        timeout=timeout_of(entity.texts, time.moments),
        unknown_entity=entity.texts.null_count() / len(entity.texts),
    )


@dataclass(frozen=True)
class _Found:
    """What was found for a key, the fields that it takes, and the texts that they give."""

    said: Said
    fields: Sequence[str]
    texts: pl.Series


_NO_TEXTS = pl.Series(dtype=pl.String)


class _Finder:
    """Looks for what each key should say, and has it chosen."""

    def __init__(self, place: str, columns: Sequence[Column], choose: Choose) -> None:
        self._place = place
        self._columns = {each.field: each for each in columns}
        self._choose = choose

    def time(self, times: Sequence[TimeColumn], now: datetime) -> TimeColumn:
        """The time of the event: a column, or a date and a time of day."""
        columns = list(self._columns.values())
        with_clock = [each for each in times if each.has_clock]
        joined = list(joined_times(columns, times, now))
        likely = event_times([*with_clock, *joined]) or event_times(times)
        options = [Option(" + ".join(each.fields), each.format) for each in likely]
        if chosen := self._choose("time", options):
            found = [self._column(each) for each in chosen]
            texts = joined_texts(found)
            time = time_column(tuple(found), texts, now + timedelta(days=1))
            if time is None:
                first = next(iter(texts.drop_nulls()), "")
                raise self._error(f"{' + '.join(chosen)} has no times in a format that is known: {first[:60]!r}")
            return time
        if not likely:
            raise self._error("no field looks like the time of an event; name one with --time FIELD", names=True)
        return likely[0]

    def zone(self, time: TimeColumn) -> _Found:
        """The zone of local times, and what tells it; of others None."""
        if not time.is_local:
            return _Found(Said(None, ""), (), _NO_TEXTS)
        if column := zone_column(self._columns.values()):
            return _Found(Said({"field": column.field}, "the zone stands in each record"), (column.field,), _NO_TEXTS)
        if time.says_zone:
            return _Found(Said(None, "in UTC, by its name"), (), _NO_TEXTS)
        assumed = "the times tell no zone, so UTC is assumed: is that right?"
        [zone] = self._choose("timezone", [Option("UTC", assumed)]) or ["UTC"]
        return _Found(Said(zone, assumed if zone == "UTC" else ""), (), _NO_TEXTS)

    def event_id(self, time: TimeColumn, arrival: str | None, is_flat: bool) -> _Found:
        """What tells one event from another: a field, several, or a hash."""
        found = [each for each in event_ids(self._columns.values(), time) if each.field not in time.fields]
        options = [Option(each.field, each.evidence) for each in found]
        chosen = self._choose("id", options)
        if not (chosen or found) or list(chosen) == [_ALL]:
            return self._hash(arrival, is_flat)
        columns = [self._column(each) for each in chosen] or found[:1]
        fields = [each.field for each in columns]
        rest = [each.field for each in found if each.field not in fields]
        said = Said(fields if fields[1:] else fields[0], _with_others(columns[0].evidence, rest))
        return _Found(said, fields, _NO_TEXTS)

    def _hash(self, arrival: str | None, is_flat: bool) -> _Found:
        hashed = [each for each in self._columns if each != arrival]
        frame = pl.DataFrame({str(number): self._columns[each].texts for number, each in enumerate(hashed)})
        repeated = percent(1 - frame.n_unique() / len(frame))
        evidence = f"no field is an id; records that are equal are one event ({repeated} are copies)"
        # Of a record that lacks one of the fields that are named there would be no id.
        return _Found(Said({"hash": hashed if arrival and is_flat else _ALL}, evidence), (), _NO_TEXTS)

    def entity(self, taken: Sequence[str]) -> _Found:
        """Whose event it is: a field, or the first of several that is there."""
        found = entities(self._columns.values(), taken)
        options = [Option(each.field, each.evidence) for each in found]
        columns = [self._column(each) for each in self._choose("entity", options)]
        if not columns and not found:
            raise self._error("no field looks like whose event it is; name one with --entity FIELD", names=True)
        if not columns:
            substitute = with_substitute(found[0], found[1:])
            columns = [found[0], substitute] if substitute else [found[0]]
        fields = [each.field for each in columns]
        texts = pl.select(pl.coalesce([each.texts for each in columns])).to_series()
        rest = [each.field for each in found if each.field not in fields]
        evidence = Column(fields[0], columns[0].steps, texts, columns[0].kinds).evidence
        value = {"first_of": fields} if fields[1:] else fields[0]
        return _Found(Said(value, _with_others(evidence, rest)), fields, texts)

    def _column(self, field: str) -> Column:
        if field in self._columns:
            return self._columns[field]
        meant = get_close_matches(field, self._columns, 3)
        hint = f"; did you mean {' or '.join(meant)}?" if meant else ""
        raise self._error(f"no record of the sample has {field}{hint}", names=not meant)

    def _error(self, reason: str, names: bool = False) -> InferenceError:
        there = list(self._columns)[:_NAMES]
        more = f" and {len(self._columns) - _NAMES} more" if len(self._columns) > _NAMES else ""
        return InferenceError(self._place, f"{reason}; the records have: {', '.join(there)}{more}" if names else reason)


def _with_others(evidence: str, others: Sequence[str]) -> str:
    return f"{evidence}; or {', '.join(others[:_OTHERS])}" if others else evidence


def _in_zone(time: TimeColumn, zone: _Found) -> TimeColumn:
    """The same times as they are in a zone that is known."""
    if not isinstance(zone.said.value, str) or zone.said.value == "UTC":
        return time
    read = time_reader(time.format, zone.said.value)
    moments = [None if text is None else read(text) for text in joined_texts(time.columns)]
    return replace(time, moments=pl.Series(moments, dtype=pl.Int64))


def _time_value(time: TimeColumn, zone: Any) -> Any:
    named = {"join": list(time.fields), "with": " "} if time.fields[1:] else {"field": time.fields[0]}
    written: Mapping[str, Any] = {"format": time.format} if time.format != ISO_8601 else {}
    value = {**named, **written} | ({"timezone": zone} if zone else {})
    return time.fields[0] if value.keys() == {"field"} else value


def _time_evidence(time: TimeColumn, zone: Said) -> str:
    ambiguous = "day and month may be the other way round; " if time.is_ambiguous else ""
    there = time.moments.drop_nulls()
    first, last = (utc_datetime(int(each)).strftime("%Y-%m-%d %H:%M:%S") for each in (there.min(), there.max()))  # type: ignore[arg-type]
    return f"{ambiguous}{zone.evidence + '; ' if zone.evidence else ''}{first} to {last} in the sample"


def _start(time: TimeColumn) -> Said:
    """The month of the earliest event, with a day's room for another zone."""
    earliest = utc_datetime(int(time.moments.min()))  # type: ignore[arg-type]  # there are some
    month = (earliest - timedelta(days=1)).replace(day=1)
    start = max(month, datetime(1970, 1, 1, tzinfo=UTC)).date()
    return Said(start.isoformat(), f"earlier events are rejected; the earliest in the sample is of {earliest.date()}")
