"""Everything from nothing, warm: processes that have done it once already, in turn, the others idle."""

from contextlib import ExitStack

from benchmarks.bench import Bench
from benchmarks.contenders import DUCKDB, FLOOR, NAIVE, OURS
from benchmarks.judge import Judge
from benchmarks.process import Contestant, Run

NAME = "rebuild"
CONTENDERS = (OURS, NAIVE, DUCKDB, FLOOR)


def measure(bench: Bench) -> None:
    """A B C A B C, after a first round that does not count."""
    names = [name for name in CONTENDERS if name in bench.options.contenders]
    tasks = bench.tasks(names, bench.events)
    judge = Judge(bench.events.events)
    runs: dict[str, list[Run]] = {name: [] for name in names}
    with ExitStack() as stack:
        contestants = {name: stack.enter_context(Contestant(name, task)) for name, task in tasks.items()}
        for contestant in contestants.values():
            contestant.call("prepare")
        for number in bench.rounds(NAME):
            for name, contestant in contestants.items():
                contestant.call("clear")
                run = bench.told(name, contestant.run("rebuild"))
                # The plain copy has no answer: it is the floor below the others, not one of them.
                if name != FLOOR:
                    judge.judge(name, contestant.output())
                if number:
                    runs[name].append(run)
        for name in names:
            bench.figures.add(NAME, name, runs[name])
        if OURS in names:
            bench.figures.tell(NAME, OURS, tables=contestants[OURS].call("table_sizes"))
