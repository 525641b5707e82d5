"""Fragments that were made while their events were in memory, before anybody asked for them."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.manifest import DataFile

from dedup_platform.planning.cells import Cell
from dedup_platform.recompute.chunks import CellFiles
from dedup_platform.recompute.rebuilt import Rebuilt
from dedup_platform.recompute.tasks import CellResult
from dedup_platform.rules.fingerprints import fingerprint
from dedup_platform.stream import Stream
from dedup_platform.tables import SESSION_FRAGMENTS

PREBUILT_SECONDS = 3600
"""They are published within so long, or made again: no snapshot names them, so upkeep takes them for orphans after a
day at the earliest."""


@dataclass(frozen=True)
class _Kept:
    """Those of one cell."""

    written: CellResult
    events: frozenset[str]
    """Paths of the files that hold their events."""
    old: frozenset[str]
    """Paths of the files of the fragments that they were compared with."""
    made: float
    """When, by the process's own clock, in seconds."""


class PrebuiltFragments:
    """Remembers, for each stream and its settings, what the last run made. To forget it costs making it again."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], dict[Cell, _Kept]] = {}

    def keep(self, stream: Stream, events: Rebuilt, fragments: Rebuilt) -> None:
        """Remember the fragments that were made of these events, instead of all of this stream before."""
        files = {each.cell: _paths([each.file] if each.file else []) for each in events.cells}
        now = time.monotonic()
        self._kept[_settings(stream)] = {
            each.cell: _Kept(each, files[each.cell], _paths(fragments.old.get(each.cell, ())), now)
            for each in fragments.cells
        }

    def take(self, stream: Stream, events: CellFiles, old: CellFiles) -> dict[Cell, CellResult]:
        """Those remembered that still hold: made of just these events and compared with just these fragments."""
        oldest = time.monotonic() - PREBUILT_SECONDS
        return {
            cell: kept.written
            for cell, kept in self._kept.pop(_settings(stream), {}).items()
            if kept.made > oldest
            and kept.events == _paths(events.get(cell, ()))
            and kept.old == _paths(old.get(cell, ()))
        }


def _settings(stream: Stream) -> tuple[str, str]:
    return stream.name, fingerprint(stream, SESSION_FRAGMENTS)


def _paths(files: Iterable[DataFile]) -> frozenset[str]:
    return frozenset(file.file_path for file in files)
