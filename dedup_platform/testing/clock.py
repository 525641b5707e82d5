"""Clocks that tests hold in their hand."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from unittest.mock import patch

from pyiceberg.table import snapshots, update


class HeldClock:
    """Stands still at `now` until it is told to move."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, by: timedelta) -> None:
        self.now += by

    def set(self, now: datetime) -> None:
        self.now = now


@contextmanager
def commits_ahead(by: timedelta) -> Iterator[None]:
    """While the block runs, the clock that PyIceberg commits by is ahead (or, if it is negative, behind)."""

    class _Time:
        @staticmethod
        def time() -> float:
            return time.time() + by.total_seconds()

    class _Datetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + by

    with patch.object(snapshots, "time", _Time), patch.object(update, "datetime", _Datetime):
        yield
