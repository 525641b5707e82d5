"""What it takes to make the report of a stream: whole processes of the command line, whose files are in no cache."""

from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.contender import Task
from benchmarks.contenders import OURS
from benchmarks.contenders.ours import STREAM
from benchmarks.measures.explain import asked
from benchmarks.process import Contestant

NAME = "report"


def measure(bench: Bench) -> None:
    """Make it with the counts of cells that their builds kept, and where those were lost."""
    task = bench.ingested(bench.events)
    with Contestant(OURS, task) as ours:
        ours.call("update")
    for case, is_lost in (("counts are kept", False), ("control database lost", True)):
        seconds = [_made(task, is_lost) for _ in range(bench.options.runs)]
        bench.say(f"  {NAME}, {case}: {', '.join(f'{each:.1f} s' for each in seconds)}")
        bench.figures.seconds(f"{NAME}: {case}", OURS, seconds)


def _made(task: Task, is_lost: bool) -> float:
    home = Path(task.home)
    for file in home.glob("control.db*") if is_lost else ():
        file.unlink()
    return asked(task, [NAME, STREAM, "--html", str(home / "report.html")])
