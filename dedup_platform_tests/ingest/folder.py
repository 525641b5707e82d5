"""A stream of files whose times follow from their content: what is put back is as it was."""

import os
from pathlib import Path

from dedup_platform.platform import Platform
from dedup_platform.testing import HeldClock, Record, lay_out, light_platform, make_stream, record, utc
from dedup_platform.testing.delivery import write_file

EVENTS = "events"
NOW = HeldClock(utc("2030-01-01T00:00"))


class Folder:
    """The stream, and a platform that reads it without Spark."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.stream = make_stream(folder)
        self.platform = self.opened()

    def opened(self) -> Platform:
        return light_platform(self.home, self.stream, NOW)

    def put(self, name: str, records: int) -> None:
        """Write a file of so many records."""
        path = self.stream.files.root / name
        path.unlink(missing_ok=True)
        write_file(path, lay_out([_record(f"{name} {number}") for number in range(records)], name))
        os.utime(path, (1_700_000_000 + records,) * 2)

    def lose_control_database(self) -> None:
        """Also what the platform remembers."""
        for file in self.home.glob("control.db*"):
            file.unlink()
        self.platform = self.opened()


def _record(name: str) -> Record:
    return record("a", name, utc("2024-01-01T00:00"), utc("2024-01-02T00:00"))
