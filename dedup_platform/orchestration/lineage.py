"""Which columns of its input each column of a derived table is made of, as the UI draws it.

Told with materializations, since that is where the UI looks; a column that counts rows is made of what says which rows
they are.
"""

from collections.abc import Mapping, Sequence

import dagster as dg

from dedup_platform import tables
from dedup_platform.stream import Stream

_FRAGMENT: Mapping[str, Sequence[str]] = {
    "entity_id": ["entity_id"],
    "first_event_time": ["event_time"],
    "last_event_time": ["event_time"],
    "event_count": ["entity_id", "event_time"],
    "first_arrived": ["entity_id", "event_time", *tables.ARRIVAL_ORDER],
}
_COMPARED = ("entity_id", "event_id", "event_time")
_SESSION: Mapping[str, Sequence[str]] = {
    "session_id": ["first_arrived"],
    "entity_id": ["entity_id"],
    "started_at": ["first_event_time"],
    "ended_at": ["last_event_time"],
    "event_count": ["event_count"],
    "first_arrived_at": ["first_arrived"],
    "first_arrived_event_time": ["first_arrived"],
}


def column_lineage(stream: Stream, table: str) -> dict[str, dg.TableColumnLineage]:
    """The columns of a derived table, each with those that it is made of, as metadata; nothing of other tables."""
    if table not in tables.BUILT_FROM:
        return {}
    key = dg.AssetKey([stream.name, tables.BUILT_FROM[table]])
    made_of = {
        column: [dg.TableColumnDep(key, each) for each in inputs] for column, inputs in _inputs(stream, table).items()
    }
    return {"dagster/column_lineage": dg.TableColumnLineage(made_of)}


def _inputs(stream: Stream, table: str) -> Mapping[str, Sequence[str]]:
    if table == tables.SESSION_FRAGMENTS:
        return {**_FRAGMENT, **{name: [each.attribute] for name, each in stream.aggregates.items()}}
    if table == tables.SESSIONS:
        return {**_SESSION, **{name: [name] for name in stream.aggregates}}
    told = {name: [name.removeprefix("winner_")] for name in tables.column_names(stream, table)}
    # Whether a duplicate is a conflict, its typed columns and those of the record that beats it say.
    return told | ({"kind": [*_COMPARED, *stream.attributes]} if table == tables.DUPLICATE_EVENTS else {})
