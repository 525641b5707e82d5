"""Inputs with planted faults: a record whose `fault` is the name of one does that to whoever comes to it.

Tasks of Spark and lone processes find these functions by their names.
"""

import ctypes
import os
import resource
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import polars as pl
import pytest

from dedup_platform.replay import rewrite
from dedup_platform.sources import batches, files
from dedup_platform.sources.batches import Input
from dedup_platform.sources.contents import Contents, joined_contents
from dedup_platform.sources.files import files_of_group, read_group
from dedup_platform.sources.kafka.reading import Range, ranges_of_task, read_ranges
from dedup_platform.sources.text import json_lines, json_records
from dedup_platform.sources.text.json_records import json_content
from dedup_platform.sources.text.lines import Lines
from dedup_platform.stream import Stream

STAGES = ("framing", "content", "decoding")
"""Where a fault may come: while a file is cut into records, a record is parsed, or its event is made of it."""


def do(fault: str) -> None:
    """Whatever ends a process."""
    match fault:
        case "crash":
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.kill(os.getpid(), signal.SIGSEGV)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(3)
        case "loop":
            # In C: no handler of Python's gets a turn.
            ctypes.pythonapi.PySequence_Contains(ctypes.py_object(_Endless()), ctypes.py_object(0))
            sum(1 for _ in iter(int, 1))
        case "memory":
            bytearray(2**40)
        case "abort":
            os.abort()


class _Endless:
    def __iter__(self) -> Iterator[int]:
        return iter(int, 1)


def come_to(text: bytes | str, stage: str) -> None:
    """Do what a text says that is to be done at this stage."""
    said = text if isinstance(text, bytes) else text.encode()
    for fault in ("crash", "kill", "exit", "loop", "memory", "abort"):
        if f"{stage}:{fault}".encode() in said:
            do(fault)


@contextmanager
def faults() -> Iterator[None]:
    """Within it, records do what they say. Columns know nothing of single records: they come to all of them."""
    with pytest.MonkeyPatch.context() as patch:

        def content(payload: bytes) -> Any:
            come_to(payload, "content")
            return json_content(payload)

        def framed(lines: Lines) -> Iterator[Any]:
            for record in json_records.json_records(lines):
                come_to(record[0], "framing")
                yield record

        def together(lines: Lines, shapes: Any) -> Iterator[Any]:
            for payloads, contents, context in json_lines.json_batches(lines, shapes):
                for payload in payloads:
                    come_to(payload, "framing")
                    come_to(payload, "content")
                yield payloads, contents, context

        def joined(parts: Iterable[Contents]) -> Contents:
            contents = list(parts)
            for each in contents:
                for place in range(len(each)):
                    come_to(str(each[place]), "decoding")
            return joined_contents(contents)

        patch.setattr(json_records, "json_content", content)
        patch.setattr(files, "json_records", framed)
        patch.setattr(files, "json_batches", together)
        patch.setattr(batches, "joined_contents", joined)
        patch.setattr("dedup_platform.sources.messages.json_content", content)
        yield


def deadly_files(stream: Stream, groups: Sequence[Any], number: int, **more: Any) -> Iterator[Input]:
    """`files_of_group`, with faults."""
    with faults():
        yield from files_of_group(stream, groups, number, **more)


def read_deadly_files(stream: Stream, groups: Sequence[Any], number: int, **more: Any) -> Iterator[pl.DataFrame]:
    """`read_group`, with faults."""
    with faults():
        yield from read_group(stream, groups, number, **more)


def deadly_ranges(
    stream: Stream, tasks: Sequence[Sequence[Range]], options: Mapping[str, str], login: str | None, number: int
) -> Iterator[Input]:
    """`ranges_of_task`, with faults."""
    with faults():
        yield from ranges_of_task(stream, tasks, options, login, number)


def read_deadly_ranges(
    stream: Stream, tasks: Sequence[Sequence[Range]], options: Mapping[str, str], login: str | None, number: int
) -> Iterator[pl.DataFrame]:
    """`read_ranges`, with faults."""
    with faults():
        yield from read_ranges(stream, tasks, options, login, number)


def run_deadly_rewrite(*said: Any) -> bytes:
    """What a task of `rewrite` runs, with faults."""
    with faults():
        return rewrite._run(*said)
