"""A clock that tests hold in their hand."""

from datetime import datetime, timedelta


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
