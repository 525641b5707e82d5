"""The laws of feeds, in plain Python: applied to nothing, versions 1 to v of a feed give the table as v left it."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from dedup_platform.stream import Stream
from dedup_platform.tables import FEED_OF, FOLLOWED, ROW_KEY, SESSIONS, column_names, feeds_of
from dedup_platform_tests.lives.firsts import FirstEvents
from dedup_platform_tests.lives.state import Row, State

Key = tuple[Any, ...]
REASONS = {
    SESSIONS: {
        "insert": {"new", "merged", "split"},
        "delete": {"merged", "split", "erased"},
        "update": {"merged", "split", "moved", "grown", "shrunk", "corrected"},
    },
    "deduplicated_events": {
        "insert": {"new", "corrected"},
        "delete": {"erased", "corrected"},
        "update": {"moved", "corrected"},
    },
}


class FeedLaws:
    """Remembers what tables held at every commit, and judges the versions that feeds tell of them."""

    def __init__(self) -> None:
        self._known: dict[int, dict[Key, Row]] = {}
        self._applied: dict[str, dict[Key, Row]] = {feed: {} for feed in FOLLOWED}
        self._versions: dict[str, dict[int, dict[Key, Row]]] = {feed: {} for feed in FOLLOWED}
        self._judged = dict.fromkeys(FOLLOWED, 0)
        self._rows = dict.fromkeys(FOLLOWED, 0)
        self._last: dict[str, dict[Key, Row]] = {table: {} for table in FEED_OF}
        self._commits: dict[str, list[int]] = {table: [] for table in FEED_OF}
        """Those that changed rows."""
        self._firsts = FirstEvents()
        self._place = dict.fromkeys(FOLLOWED, 0)

    def remember(self, stream: Stream, state: State, heads: Mapping[str, int]) -> None:
        """What the tables hold at these snapshots."""
        if stream.sessions:
            self._firsts.remember(stream, state, heads[SESSIONS])
        for table in feeds_of(stream):
            if heads[table] in self._commits[table]:
                # Where the table was, or was taken back to.
                del self._commits[table][self._commits[table].index(heads[table]) + 1 :]
                self._last[table] = self._known[heads[table]]
            if heads[table] not in self._known:
                rows = _by_key(state.all(table), table, column_names(stream, table))
                self._known[heads[table]] = rows
                if rows != self._last[table]:
                    self._commits[table].append(heads[table])
                    self._last[table] = rows

    def of(self, stream: Stream, feed: str, rows: Sequence[Row]) -> Iterator[str]:
        """What is wrong with the versions of a feed (all its rows) that were not judged before, a line each."""
        table, last = FOLLOWED[feed], self._judged[feed]
        told = sorted(rows, key=lambda row: (row["_commit_version"], row["_change_ordinal"]))
        new = [row for row in told if row["_commit_version"] > last]
        for version, group in groupby(new, lambda row: row["_commit_version"]):
            changes = list(group)
            if version != last + 1:
                yield f"{feed}: version {version} comes after {last}"
            last = self._judged[feed] = version
            yield from (f"{feed}, version {version}: {each}" for each in self._version(stream, table, changes))
            self._versions[feed][version] = self._applied[feed]
            snapshot, commits = changes[0]["_commit_snapshot_id"], self._commits[table]
            if version > 1 and snapshot in commits and commits.index(snapshot) > self._place[feed] + 1:
                yield f"{feed}: versions {version - 1} and {version} are not of commits that follow each other"
            # A feed that begins late begins with a snapshot that changed nothing, perhaps.
            alike = [place for place, each in enumerate(commits) if self._known[each] == self._known.get(snapshot)]
            self._place[feed] = commits.index(snapshot) if snapshot in commits else max(alike, default=-1)
        if len(told) - len(new) != self._rows[feed]:
            yield f"{feed}: {len(told) - len(new)} rows of versions that had {self._rows[feed]}"
        self._rows[feed] = len(told)

    def at(self, feed: str, version: int) -> list[Row] | None:
        """What the versions up to this one come to; None if it was not judged."""
        rows = {} if version == 0 else self._versions[feed].get(version)
        return None if rows is None else list(rows.values())

    def behind(self, stream: Stream, state: State) -> list[str]:
        """The tables that their feeds do not give."""
        return [
            table
            for table, feed in feeds_of(stream).items()
            if self._applied[feed] != _by_key(state.all(table), table, column_names(stream, table))
        ]

    def _version(self, stream: Stream, table: str, changes: Sequence[Row]) -> Iterator[str]:
        names = column_names(stream, table)
        # A table may have got columns since.
        rows = self._applied[FEED_OF[table]] = {
            key: _cut(row, names) for key, row in self._applied[FEED_OF[table]].items()
        }
        before = dict(rows)
        if len({row["_change_ordinal"] for row in changes}) < len(changes):
            yield "ordinals repeat"
        yield from _apply(rows, changes, table, names)
        [snapshot] = {row["_commit_snapshot_id"] for row in changes}
        if snapshot not in self._known:
            yield f"nobody saw the snapshot {snapshot}"
        elif rows != self._known[snapshot]:
            yield f"gives {_shown(rows)}, but the table had {_shown(self._known[snapshot])}"
        if table == SESSIONS:
            yield from _links(before, changes)
            yield from self._firsts.of(rows.values(), changes)


def _apply(rows: dict[Key, Row], changes: Sequence[Row], table: str, names: Sequence[str]) -> Iterator[str]:
    preimage: Row | None = None
    for change in changes:
        row, kind = _cut(change, names), change["_change_type"]
        key = tuple(row[name] for name in ROW_KEY[table])
        if change["reason"] not in REASONS[table][kind.partition("_")[0]]:
            yield f"{kind} because {change['reason']}"
        if kind == "insert":
            if key in rows:
                yield f"{key} is inserted twice"
            rows[key] = row
            continue
        if kind == "update_postimage":
            if preimage is None or key != tuple(preimage[name] for name in ROW_KEY[table]) or row == preimage:
                yield f"{row} follows {preimage}"
            elif {name for name in names if row[name] != preimage[name]} != set(change["changed_columns"]):
                yield f"{change['changed_columns']} differ in {row} and {preimage}"
            rows[key], preimage = row, None
            continue
        if rows.get(key) != row:
            yield f"{kind} of {row}, but there was {rows.get(key)}"
        if kind == "delete":
            rows.pop(key, None)
        else:
            preimage = row


def _links(before: Mapping[Key, Row], changes: Sequence[Row]) -> Iterator[str]:
    """What a session is split from overlaps it."""
    for change in changes:
        if change["split_from"] is not None and not _overlap(before[change["split_from"],], change):
            yield f"{change['session_id']} is split from {change['split_from']}, which is elsewhere"


def _overlap(one: Row, other: Row) -> bool:
    return bool(one["started_at"] <= other["ended_at"] and other["started_at"] <= one["ended_at"])


def _by_key(rows: Sequence[Row], table: str, names: Sequence[str]) -> dict[Key, Row]:
    return {tuple(row[name] for name in ROW_KEY[table]): _cut(row, names) for row in rows}


def _cut(row: Row, names: Sequence[str]) -> Row:
    # Not made anew where nothing is cut: every version has nearly all rows of the one before.
    return row if row.keys() == set(names) else {name: row.get(name) for name in names}


def _shown(rows: Mapping[Key, Row]) -> list[Key]:
    return sorted(rows, key=repr)
