"""What all measures share: the data, the contenders' folders, the figures and a word to whoever waits."""

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq
from rich.console import Console

from benchmarks.contender import Task
from benchmarks.contenders import FLOOR, OURS, TOPIC
from benchmarks.data import Events
from benchmarks.figures import Figures
from benchmarks.judge import Judge
from benchmarks.options import Options
from benchmarks.process import PROJECT, ContenderError, Contestant, Run, run_cold

_DECIDE_RAW = ("sources", "stream", "lakehouse", "ingest", "rawwork.py", "tables.py", "catalog.py")
"""What in the package decides how `raw_events` looks: a home is kept for other runs as long as these are the same."""


@dataclass
class Bench:
    """One call of the harness."""

    options: Options
    figures: Figures
    console: Console

    @property
    def events(self) -> Events:
        """The events of the large measures."""
        return Events(self.options.events, self.options.days, self.options.copies)

    @property
    def data(self) -> Path:
        """Where generated events are kept."""
        return self.options.folder / "bench" / "data"

    def task(self, name: str, sources: Path, place: str) -> Task:
        """The task of a contender in a measure's place; the platform's home may be shared and kept."""
        home = self.options.folder / "bench" / place / name.replace(" ", "-")
        return Task(
            sources=str(sources),
            home=str(home),
            memory=self.options.memory,
            buckets=self.options.buckets,
            logs=str(self.options.folder / "bench" / "logs"),
        )

    def tasks(self, names: Sequence[str], events: Events) -> dict[str, Task]:
        """Tasks over the same events; ours and the plain copy share a home into which everything was ingested."""
        sources = events.write(self.data)
        tasks = {name: self.task(name, sources, "work") for name in names}
        if OURS in names or FLOOR in names:
            home = self.ingested(events)
            tasks |= {name: home for name in (OURS, FLOOR) if name in names}
        return tasks

    def fresh_task(self, name: str, events: Events, place: str) -> Task:
        """A task in an empty folder, over files of its own, to which `land` adds others."""
        task = self.task(name, Path(), place)
        self.forget(task)
        return replace(task, sources=str(_linked_copy(events.write(self.data), Path(task.home) / "sources")))

    def ingested(self, events: Events) -> Task:
        """The platform's task over some events, all of them ingested: now, or by an earlier call."""
        sources = events.write(self.data)
        task = self.task(OURS, sources, f"homes/{events.name}-buckets{self.options.buckets}-{_version(self.data)}")
        done = Path(task.home) / "ingested"
        if not done.exists():
            shutil.rmtree(task.home, ignore_errors=True)
            self.say(f"ingesting {events.events:,} events")
            with Contestant(OURS, task) as ours:
                ours.call("prepare")
                run = ours.run("ingest")
            self.told(OURS, run)
            done.write_text(str(run.value["records"]), encoding="utf-8")
            self.figures.add(f"ingest:{events.events}", OURS, [run], records=run.value["records"])
        return task

    def forget(self, task: Task) -> None:
        """Remove a contender's folder."""
        shutil.rmtree(task.home, ignore_errors=True)

    @contextmanager
    def leaving_out(self, measure: str, name: str) -> Iterator[None]:
        """Let a contender fail in the block, unless it is ours: that is told and noted, and the others go on."""
        try:
            yield
        except ContenderError as error:
            if name in (OURS, TOPIC):
                raise
            self.console.print(f"{name} is left out: {error}", style="bold red", highlight=False, markup=False)
            self.figures.tell(measure, name, failed=True)

    def rounds(self, measure: str) -> Iterator[int]:
        """The numbers of a measure's rounds, in each of which every contender has a turn; round 0 warms up only."""
        for number in range(self.options.runs + 1):
            self.say(f"{measure}: {f'run {number} of {self.options.runs}' if number else 'warming up'}")
            yield number

    def rebuilt_cold(self, name: str, task: Task, judge: Judge) -> Run:
        """Everything from nothing in a process of its own; another one clears before it and hands over the answer."""
        with Contestant(name, task) as helper:
            helper.call("clear")
            run = self.told(name, run_cold(name, task, "rebuild"))
            judge.judge(name, helper.output())
        return run

    def say(self, what: str) -> None:
        """Tell what is going on."""
        self.console.print(what, style="dim", highlight=False)

    def told(self, name: str, run: Run) -> Run:
        """Tell what a run took; returns the run."""
        self.console.print(f"  {name:22} {run.seconds:8.2f} s {run.peak_mb:8.0f} MB", highlight=False)
        return run


def _linked_copy(folder: Path, to: Path) -> Path:
    """A folder with the same files, by hard links: it costs nothing."""
    to.mkdir(parents=True)
    for file in sorted(folder.iterdir()):
        os.link(file, to / file.name)
    return to


def land(folder: Path, task: Task, name: str) -> int:
    """Add the one file of a folder to a task's sources, under another name; returns its records."""
    [file] = folder.iterdir()
    Path(task.sources, name).hardlink_to(file)
    return int(pq.read_metadata(file).num_rows)


def _version(place: Path) -> str:
    """Changes with the code that decides raw rows, and with the folder, which Iceberg's metadata names."""
    digest = hashlib.sha256(str(place.absolute()).encode())
    for name in _DECIDE_RAW:
        path = PROJECT / "dedup_platform" / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if file.exists():
                digest.update(file.read_bytes())
    return digest.hexdigest()[:8]
