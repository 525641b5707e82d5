"""A topic of a million events, taken in by the platform and by Spark's own reader of Kafka."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

from benchmarks.bench import Bench
from benchmarks.contender import Task
from benchmarks.contenders import SPARK_TOPIC, TOPIC
from benchmarks.judge import DisagreementError
from benchmarks.process import Contestant, Run
from benchmarks.topic import topic

NAME = "kafka"
EVENTS = 1_000_000
WAYS = {TOPIC: "ingest", SPARK_TOPIC: "rebuild"}


def measure(bench: Bench) -> None:
    """A B A B, after a first round that does not count."""
    runs: dict[str, list[Run]] = {name: [] for name in WAYS if name in bench.options.contenders}
    with topic(bench.options.folder / "bench" / "topic", EVENTS) as sources, ExitStack() as stack:
        tasks = {name: bench.task(name, sources, f"work/{NAME}") for name in runs}
        contestants = dict(_prepared(bench, tasks, stack))
        for number in bench.rounds(NAME):
            for name, contestant in contestants.items():
                run = _run(bench, contestant, WAYS[name])
                if number:
                    runs[name].append(run)
        for name in contestants:
            seconds = sorted(run.seconds for run in runs[name])[len(runs[name]) // 2]
            bench.figures.add(NAME, name, runs[name], events_a_second=round(EVENTS / seconds))
    for task in tasks.values():
        bench.forget(task)


def _prepared(bench: Bench, tasks: Mapping[str, Task], stack: ExitStack) -> Iterator[tuple[str, Contestant]]:
    for name, task in tasks.items():
        bench.forget(task)
        with bench.leaving_out(NAME, name):
            contestant = stack.enter_context(Contestant(name, task))
            contestant.call("prepare")
            yield name, contestant


def _run(bench: Bench, contestant: Contestant, method: str) -> Run:
    contestant.call("clear")
    run = bench.told(contestant.name, contestant.run(method))
    if run.value.get("records", EVENTS) != EVENTS:
        raise DisagreementError(f"{contestant.name} made {run.value['records']:,} of {EVENTS:,} events")
    return run
