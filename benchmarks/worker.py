"""The process of one contender: `python -m benchmarks.worker NAME TASK`, with requests and answers as lines of JSON.

A request names a method and its arguments; the answer holds its value and the seconds that it took, or its failure.
"""

import json
import os
import sys
import time
import traceback
from dataclasses import asdict, is_dataclass
from typing import Any, TextIO

from benchmarks.contender import Contender, Task
from benchmarks.contenders import contender


def main() -> None:
    """Serve until the requests end."""
    answers = _claim_output()
    name, task = sys.argv[1:]
    worker = contender(name, Task(**json.loads(task)))
    for line in sys.stdin:
        answers.write(json.dumps(_answer(worker, json.loads(line))) + "\n")
        answers.flush()


def _answer(worker: Contender, request: dict[str, Any]) -> dict[str, Any]:
    started = time.monotonic()
    try:
        value = getattr(worker, request["method"])(**request["arguments"])
    except Exception:
        return {"failure": traceback.format_exc()}
    seconds = time.monotonic() - started
    return {"value": asdict(value) if is_dataclass(value) else value, "seconds": seconds}  # type: ignore[arg-type]


def _claim_output() -> TextIO:
    """A file for answers alone: whatever else prints, Java included, prints to standard error from now on."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


if __name__ == "__main__":
    main()
