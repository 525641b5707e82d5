"""Files as a copy: objects of changes, and a log of manifests that says which of them count, and in which order.

A manifest is created under the next number, which only one process can do. So the log is the transaction: what no
manifest names does not count, and who opened the sink takes a number, after which nobody who slept can write his.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, astuple
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import polars as pl
from botocore.exceptions import BotoCoreError, ClientError

from dedup_platform.errors import SinkError, SinkTakenError
from dedup_platform.sinks.formats import ENDINGS, encoded
from dedup_platform.sinks.sink import Batch, Position, Refusal, SinkState, Target, Totals
from dedup_platform.sinks.storage import FolderStorage, S3Storage, Storage
from dedup_platform.sources.s3.access import S3Access
from dedup_platform.stream import FilesSink

MANIFESTS = "manifests"
_NEWEST = "newest"
"""Names a manifest that is there; only a hint, for those that look for the newest one."""


class FilesOfChanges:
    """The sink of one folder or one prefix on S3."""

    def __init__(self, target: Target, said: FilesSink, access: S3Access) -> None:
        self._target, self._said = target, said
        self._storage: Storage = S3Storage(access, *said.s3) if said.s3 else FolderStorage(said.folder)
        self._number = -1
        self._state: SinkState | None = None

    def open(self) -> SinkState:
        with self._failures_named():
            self._number, state = self._newest()
            # With a name of its own, so that an answer that was lost is not taken for somebody else's manifest.
            while not self._create(state, {"opened_by": uuid4().hex}):
                self._number, state = self._newest()
            self._state = state
            self._storage.put(_NEWEST, _name(self._number).encode())
        return state

    def write(self, batch: Batch) -> None:
        if self._state is None or batch.before != self._state.position:
            raise SinkTakenError(self._target.stream, self._target.sink)
        with self._failures_named():
            refused, totals = batch.still_refused(self._state.refused), self._state.totals.after(batch)
            state = SinkState(batch.after, refused, totals, datetime.now(UTC))
            kinds = {"begins": batch.begins, "completes": batch.completes, "forced": batch.forced}
            told = {**kinds, "objects": list(self._put(batch))}
            if not self._create(state, told):
                self.close()
                raise SinkTakenError(self._target.stream, self._target.sink)
            self._state = state

    def look(self) -> SinkState:
        with self._failures_named():
            return self._newest()[1]

    def close(self) -> None:
        self._state = None

    def _put(self, batch: Batch) -> Iterator[dict[str, Any]]:
        """Write an object for each version. The same changes again have the same name, and others have another one."""
        changes = batch.changes.with_columns(_forced=pl.lit(value=True)) if batch.forced else batch.changes
        for rows in changes.partition_by("_commit_version", maintain_order=True) if len(changes) else ():
            version, ordinal = rows[["_commit_version", "_change_ordinal"]].row(0)
            content = encoded(rows, self._said.format)
            digest = hashlib.sha256(content).hexdigest()
            name = f"changes/{version:012}-{ordinal:012}-{digest[:12]}.{ENDINGS[self._said.format]}"
            self._storage.put(name, content)
            yield {"name": name, "version": version, "rows": len(rows), "sha256": digest}

    def _create(self, state: SinkState, told: Mapping[str, Any]) -> bool:
        """Add a manifest to the log; False if somebody else did first."""
        position = astuple(state.position) if state.position else None
        refused = [asdict(each) for each in state.refused.values()]
        by = {"stream": self._target.stream, "sink": self._target.sink, "table": self._target.table}
        moved_at = state.moved_at.isoformat() if state.moved_at else None
        of_state = {"position": position, "refused": refused, "totals": asdict(state.totals), "moved_at": moved_at}
        content = json.dumps({**by, **of_state, **told}, indent=1).encode()
        if not self._storage.create(f"{MANIFESTS}/{_name(self._number + 1)}", content):
            return False
        self._number += 1
        return True

    def _newest(self) -> tuple[int, SinkState]:
        """The number of the newest manifest, -1 if there is none, and what it says."""
        hint = (self._storage.get(_NEWEST) or b"").decode("ascii", "replace")
        # What the hint names may be gone, or never have been.
        is_there = _is_manifest(hint) and self._storage.get(f"{MANIFESTS}/{hint}") is not None
        after = hint if is_there else ""
        names = [after, *filter(_is_manifest, self._storage.names(MANIFESTS, after))]
        content = self._storage.get(f"{MANIFESTS}/{names[-1]}") if names[-1] else None
        if content is None:
            return -1, SinkState()
        try:
            found = json.loads(content)
            of, state = f"{found['stream']}.{found['table']}", _state(found)
        except (ValueError, LookupError, TypeError):
            raise self._of_others(f"{MANIFESTS}/{names[-1]} is no manifest of ours; take it away") from None
        if of != f"{self._target.stream}.{self._target.table}":
            raise self._of_others(f"it has changes of {of}; empty it")
        return int(names[-1].partition(".")[0]), state

    def _of_others(self, what: str) -> SinkError:
        reason = f"{self._said.path} is taken: {what}, or name another path"
        return SinkError(self._target.stream, self._target.sink, reason, lasting=True)

    @contextmanager
    def _failures_named(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ClientError, BotoCoreError) as error:
            self.close()
            raise SinkError(self._target.stream, self._target.sink, str(error)) from error


def _state(manifest: Mapping[str, Any]) -> SinkState:
    position = Position(*manifest["position"]) if manifest["position"] else None
    refused = (Refusal(**each) for each in manifest["refused"])
    moved_at = datetime.fromisoformat(manifest["moved_at"]) if manifest.get("moved_at") else None
    return SinkState(position, {each.key: each for each in refused}, Totals(**manifest.get("totals", {})), moved_at)


def _is_manifest(name: str) -> bool:
    """Whether it is one of ours: others may put theirs beside them."""
    return re.fullmatch(r"[0-9]{12}\.json", name) is not None


def _name(number: int) -> str:
    return f"{number:012}.json"
