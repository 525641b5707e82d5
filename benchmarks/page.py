"""Writes the page of figures: tables of medians and ratios, what they were measured on, and how."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import wrap
from typing import Any

from benchmarks.contenders import DESCRIPTIONS, OURS
from benchmarks.figures import Figure, Figures
from benchmarks.report import costs, megabytes, plot, ratio, seconds

_SECTIONS = {
    "rebuild": (
        "Everything from nothing, warm",
        "Processes that have done the same once before, in turn, the others idle. The platform starts from "
        "`raw_events`, with empty derived tables and no control database; the others start from the source files. "
        "`copy` is no contender but the floor: it reads and writes the same columns as the platform does, and nothing "
        "else.",
    ),
    "rebuild_cold": (
        "Everything from nothing, cold",
        "The same as whole processes, from start to end: the interpreter, Java and all that has to warm up is in it.",
    ),
    "ingest": (
        "Ingest",
        "From source files to `raw_events`: every record with its payload, its coordinates and its rejection, if any, "
        "exactly once, beside whoever reads the same files and writes the same columns by day in Parquet: DuckDB, and "
        "plain PySpark. DuckDB reads no Protobuf. Landing to sessions from nothing is the same and all that is made of "
        "it, end to end, with all records kept. All but the case `events` is warm, every run from nothing.",
    ),
    "next_hour": (
        "One more hour",
        "The history is built; then the file of one more hour lands. The platform ingests it and repairs what is "
        "stale, table formats merge it and build all sessions anew, the others do everything again.",
    ),
    "repair": (
        "Late events",
        "A hundred days are built; then a file of late events lands: its ingest and repair, on a warm process. Beside "
        "it stands what doing everything again takes.",
    ),
    "explain": (
        "Why a row is as it is",
        "`dedup-platform explain` as a whole process, from the start of the interpreter to its end, on files that are "
        "in no cache.",
    ),
    "report": (
        "The report",
        "`dedup-platform report` as a whole process, from the start of the interpreter to its end, on files that are "
        "in no cache; then again with a control database that is made anew, and keeps no counts of cells.",
    ),
    "history": (
        "Length of the history",
        "One late event lands in one of 10, 100 and 1,000 days of a thousand events each.",
    ),
    "upkeep": (
        "Upkeep",
        "Forty small batches were taken in and repaired one by one: every cell of `raw_events` has forty files. "
        "Then one late event, and a read of all records; then maintenance; then the same again.",
    ),
    "landing": (
        "From landing to readable",
        "A late file lands while `dagster dev` runs, until its sessions can be read. A tick of the sensor comes every "
        "5 seconds, so on average half of that is waiting for it. Warm is a Spark Connect server, cold a Spark of the "
        "run's own.",
    ),
    "kafka": (
        "From a topic",
        "A million events in a topic of 8 partitions, 500 in each message of Protobuf, to `raw_events`; beside it, as "
        "the floor, what Spark's own reader of Kafka takes to write the same 2,000 messages to Parquet as they are, "
        "without taking them apart. Warm, every run from nothing.",
    ),
    "publish": (
        "Feeds and sinks",
        "Everything from nothing with the feeds of all that changed, beside the same without them, in turns. Then all "
        "sessions to an empty table of Postgres and to an empty topic, exactly once, read from the lake and encoded; "
        "beside it, as the floor, one COPY into a table with the same key, and a producer without transactions, of "
        "the same rows, which they have in memory ready to be sent. The script is such a producer that reads the rows "
        "and dumps each as JSON.",
    ),
    "skew": ("One entity owns a fifth", "Whole processes. The peak is of the process and all its children together."),
    "scale": (
        "Three years of a large stream",
        "At a hundredth: a hundredth of the cells of 1,095 days of 1,024 buckets, and of the commits of a day in which "
        "one comes every 10 seconds. Bytes, unless it says otherwise.",
    ),
    "beside": (
        "Beside another checkout",
        "The same work by this code and by that of another checkout, in turns, on warm processes over equal tables.",
    ),
    "tick": (
        "Ticks",
        "A tick reads metadata only. The first fold is what a lost control database costs.",
    ),
    "state": (
        "State",
        "What is kept to know the next copy, beside the events themselves.",
    ),
}


def write_page(figures: Figures, path: Path) -> None:
    """Write the page, and the plot beside it if there is anything to draw."""
    picture = path.with_suffix(".png")
    drawn = plot(figures, picture)
    path.write_text("\n".join(_page(figures, picture.name if drawn else None)).rstrip() + "\n", encoding="utf-8")


def _page(figures: Figures, picture: str | None) -> Iterator[str]:
    about: dict[str, Any] = figures.about
    machine, options = about["machine"], about["options"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items() if version)
    yield "# Benchmarks"
    yield ""
    yield from _prose(
        "Written by the harness (`benchmarks/`), not by hand. Compare the ratios; the seconds are this machine's: "
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['os']}; {versions}."
    )
    yield ""
    yield from _prose(
        f"{options['events']:,} events over {options['days']} days, ten a session, {options['copies']:.0%} of them "
        "delivered twice, with UUIDs as ids, a long tail of lateness, and in each 100 bytes that hardly compress, "
        "so that everybody has to copy them. All write Parquet with zstd, level 1. Java has a heap of "
        f"{options['memory']}; the platform's tables have {options['buckets']} buckets. After every run DuckDB reads "
        "the files that were written: events and sessions must have the same checksums for all contenders, or the "
        "harness fails."
    )
    yield ""
    yield "```text"
    yield "make bench                                                   # the default measures"
    yield 'make bench BENCH="--events 1000000 --contenders ours,duckdb"   # smaller, and some contenders only'
    yield 'make bench BENCH="--measures history,upkeep,landing,tick,kafka,publish,scale,ingest"   # more'
    yield 'make bench BENCH="--measures beside --beside ../before"        # the same by another checkout, in turns'
    yield 'make bench BENCH="--docs docs/benchmarks.md"                  # write this page, too'
    yield "```"
    yield ""
    yield from _prose(
        "Figures go to `build/bench.json`, a plot to `build/bench.png`; generated events and the platform's ingested "
        "tables are kept in `build/bench` for the next call."
    )
    yield ""
    if picture:
        yield f"![Medians]({picture})"
        yield ""
    yield from _prose(
        "Peak memory is the most that a contender's process and all its children had resident together. Data read is "
        "what the processes of DuckDB and Polars read from files; for ours and the copy it is the size of the files "
        "that were read, less the payload where that was not; of plain Spark nobody counts it. Data written counts "
        "Parquet files, metadata the other files of tables."
    )
    yield ""
    yield "| contender | what it is |"
    yield "|---|---|"
    for name, what in DESCRIPTIONS.items():
        yield f"| {name} | {what} |"
    if not figures.measures:
        yield "\nNothing has been measured yet."
    for section in _SECTIONS:
        measures = {name: each for name, each in figures.measures.items() if name.split(":")[0] == section}
        if measures:
            yield from _section(section, measures)


def _section(section: str, measures: dict[str, dict[str, Figure]]) -> Iterator[str]:
    title, text = _SECTIONS[section]
    yield ""
    yield f"## {title}"
    yield ""
    yield from _prose(text)
    yield ""
    if section == "state":
        yield from _table(("contender", "bytes for each event"), _state(measures[section]))
        return
    if section == "scale":
        rows = [(name.partition(": ")[2], f"{each[OURS]['value']:,}") for name, each in measures.items()]
        yield from _table(("what", "measured"), rows)
        return
    shown = [
        (*([name.partition(": ")[2]] if len(measures) > 1 else []), contender, *_row(contenders, contender))
        for name, contenders in measures.items()
        for contender, figure in contenders.items()
        if "median_s" in figure
    ]
    columns = (
        "contender",
        "median",
        "of ours",
        "runs",
        "peak memory",
        "data read",
        "data written",
        "files",
        "metadata",
    )
    yield from _table((*(["case"] if len(measures) > 1 else []), *columns), shown)
    for contenders in measures.values():
        if failed := [name for name, figure in contenders.items() if figure.get("failed")]:
            yield f"\nFailed with these versions, and left out: {', '.join(failed)}."
    yield from _details(section, measures)


def _row(contenders: dict[str, Figure], name: str) -> tuple[str, ...]:
    figure = contenders[name]
    runs = ", ".join(seconds(run) for run in figure["runs_s"])
    metadata = megabytes(figure.get("metadata_bytes_written"))
    return seconds(figure["median_s"]), ratio(contenders, name), runs, *costs(figure), metadata


def _details(section: str, measures: dict[str, dict[str, Figure]]) -> Iterator[str]:
    for name, contenders in measures.items():
        figure = contenders.get(OURS, {})
        # Of many repairs, the steps would be a page of their own.
        if "steps" in figure and section != "repair":
            case = f" ({name.partition(': ')[2]})" if len(measures) > 1 else ""
            steps = ", ".join(f"{step} {seconds(took)}" for step, took in figure["steps"].items() if took)
            yield ""
            yield f"Ours by steps{case}: {steps}."
        if "day_bytes" in figure:
            steps = ", ".join(f"{step} {seconds(took)}" for step, took in figure["steps"].items())
            yield ""
            yield from _prose(
                f"Of{name.partition(':')[2]}: {steps}. It writes {megabytes(figure['data_bytes_written'])} of data, "
                f"raw included; the derived tables hold {megabytes(figure['day_bytes'])} of that day."
            )
        if "rows_a_second" in figure:
            told = ", ".join(f"{who} {each['rows_a_second']:,}" for who, each in contenders.items())
            yield ""
            yield f"Rows a second{name.partition(':')[2].replace(' ', ' of ', 1)}: {told}."
        if "tables" in figure and name == "rebuild":
            yield ""
            yield "What ours has written, in its time; `duplicate_events` and `session_fragments` nobody else writes:"
            yield ""
            sizes = figure["tables"].items()
            rows = [
                (table, f"{each['rows']:,}", f"{each['files']:,}", megabytes(each["bytes"])) for table, each in sizes
            ]
            yield from _table(("table", "rows", "files", "size"), rows)


def _state(contenders: dict[str, Figure]) -> list[tuple[str, str]]:
    return [(name, f"{figure['bytes_per_event']:g}") for name, figure in contenders.items()]


def _prose(text: str) -> list[str]:
    return wrap(text, 120, break_on_hyphens=False, break_long_words=False)


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """A table without the columns that are empty in every row."""
    heads, body = list(columns), [list(row) for row in rows]
    used = [number for number in range(len(heads)) if any(row[number] for row in body)]
    yield "| " + " | ".join(heads[number] for number in used) + " |"
    yield "|" + "---|" * len(used)
    for row in body:
        yield "| " + " | ".join(row[number] for number in used) + " |"
