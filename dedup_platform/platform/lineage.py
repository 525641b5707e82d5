"""Tells OpenLineage what commits read and wrote, as far as nobody did; whoever commits neither fails nor waits for it.

As with feeds, nothing is told when a table is written: what is told follows from the tables' snapshots. Whoever died
before telling, or found nobody who listens, is caught up with by the next one.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Thread
from typing import TYPE_CHECKING

import sqlalchemy as sa

from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.snapshots import ancestry
from dedup_platform.ledger import ToldCommits, UpTo
from dedup_platform.settings import ENV_PREFIX, Settings
from dedup_platform.stream import Stream

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

_LOG = logging.getLogger(__name__)
VARIABLE = f"{ENV_PREFIX}LINEAGE_NAMESPACE"
SECONDS = 5.0
"""How long whoever has committed waits, at most, until what is new is told."""
_SHARE_OF_SENDING = 0.8
"""Of that time; the rest is for what a transport has not sent yet."""
TOO_SLOW = "it took too long"
PAUSE = 300.0
"""Seconds for which a process tells nothing after it could not."""
MOST = 500
"""So many commits are told at a time, should there be many."""


@dataclass(frozen=True)
class _Told:
    """An event, and how far its table is told with it."""

    table: str
    up_to: UpTo
    event: "RunEvent"


class Lineage:
    """Tells of the commits of any stream."""

    def __init__(self, settings: Settings, catalog: Catalog, engine: Callable[[], sa.Engine]) -> None:
        self._settings, self._catalog = settings, catalog
        self._known = ToldCommits(engine)
        self._paused_until = 0.0
        self._has_complained = False

    def tell(self, stream: Stream) -> None:
        """Tell of all commits to a stream's tables that were not told; of what fails the log tells, once."""
        if self._settings.lineage_namespace is None or time.monotonic() < self._paused_until:
            return
        try:
            trouble = self._tell(stream)
        except ModuleNotFoundError:
            trouble = "openlineage-python is not installed: pip install 'dedup_platform[lineage]'"
        except Exception as error:
            # Whatever it is: the commit is done, and is none the worse for it.
            trouble = type(error).__name__
        if trouble:
            self._paused_until = time.monotonic() + PAUSE
            level = logging.DEBUG if self._has_complained else logging.WARNING
            _LOG.log(level, "%s: commits could not be told to OpenLineage, a later run does so: %s", VARIABLE, trouble)
        self._has_complained = bool(trouble)

    def _tell(self, stream: Stream) -> str:
        """Tell what is new; returns what was wrong, if anything was."""
        waiting = list(islice(self._waiting(stream), MOST))
        if not waiting:
            return ""
        telling = _Telling([each.event for each in waiting])
        telling.start()
        telling.join(SECONDS)
        told = {each.table: each.up_to for each in waiting[: telling.done]}
        if told:
            self._known.note(stream.name, told)
        return telling.trouble or (TOO_SLOW if telling.is_alive() else "")

    def _waiting(self, stream: Stream) -> Iterator[_Told]:
        """What nobody told, table by table, oldest first."""
        from dedup_platform.platform.lineage_events import JOBS, event, is_told

        known = self._known.of(stream.name)
        found = {name: self._catalog.load(stream.name, name) for name in JOBS}
        loaded = {name: table for name, table in found.items() if table}
        for name, table in loaded.items():
            uuid, up_to = str(table.metadata.table_uuid), known.get(name)
            # By number: the commit that was told last may have expired since.
            seen = up_to.sequence if up_to and up_to.uuid == uuid else 0
            newer = [each for each in ancestry(table) if (each.sequence_number or 0) > seen and is_told(each)]
            for snapshot in reversed(newer):
                told = UpTo(uuid, snapshot.sequence_number or 0)
                yield _Told(name, told, event(self._settings, stream, name, snapshot, loaded))


class _Telling(Thread):
    """Sends events in a thread of its own, which whoever started it leaves after a while."""

    def __init__(self, events: "Sequence[RunEvent]") -> None:
        super().__init__(daemon=True)
        self._events = events
        self.done = 0
        """So many events, from the first on, arrived."""
        self.trouble = ""

    def run(self) -> None:
        retries = logging.getLogger("urllib3.connectionpool")
        retries.addFilter(self._is_of_others)
        try:
            self._send()
        except Exception as error:
            # What these say may hold the address, and that a password.
            self.trouble = self.trouble or type(error).__name__
        finally:
            retries.removeFilter(self._is_of_others)

    def _send(self) -> None:
        from openlineage.client import OpenLineageClient

        if "OPENLINEAGE_CLIENT_LOGGING" not in os.environ:
            # One word of ours is enough, and theirs holds addresses.
            logging.getLogger("openlineage").setLevel(logging.CRITICAL)
        until, sent = time.monotonic() + SECONDS * _SHARE_OF_SENDING, 0
        client = OpenLineageClient()
        if client.transport.kind == "console" and not client.config.transport:
            # It would print what nobody asked for among what commands print.
            self.trouble = "nothing says where to: see OpenLineage's OPENLINEAGE_URL and openlineage.yml"
            return
        if client.transport.kind == "noop":
            self.trouble = "OPENLINEAGE_DISABLED is true"
            return
        try:
            for event in self._events:
                if time.monotonic() > until:
                    self.trouble = TOO_SLOW
                    break
                client.emit(event)
                sent += 1
        finally:
            # What a transport keeps to send it later has arrived only when it is closed.
            if client.close(SECONDS * (1 - _SHARE_OF_SENDING)):
                self.done = sent

    def _is_of_others(self, record: logging.LogRecord) -> bool:
        return record.thread != self.ident
