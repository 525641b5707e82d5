"""Which column is the time of an event, which its arrival, its id, and whose event it is; the likeliest first."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

import polars as pl

from dedup_platform.infer.columns import ID_WORDS, Column, is_number, words_of
from dedup_platform.infer.times import TimeColumn
from dedup_platform.planning.moments import in_microseconds
from dedup_platform.sources.text.json_records import Number

__all__ = ["arrival_times", "entities", "event_ids", "event_times", "with_substitute"]

_FILLED = 0.95
_ARRIVAL = {"received", "arrived", "arrival", "delivered", "delivery", "ingested", "ingest", "collected", "collector"}
_OTHER_TIMES = {"sent", "updated", "modified", "expires", "expiry", "expiration", "birth", "birthday", "end", "ended"}
_OTHER_TIMES |= {"stop", "due", "deleted", "closed", "merged", "pushed", "original", "loaded", "processed", "logged"}
_EVENT_TIME = {"timestamp", "time", "ts", "at", "datetime", "date", "when", "event", "occurred", "happened", "created"}

_EVENT = {"event", "message", "record", "request", "transaction", "delivery", "hit", "trace"}
_OPAQUE = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|[0-9a-fA-F]{16,64}|[0-9A-HJKMNP-TV-Z]{26}"
"""UUIDs, hashes, ULIDs."""
_REPEATED = 0.3
"""Of ids of events no more than that are copies."""

_PEOPLE = {"user", "visitor", "customer", "client", "account", "member", "person", "actor", "subscriber", "player"}
_PEOPLE |= {"patient", "employee", "viewer", "buyer", "passenger", "driver", "student", "guest", "profile", "username"}
_STAND_INS = {"anonymous", "anon", "device", "cookie", "visitor", "fingerprint", "installation"}
_PLACES = {"ip", "address", "host", "hostname", "machine", "phone", "email", "card", "vehicle", "sensor", "terminal"}
_PLACES |= {"caller", "imei", "mac", "meter"}
_NOT_WHO = {"type", "name", "country", "city", "language", "url", "agent", "version", "category", "status", "plan"}
_NOT_WHO |= {"segment", "role", "timezone", "lang", "currency", "amount", "price", "age", "gender", "title"}
_LIKELY = 3.0
"""From here on a column says whose event it is; below it only a person can tell."""


def event_times(times: Iterable[TimeColumn]) -> list[TimeColumn]:
    """Times that nearly all records have, those first that are named like the time of an event."""
    filled = [each for each in times if _share(each.moments) >= _FILLED]
    return sorted(filled, key=_likely_event_time, reverse=True)


def arrival_times(times: Iterable[TimeColumn], event_time: TimeColumn, max_future: timedelta) -> list[TimeColumn]:
    """Times that are named like an arrival and never lie before the event's, so that it is not in their future."""
    return [
        each
        for each in times
        if each.fields != event_time.fields
        and not each.is_local
        and _share(each.moments) >= _FILLED
        and _ARRIVAL & {*each.main.words}
        and ((each.moments + in_microseconds(max_future)) >= event_time.moments).all()
    ]


def event_ids(columns: Iterable[Column], event_time: TimeColumn) -> list[Column]:
    """Columns that may tell one event from another: where two records have the same value, they have the same time."""
    likely = {each.field: _likely_id(each) for each in columns}
    found = [
        each
        for each in columns
        if each.filled >= 1 - 1e-9
        and likely[each.field] >= 2
        and each.repeated <= _REPEATED
        and each.texts.str.len_chars().max() <= 128  # type: ignore[operator]  # it has texts
        and is_one_event(each, event_time)
    ]
    return sorted(found, key=lambda each: likely[each.field], reverse=True)


def is_one_event(column: Column, event_time: TimeColumn) -> bool:
    """Whether all records that have a value in common have their time in common, too."""
    frame = pl.DataFrame({"id": column.texts, "at": event_time.moments}).drop_nulls()
    return frame.n_unique() == frame["id"].n_unique()


def entities(columns: Iterable[Column], taken: Iterable[str]) -> list[Column]:
    """Columns that may say whose event it is."""
    left_out = set(taken)
    likely = {each.field: _likely_entity(each) for each in columns if each.field not in left_out}
    found = [each for each in columns if likely.get(each.field, 0.0) >= _LIKELY]
    return sorted(found, key=lambda each: likely[each.field], reverse=True)


def with_substitute(entity: Column, others: Sequence[Column]) -> Column | None:
    """The column that says who it is where the entity is not known, as a device does before its user logs in."""
    without = entity.texts.is_null()
    for each in others:
        stands_in = _STAND_INS & {*each.words} and each.steps[:-1] == entity.steps[:-1]
        if stands_in and without.any() and each.texts.filter(without).is_not_null().mean() > 0.5:  # type: ignore[operator]
            return each
    return None


def _share(values: pl.Series) -> float:
    return 1 - values.null_count() / len(values)


def _likely_event_time(time: TimeColumn) -> float:
    words = [word for each in time.columns for word in each.words]
    named = len(_EVENT_TIME & {*words}) / max(1, len(words))  # a name may have no letters
    other = len((_ARRIVAL | _OTHER_TIMES) & {*words})
    return 4 * named - 4 * other - time.main.depth + 2 * time.has_clock + (0 if is_number(time.main) else 0.5)


def _likely_id(column: Column) -> float:
    words = {*column.words}
    is_of_several = bool(words & {"session", "visit"}) and column.repeated > 0
    if is_of_several or column.kinds & {bool}:
        return 0.0
    is_named = column.words[-1:] and column.words[-1] in ID_WORDS
    named = 2.0 * bool(is_named) + 2.5 * bool(is_named and words & _EVENT) + 1.5 * bool(words and words <= ID_WORDS)
    opaque = 2.0 * column.all_match(_OPAQUE)
    return named + opaque - column.depth - 4.0 * bool(words & (_PEOPLE | _STAND_INS | _PLACES))


def _likely_entity(column: Column) -> float:
    words = {*column.words}
    around = {word for step in column.steps[:-1] for word in words_of(step)}
    people, places = _PEOPLE | _STAND_INS, _PLACES
    named = 6.0 * bool(words & people) or 4.5 * bool(words & places) or 5.0 * bool(around & people)
    if not named or column.kinds & {bool} or column.different < 2 or _is_fraction(column):
        return 0.0
    is_id = bool(column.words) and (column.words[-1] in ID_WORDS or column.words[-1] in _PEOPLE | places)
    return (
        named
        + 2.0 * is_id
        - 1.5 * bool(words & _STAND_INS)
        - 4.0 * bool(words & _NOT_WHO)
        - column.depth
        + 2.0 * column.filled
        + 1.0 * (0.01 < column.repeated < 0.999)
    )


def _is_fraction(column: Column) -> bool:
    return column.all_are(Number) and bool(column.texts.drop_nulls().str.contains(".", literal=True).any())
