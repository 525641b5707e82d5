"""From files that landed to records on disk, and from nothing to sessions: ours beside DuckDB and plain PySpark."""

from collections.abc import Iterator
from contextlib import ExitStack

import duckdb

from benchmarks.bench import Bench
from benchmarks.contenders import DUCKDB, INGESTING, NAIVE, OURS
from benchmarks.data import Events
from benchmarks.judge import WITHOUT_DETAILS, DisagreementError, Judge
from benchmarks.landed_files import LANDED_COLUMNS, LandedFiles
from benchmarks.process import Contestant, Run

NAME = "ingest"
NOTHING = "landing to sessions from nothing"
CONTENDERS = (OURS, DUCKDB, NAIVE)
HOURS = 216
"""Files of nine days, one an hour."""


def cases(bench: Bench) -> Iterator[tuple[str, LandedFiles]]:
    """All files that are taken in. Of ten million events, Parquet has all of them, lines about a fifth."""
    options = bench.options
    some = Events(max(options.events * 21 // 100, 1), options.days, options.copies)
    tiny = min(10_000, max(options.events // 1000, 10))
    small = Events(tiny * 4, options.days, options.copies)
    for kind, of_format, compression, files, events in (
        ("JSON lines", "json", "gzip", HOURS, some),
        ("JSON lines", "json", "zstd", HOURS, some),
        ("JSON lines", "json", "none", HOURS, some),
        ("csv", "csv", "gzip", HOURS, some),
        ("csv", "csv", "none", HOURS, some),
        ("Parquet", "parquet", "zstd", 32, bench.events),
        ("Protobuf", "protobuf", "none", 32, some),
        ("JSON lines", "json", "none", tiny, small),
    ):
        yield f"{kind}, {compression}, {files:,} files", LandedFiles(of_format, compression, files, events)


def measure(bench: Bench) -> None:
    """Each case, A B C A B C, after a first round that does not count."""
    for case, landed in cases(bench):
        _measure(bench, f"{NAME}: {case}", landed, "ingest")
    _measure(bench, f"{NAME}: {NOTHING}", LandedFiles("json", "gzip", HOURS, bench.events), "from_nothing")


def _measure(bench: Bench, case: str, landed: LandedFiles, method: str) -> None:
    sources = landed.write(bench.data)
    # DuckDB reads no Protobuf.
    able = [name for name in CONTENDERS if landed.format != "protobuf" or name != DUCKDB]
    runs: dict[str, list[Run]] = {name: [] for name in able if name in bench.options.contenders}
    tasks = {name: bench.task(name, sources, f"work/{NAME}") for name in runs}
    judge, records = Judge(landed.events.events, WITHOUT_DETAILS), Records()
    with ExitStack() as stack:
        contestants = {}
        for name, task in tasks.items():
            bench.forget(task)
            contestants[name] = stack.enter_context(Contestant(INGESTING[name], task))
            contestants[name].call("prepare")
        for number in bench.rounds(case):
            for name, contestant in contestants.items():
                contestant.call("clear")
                run = bench.told(name, contestant.run(method))
                records.judge(name, contestant.call("records"), landed.format)
                if method == "from_nothing":
                    judge.judge(name, contestant.output())
                if number:
                    runs[name].append(run)
    for name, task in tasks.items():
        bench.figures.add(case, name, runs[name])
        bench.forget(task)


class Records:
    """Holds the records that each contender wrote against those of the first."""

    def __init__(self) -> None:
        self._first: tuple[str, tuple[object, ...]] | None = None

    def judge(self, name: str, files: list[str], of_format: str) -> None:
        """DisagreementError unless they are the same, each with a place of its own."""
        # Rows of Parquet have no text of their own: everybody makes one in another way.
        payload = "" if of_format == "parquet" else ", payload"
        fields = ", ".join(f"epoch_us({each})" if each.endswith("_time") else each for each in LANDED_COLUMNS)
        found = _one_row(
            f"""SELECT count(*), count(DISTINCT parse_filename(source)), sum(hash({fields}{payload})::HUGEINT)
                FROM read_parquet($files)""",
            files,
        )
        places = "SELECT count(DISTINCT (source, source_offset)), min(octet_length(payload)) FROM read_parquet($files)"
        distinct, shortest = _one_row(places, files)
        if distinct != found[0] or not shortest:
            raise DisagreementError(f"{name} has {found[0]:,} records in {distinct:,} places")
        self._first = self._first or (name, found)
        if found != self._first[1]:
            raise DisagreementError(f"{name} has {found}, {self._first[0]} has {self._first[1]}")


def _one_row(query: str, files: list[str]) -> tuple[int, ...]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        row = connection.execute(query, {"files": files}).fetchone()
        assert row is not None
        return tuple(row)
