"""The figures: measure -> contender -> what its runs took, in memory and as JSON."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.process import Run

Figure = dict[str, Any]
"""`median_s`, `runs_s`, `peak_mb`, `data_bytes_read`, `data_bytes_written`, `data_files_written` and what else a
measure tells."""


class Figures:
    """All measures so far; those of an earlier call with the same options stay until they are measured again."""

    def __init__(self, path: Path, options: Mapping[str, object], about: Mapping[str, object]) -> None:
        self.path = path
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        same = known.get("about", {}).get("options") == dict(options)
        self.measures: dict[str, dict[str, Figure]] = known["measures"] if same else {}
        self.about = {**about, "options": dict(options)}

    def begin(self, measure: str) -> None:
        """Forget the figures of a measure, and of its parts."""
        self.measures = {name: each for name, each in self.measures.items() if name.split(":")[0] != measure}

    def add(self, measure: str, contender: str, runs: Sequence[Run], **more: Any) -> Figure:
        """Add what a contender's runs took, and write the file."""
        figure = summary(runs) | more
        self.measures.setdefault(measure, {})[contender] = figure
        self.write()
        return figure

    def seconds(self, measure: str, contender: str, seconds: Sequence[float], **more: Any) -> None:
        """Add the times of something that is no process of its own."""
        figure = {"median_s": round(median(seconds), 4), "runs_s": [round(each, 4) for each in seconds]} | more
        self.measures.setdefault(measure, {})[contender] = figure
        self.write()

    def tell(self, measure: str, contender: str, **figure: Any) -> None:
        """Add a figure that is no run of a process, or add to one that is."""
        self.measures.setdefault(measure, {}).setdefault(contender, {}).update(figure)
        self.write()

    def write(self) -> None:
        """Write all to the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps({"about": self.about, "measures": self.measures}, indent=2), encoding="utf-8")


def summary(runs: Sequence[Run]) -> Figure:
    """Medians of some runs; `steps`, where a contender tells them, are medians of their seconds."""
    steps = [run.value["steps"] for run in runs if isinstance(run.value, dict) and "steps" in run.value]
    read = [run.data_bytes_read for run in runs if run.data_bytes_read is not None]
    return {
        "median_s": round(median(run.seconds for run in runs), 3),
        "runs_s": [round(run.seconds, 3) for run in runs],
        "peak_mb": round(max(run.peak_mb for run in runs)),
        "data_bytes_read": int(median(read)) if read else None,
        "data_bytes_written": int(median(run.data_bytes_written for run in runs)),
        "data_files_written": int(median(run.data_files_written for run in runs)),
        "metadata_bytes_written": int(median(run.metadata_bytes_written for run in runs)),
    } | ({"steps": {name: round(median(step.get(name, 0) for step in steps), 3) for name in steps[0]}} if steps else {})
