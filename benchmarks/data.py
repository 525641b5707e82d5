"""Seeded events as Parquet files, made by DuckDB: UUIDs, about ten events a session, copies, a long tail of lateness.

Every value is a hash of the event's number and the seed, so the same parameters give the same events on any number of
threads. Files lie in a folder named by the parameters and are made once.
"""

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb

EVENT_COLUMNS = ("entity_id", "event_id", "event_time", "arrival_time", "page", "amount", "details")
START = datetime(2026, 1, 1, tzinfo=UTC)
"""Midnight of the first partition; no event lies before it."""

_FILES = 32
_HOUR, _DAY = 3_600_000_000, 86_400_000_000
_LONGEST_SESSION = _HOUR
"""Microseconds; twenty events three minutes apart."""


@dataclass(frozen=True)
class Events:
    """A stream of `events` events over `days` days, a share `copies` of which comes twice.

    `skew` is the share of the sessions that belong to one entity. `details` takes 100 bytes of each event.
    """

    events: int
    days: int = 10
    copies: float = 0.02
    skew: float = 0.0
    seed: int = 1

    @property
    def name(self) -> str:
        """A folder's name that tells all parameters."""
        return "-".join(f"{key}{value}" for key, value in asdict(self).items())

    @property
    def entities(self) -> int:
        """How many entities share the events: four sessions each, on average."""
        return max(self.events // 40, 1)

    def write(self, cache: Path) -> Path:
        """The folder of the events' files inside `cache`, made unless it is there."""
        return made(cache / self.name, lambda folder: _write(folder, self._stream(), self, _FILES))

    def write_hour(self, cache: Path, number: int) -> Path:
        """The folder with the file of an hour after the last: as many events as in an average hour, same entities."""
        count = max(self.events // (self.days * 24), 1)
        begin = self.days * _DAY - _LONGEST_SESSION + number * _HOUR
        sql = self._sessions(self.events + number * count, count, begin, _HOUR)
        return made(cache / f"{self.name}-hour{number}", lambda folder: _write(folder, sql, self, 1))

    def write_late(self, cache: Path, count: int, partitions: int, number: int) -> Path:
        """The folder with a file of `count` new events that arrive after all others, spread over `partitions` days.

        Files of different `number` hold different events.
        """
        first = self.events * 2 + number * 1_000_000
        sql = f"""
            SELECT i, {self._entity("i")} AS entity, {_draw("i", "late", partitions * _DAY)} AS event_time,
                {(self.days + 20 + number) * _DAY} + i AS arrival_time, FALSE AS is_copied
            FROM range({first}, {first + count}) AS numbers(i)"""
        name = f"{self.name}-late{count}-{partitions}-{number}"
        return made(cache / name, lambda folder: _write(folder, sql, self, 1))

    def _stream(self) -> str:
        return self._sessions(0, self.events, 0, self.days * _DAY - _LONGEST_SESSION)

    def _sessions(self, first: int, count: int, begin: int, length: int) -> str:
        """Events number `first` to `first + count`, in sessions that start in `length` microseconds from `begin` on.

        Each twenty events in a row are cut into two sessions, so that a session has 1 to 19 events, on average 10.
        """
        return f"""
            WITH numbered AS (
                SELECT i, i // 20 AS pair, i % 20 AS place, 1 + {_draw("i // 20", "cut", 19)} AS cut
                FROM range({first}, {first + count}) AS numbers(i)
            ), placed AS (
                SELECT i, 2 * pair + (place >= cut)::BIGINT AS session, place - if(place >= cut, cut, 0) AS position
                FROM numbered
            ), timed AS (
                SELECT i, {self._entity("session")} AS entity,
                    {begin} + {_draw("session", "start", length)} + position * 180_000_000
                        + {_draw("i", "jitter", 170_000_000)} AS event_time,
                    -- Half arrive within 3 seconds, one in 300 after more than an hour, a few after a week.
                    (least(pow(({_draw("i", "delay", 1_000_000)} + 1) / 1e6, -1 / 0.7), 604_800) * 1e6)::BIGINT AS delay
                FROM placed
            )
            SELECT i, entity, event_time, event_time + delay AS arrival_time,
                {_draw("i", "copied", 1_000_000)} < {self.copies * 1_000_000} AS is_copied
            FROM timed"""

    def _entity(self, session: str) -> str:
        usual = _draw(session, "entity", self.entities)
        return f"if({_draw(session, 'skew', 1_000_000)} < {self.skew * 1_000_000}, 0, {usual})" if self.skew else usual


def _draw(number: str, what: str, below: int) -> str:
    """A whole number from 0 to `below` - 1 that depends on a number, a word and the seed."""
    return f"(hash({number}, '{what}', getvariable('seed')) % {below})::BIGINT"


def _write(folder: Path, numbered: str, events: Events, files: int) -> None:
    """Write the events of a query with `i`, `entity`, `event_time` and `arrival_time` (microseconds), `is_copied`.

    A file holds what arrived in one stretch of time, as collectors write them; the last also holds the tail.
    """
    start = int(START.timestamp()) * 1_000_000
    stretch = events.days * _DAY // files
    query = f"""
        WITH originals AS ({numbered}), records AS (
            SELECT i, entity, event_time, arrival_time FROM originals
            UNION ALL
            SELECT i, entity, event_time, arrival_time + 1 + {_draw("i", "again", 2 * _DAY)}
            FROM originals WHERE is_copied
        )
        SELECT
            md5(concat('entity', entity, getvariable('seed')))::UUID::VARCHAR AS entity_id,
            md5(concat('event', i, getvariable('seed')))::UUID::VARCHAR AS event_id,
            make_timestamp({start} + event_time)::TIMESTAMPTZ AS event_time,
            make_timestamp({start} + arrival_time)::TIMESTAMPTZ AS arrival_time,
            concat('/products/', {_draw("i", "page", 10_000)}) AS page,
            ({_draw("i", "amount", 100_000)} / 100)::DECIMAL(12, 2) AS amount,
            -- 75 bytes that look random, as 100 characters: a copy of them costs every contender the same.
            to_base64(unhex(left(concat(sha256(concat('a', i)), sha256(concat('b', i)), md5(concat('c', i))), 150)))
                AS details,
            least(arrival_time // {stretch}, {files - 1}) AS file
        FROM records"""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'; SET preserve_insertion_order = false; SET memory_limit = '6GB'")
        connection.execute(f"SET temp_directory = '{folder / 'spill'}'; SET VARIABLE seed = {events.seed}")
        connection.execute(f"COPY ({query}) TO '{folder}' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (file))")
    for file in sorted(folder.glob("file=*/*.parquet")):
        file.rename(folder / f"events-{int(file.parent.name.removeprefix('file=')):04d}-{file.stem}.parquet")
        if not any(file.parent.iterdir()):
            file.parent.rmdir()
    shutil.rmtree(folder / "spill", ignore_errors=True)


def made(folder: Path, write: Callable[[Path], None]) -> Path:
    """The folder, written under another name first: one that is there is whole."""
    if not folder.exists():
        staging = folder.with_name(f"{folder.name}.unfinished")
        shutil.rmtree(staging, ignore_errors=True)
        staging.parent.mkdir(parents=True, exist_ok=True)
        write(staging)
        staging.rename(folder)
    return folder
