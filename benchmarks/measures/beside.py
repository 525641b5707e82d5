"""The same work by this checkout and by another one, in turns: whether a change has made anything slower."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.bench import Bench, land
from benchmarks.contender import Task
from benchmarks.contenders import BEFORE, OURS
from benchmarks.data import Events
from benchmarks.judge import Judge
from benchmarks.process import PROJECT, Contestant, Run

NAME = "beside"
SHARE = 5
LONG_DAYS, EVENTS_PER_DAY = 300, 1_000

Turn = Callable[[Contestant, Task, int], Run]


def measure(bench: Bench) -> None:
    """Cold builds first; then two warm processes over equal tables."""
    assert bench.options.beside, "the options ask for this measure only together with another checkout"
    checkouts = {OURS: PROJECT, BEFORE: bench.options.beside}
    large = Events(max(bench.options.events // SHARE, 10_000), bench.options.days, bench.options.copies)
    long = Events(LONG_DAYS * EVENTS_PER_DAY, LONG_DAYS, bench.options.copies)
    for events, buckets, turns in (
        (large, bench.options.buckets, {"1 late event": _late, "one more hour": _hour, "rebuild": _rebuild}),
        (long, 1, {f"1 late event, {LONG_DAYS} days before it": _late}),
    ):
        tasks = _built(bench, events, buckets, checkouts)
        with ExitStack() as stack:
            sides = {name: stack.enter_context(Contestant(name, task, checkouts[name])) for name, task in tasks.items()}
            for side in sides.values():
                side.call("prepare")
            for case, turn in turns.items():
                _in_turns(bench, case, sides, tasks, partial(turn, bench, events))
        for task in tasks.values():
            bench.forget(task)


def _built(bench: Bench, events: Events, buckets: int, checkouts: Mapping[str, Path]) -> dict[str, Task]:
    """From files to sessions, in processes of their own, each checkout first in turn; returns the last ones."""
    runs: dict[str, list[Run]] = {name: [] for name in checkouts}
    tasks: dict[str, Task] = {}
    rounds = bench.options.runs + 1
    for number in range(rounds):
        bench.say(f"{NAME}: {events.events:,} events from nothing, run {number + 1} of {rounds}")
        for name in _order(checkouts, number):
            tasks[name] = replace(bench.fresh_task(name, events, f"work/{NAME}"), buckets=buckets)
            with Contestant(name, tasks[name], checkouts[name]) as side:
                side.call("prepare")
                runs[name].append(bench.told(name, side.run("update")))
    for name in checkouts:
        bench.figures.add(f"{NAME}: {events.events:,} events from files to sessions, cold", name, runs[name])
    return tasks


def _order(names: Iterable[str], number: int) -> list[str]:
    """Who begins a round changes from one to the next."""
    return list(names)[:: -1 if number % 2 else 1]


def _in_turns(bench: Bench, case: str, sides: Mapping[str, Contestant], tasks: Mapping[str, Task], turn: Turn) -> None:
    runs: dict[str, list[Run]] = {name: [] for name in sides}
    judge = Judge()
    for number in bench.rounds(f"{NAME}: {case}"):
        for name in _order(sides, number):
            run = bench.told(name, turn(sides[name], tasks[name], number))
            if number:
                runs[name].append(run)
    for name, side in sides.items():
        judge.judge(name, side.output())
        bench.figures.add(f"{NAME}: {case}", name, runs[name])


def _late(bench: Bench, events: Events, side: Contestant, task: Task, number: int) -> Run:
    return _landed(events.write_late(bench.data, 1, 1, number), side, task, f"late-{number}.parquet")


def _hour(bench: Bench, events: Events, side: Contestant, task: Task, number: int) -> Run:
    return _landed(events.write_hour(bench.data, number), side, task, f"hour-{number}.parquet")


def _landed(folder: Path, side: Contestant, task: Task, name: str) -> Run:
    land(folder, task, name)
    return side.run("update")


def _rebuild(bench: Bench, events: Events, side: Contestant, task: Task, number: int) -> Run:  # noqa: ARG001
    side.call("clear")
    return side.run("rebuild")
