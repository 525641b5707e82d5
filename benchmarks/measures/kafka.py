"""A topic of a million events, taken in by the platform and by Spark's own reader of Kafka."""

from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.contenders import SPARK_TOPIC, TOPIC
from benchmarks.judge import DisagreementError
from benchmarks.process import Contestant, Run
from benchmarks.topic import topic

NAME = "kafka"
EVENTS = 1_000_000
WAYS = {TOPIC: "ingest", SPARK_TOPIC: "rebuild"}


def measure(bench: Bench) -> None:
    """The first run of each warms it up."""
    with topic(bench.options.folder / "bench" / "topic", EVENTS) as sources:
        for name in (name for name in WAYS if name in bench.options.contenders):
            with bench.leaving_out(NAME, name):
                _measure_contender(bench, sources, name)


def _measure_contender(bench: Bench, sources: Path, name: str) -> None:
    task = bench.task(name, sources, f"work/{NAME}")
    bench.forget(task)
    with Contestant(name, task) as contestant:
        contestant.call("prepare")
        bench.say(f"{NAME}: {name}")
        runs = [_run(bench, contestant, WAYS[name]) for _ in range(bench.options.runs + 1)][1:]
        seconds = sorted(run.seconds for run in runs)[len(runs) // 2]
        bench.figures.add(NAME, name, runs, events_a_second=round(EVENTS / seconds))
    bench.forget(task)


def _run(bench: Bench, contestant: Contestant, method: str) -> Run:
    contestant.call("clear")
    run = bench.told(contestant.name, contestant.run(method))
    if run.value.get("records", EVENTS) != EVENTS:
        raise DisagreementError(f"{contestant.name} made {run.value['records']:,} of {EVENTS:,} events")
    return run
