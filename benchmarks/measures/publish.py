"""What feeds add to a rebuild, and how fast all sessions come to a sink, beside the least that can be done."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.contenders import OURS, PUBLISHING
from benchmarks.judge import DisagreementError, Judge
from benchmarks.process import Contestant, Run
from dedup_platform.testing.servers import KafkaServer, PostgresServer
from dedup_platform.testing.servers.kafka import install_kafka

NAME = "publish"
PLAIN_COPY, PLAIN_PRODUCER, SCRIPT = "plain copy", "plain producer", "script"
FORMATS = {OURS: "json", "ours (avro)": "avro", "ours (protobuf)": "protobuf"}
"""Of messages in Kafka; the plain producer's are of JSON."""
PARTITIONS = 4
_DATABASE = "bench"

Turn = Callable[[Contestant, int], Run]


def measure(bench: Bench) -> None:
    """A B A B, after a first round that does not count."""
    with Contestant(PUBLISHING, bench.ingested(bench.events)) as ours:
        ours.call("prepare")
        _measure_feeds(bench, ours)
        ours.call("make_ready")
        folder = bench.options.folder / "bench" / NAME
        for where, ways in (("Postgres", _into_postgres(folder)), ("Kafka", _into_kafka(folder))):
            with ways as turns:
                _measure_sink(bench, ours, where, turns)
        ours.call("clear")


def _measure_feeds(bench: Bench, ours: Contestant) -> None:
    ways = {"without feeds": "rebuild", "with feeds": "rebuild_with_feeds"}
    runs: dict[str, list[Run]] = {case: [] for case in ways}
    judge = Judge(bench.events.events)
    rows = 0
    for number in bench.rounds(NAME):
        for case, method in ways.items():
            ours.call("clear")
            run = bench.told(case, ours.run(method))
            verdict = judge.judge(case, ours.output())
            rows = verdict.events[0] + verdict.sessions[0]
            if number:
                runs[case].append(run)
    _check_rows("the feeds", runs["with feeds"][0].value["changes"], rows)
    for case in ways:
        bench.figures.add(f"{NAME}: everything from nothing, {case}", OURS, runs[case])


def _measure_sink(bench: Bench, ours: Contestant, where: str, turns: dict[str, Turn]) -> None:
    runs: dict[str, list[Run]] = {name: [] for name in turns}
    for number in bench.rounds(f"{NAME}, {where}"):
        for name, turn in turns.items():
            run = bench.told(name, turn(ours, number))
            if number:
                runs[name].append(run)
    rows = {name: run.value["rows"] for name, [run, *_] in runs.items()}
    case = f"{NAME}: {rows[OURS]:,} sessions into {where}"
    for name in turns:
        _check_rows(name, rows[name], rows[OURS])
        median = bench.figures.add(case, name, runs[name])["median_s"]
        bench.figures.tell(case, name, rows_a_second=round(rows[name] / median))


@contextmanager
def _into_postgres(folder: Path) -> Iterator[dict[str, Turn]]:
    with _fresh(folder / "postgres") as place, PostgresServer(place, databases=(_DATABASE,)) as server:
        uri = f"postgresql://{server.user}@127.0.0.1:{server.port}/{_DATABASE}"
        secrets = {"password": server.password}

        def ours(contestant: Contestant, number: int) -> Run:
            sink = {"kind": "postgres", "uri": uri, "table": f"public.sessions_{number}"}
            return contestant.run("publish", sink=sink, secrets=secrets)

        def plain(contestant: Contestant, number: int) -> Run:
            return contestant.run("copy_plainly", uri=uri, secrets=secrets, like=f"sessions_{number}")

        yield {OURS: ours, PLAIN_COPY: plain}


@contextmanager
def _into_kafka(folder: Path) -> Iterator[dict[str, Turn]]:
    install_kafka()
    with _fresh(folder / "kafka") as place, KafkaServer(place) as server:

        def ours(format_: str, contestant: Contestant, number: int) -> Run:
            topic = f"sessions-{format_}-{number}"
            server.create_topic(topic, PARTITIONS)
            sink = {"kind": "kafka", "brokers": server.brokers, "topic": topic, "format": format_}
            return contestant.run("publish", sink=sink, secrets={})

        def plain(method: str, contestant: Contestant, number: int) -> Run:
            topic = f"{method}-{number}"
            server.create_topic(topic, PARTITIONS)
            return contestant.run(method, brokers=server.brokers, topic=topic)

        ways = {PLAIN_PRODUCER: "produce_plainly", SCRIPT: "produce_by_script"}
        yield {
            **{name: partial(ours, format_) for name, format_ in FORMATS.items()},
            **{name: partial(plain, method) for name, method in ways.items()},
        }


@contextmanager
def _fresh(folder: Path) -> Iterator[Path]:
    """A folder that is there for as long as the block runs."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_rows(who: str, found: Any, expected: int) -> None:
    if found != expected:
        raise DisagreementError(f"{who} made {found:,} of {expected:,} rows")
