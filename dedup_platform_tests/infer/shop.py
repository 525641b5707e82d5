"""Visits to a shop whose truth is known, written down as different collectors would."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

START = datetime(2024, 3, 29, 6, 0, tzinfo=UTC)
PARIS = ZoneInfo("Europe/Paris")
VISITORS = 60


@dataclass(frozen=True)
class Click:
    """One event. Within a visit less than ten minutes lie between two, between visits more than three hours."""

    number: int
    visitor: int
    at: datetime
    page: int


def clicks() -> tuple[list[Click], int]:
    """All events in order of time, over the days in which summer time begins, and how many visits they are."""
    random, found, visits = Random(5), list[Click](), 0
    for visitor in range(VISITORS):
        at = START + timedelta(hours=random.randrange(20))
        for _ in range(random.randint(2, 4)):
            visits += 1
            for _ in range(random.randint(2, 6)):
                found.append(Click(len(found), visitor, at, random.randrange(9)))
                at += timedelta(seconds=random.randint(5, 590))
            at += timedelta(hours=random.randint(3, 15))
    return sorted(found, key=lambda click: click.at), visits


def write_csv(file: Path, events: list[Click]) -> None:
    """Semicolons, spaces in the header, times on the wall in Paris; every tenth line stands there twice."""
    lines = ["Hit No;User Name; Local Time ;Page Title;Price"]
    for each in events:
        at = each.at.astimezone(PARIS).strftime("%d.%m.%Y %H:%M:%S")
        line = f"{each.number:05};visitor {each.visitor};{at};Page {each.page};{each.number / 4:.2f}"
        lines += [line] * (1 + (each.number % 10 == 0))
    file.write_text("\n".join(lines) + "\n", "utf-8")


def write_segment(file: Path, events: list[Click]) -> None:
    """Batches of nested objects; every tenth event is sent twice, and every third visitor never logs in."""
    sent = [_segment(each, copy) for each in events for copy in range(1 + (each.number % 10 == 0))]
    batches = [
        {"batch": sent[first : first + 20], "sentAt": sent[first]["timestamp"], "writeKey": "k"}
        for first in range(0, len(sent), 20)
    ]
    file.write_text("".join(json.dumps(each) + "\n" for each in batches), "utf-8")


def _segment(each: Click, copy: int) -> dict[str, Any]:
    login = {"userId": f"user-{each.visitor}"} if each.visitor % 3 else {}
    return login | {
        "type": "track",
        "event": ("Viewed", "Added", "Ordered")[each.page % 3],
        "messageId": f"{each.number:08x}-0000-4000-8000-{each.number:012x}",
        "anonymousId": f"browser-{each.visitor}",
        "timestamp": stamp(each.at),
        "originalTimestamp": stamp(each.at + timedelta(seconds=2)),
        "receivedAt": stamp(each.at + timedelta(seconds=3 + 60 * copy)),
        "context": {"page": {"path": f"/{each.page}"}, "library": {"name": "analytics.js"}},
        "properties": {"revenue": each.number / 4, "products": [{"sku": "A-1"}]},
    }


def stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def sessions_in(times: dict[str, list[datetime]], timeout: timedelta) -> int:
    """How many sessions events are, by their entity: counted the plainest way."""
    return sum(1 for each in times.values() for gap in _gaps(sorted(each)) if gap is None or gap > timeout)


def _gaps(times: list[datetime]) -> Iterator[timedelta | None]:
    yield None
    yield from (after - before for before, after in pairwise(times))
