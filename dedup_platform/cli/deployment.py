"""What all commands share: the settings and streams that they work on, and what comes of it for each stream."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

import typer
from rich.text import Text

from dedup_platform import errors
from dedup_platform.cli.console import err
from dedup_platform.cli.exits import message_of
from dedup_platform.cli.process import ON_INTERRUPT

if TYPE_CHECKING:
    from pathlib import Path

    from dedup_platform.platform import Platform
    from dedup_platform.settings import Settings
    from dedup_platform.stream import Stream

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What came of a command for each stream, by its name, and the failures of the others."""

    done: dict[str, T]
    failures: list[Exception]

    def end(self) -> None:
        """Fail as the first did that failed, once the others are told."""
        for failure in self.failures[1:]:
            err.print(Text(f"error: {message_of(failure)}"), soft_wrap=True)
        if self.failures:
            raise self.failures[0]


@dataclass(frozen=True)
class Deployment:
    """The settings and streams that a command works on, and what is wrong with the stream files that are left out."""

    settings: Settings
    streams: dict[str, Stream]
    broken: tuple[errors.StreamFileError, ...]

    @classmethod
    def of(cls, path: Path | None) -> Deployment:
        from dedup_platform.stream import read_streams

        settings, found = cls.place(path)
        files = read_streams(found)
        return cls(settings, files.streams, tuple(files.broken.values()))

    @staticmethod
    def place(path: Path | None) -> tuple[Settings, Path]:
        """The settings, and where the stream files are: SettingsError if nothing says that."""
        from dedup_platform.settings import load_settings

        settings = load_settings()
        if settings.spark_remote:
            ON_INTERRUPT.append(_leave_spark)
        found = path or settings.stream_files
        if found is None:
            raise errors.SettingsError(
                "there are no stream files: give --streams PATH, set DEDUP_PLATFORM_STREAMS, or go to a folder with a "
                "folder `streams` in it; `dedup-platform init DIR` makes one"
            )
        return settings, found

    def platform(self) -> Platform:
        from dedup_platform.platform import Platform
        from dedup_platform.spark.session import spark_session

        return Platform(self.settings, self.streams, spark=lambda: spark_session(self.settings))

    def for_each(self, name: str | None, act: Callable[[Stream], T], at_once: int = 1) -> Outcome[T]:
        """Do it for the named stream, or for all: one stream's trouble, or its file's, is not another's.

        Of several streams, so many are worked on `at_once`, each in a thread.
        """
        outcome = Outcome[T]({}, [] if name else list(self.broken))
        streams = self.chosen(name)
        with ThreadPoolExecutor(at_once) if min(at_once, len(streams)) > 1 else nullcontext() as threads:
            results = [threads.submit(act, each).result if threads else partial(act, each) for each in streams]
            for stream, result in zip(streams, results, strict=True):
                try:
                    outcome.done[stream.name] = result()
                except Exception as error:
                    outcome.failures.append(error)
        return outcome

    def chosen(self, name: str | None) -> list[Stream]:
        """The named stream, or all whose files are right."""
        if name is not None and name not in self.streams:
            # It may be what one of them was meant to say.
            for problem in (problem for each in self.broken for problem in each.problems):
                err.print(problem, markup=False, soft_wrap=True)
            raise errors.UnknownStreamError(name, self.streams)
        return [self.streams[name]] if name else list(self.streams.values())

    def of_topic(self, name: str) -> Stream:
        """The named stream, which must read a topic."""
        return self._of_kind(name, "kafka")

    def of_files(self, name: str) -> Stream:
        """The named stream, which must read files."""
        return self._of_kind(name, "files")

    def _of_kind(self, name: str, kind: str) -> Stream:
        [stream] = self.chosen(name)
        if stream.source.kind != kind:
            raise typer.BadParameter(f"{name} has a source of kind {stream.source.kind}; this is about kind {kind}")
        return stream


def _leave_spark() -> None:
    """A server would go on with what nobody waits for any more."""
    from dedup_platform.spark.connect import leave_servers

    leave_servers()


def ordinals(stream: Stream, keys: str) -> range:
    """The partitions of `FIRST..LAST`, or of one key alone."""
    first, _, last = keys.partition("..")
    try:
        ends = [stream.partitions.ordinal_of(key) for key in (first, last or first)]
    except ValueError as error:
        raise typer.BadParameter(f"{keys}: {error}; write FIRST..LAST or one key") from None
    if ends[0] > ends[1]:
        raise typer.BadParameter(f"{keys}: the first partition comes after the last one")
    return range(ends[0], ends[1] + 1)
