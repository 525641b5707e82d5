"""A click stream made up from its sessions: visits first, then the clicks inside, then what the network does to them.

Labels are counted where things are decided: a copy is counted where it is sent, a visit where it ends. Shares and
delays are made up, only their kinds matter. There is one file for each hour of receipt.
"""

from collections import Counter, defaultdict
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random

from dedup_platform.demo.files import FOLDER, line, write_file
from dedup_platform.demo.truth import Click, LateChances, Truth, Visit

TIMEOUT = timedelta(minutes=30)
GRACE = timedelta(hours=1)
DAY = timedelta(days=1)
RESTAMP = timedelta(minutes=10)
MICROSECOND = timedelta(microseconds=1)
ALL_ARRIVED = timedelta(days=3)
PAGES = ("/", "/search", "/product", "/product/reviews", "/cart", "/checkout")


def generate(folder: Path, seed: int = 7, events: int = 200_000, days: int = 7, today: date | None = None) -> Truth:
    """Write the click files below `folder` and say what is in them.

    At least `events` different events happen on the `days` days that end three days before `today` (UTC; absent: this
    day); all have arrived when `today` begins. The same arguments write the same bytes. ValueError if days < 5.
    """
    if days < 5:
        raise ValueError(f"days = {days}: a click stream needs 5 days or more, for a late file to reach old ones")
    now = datetime.combine(today or datetime.now(UTC).date(), time(), UTC)
    clicks = Clicks(Random(seed), now - ALL_ARRIVED - days * DAY, days)
    while clicks.events < events or clicks.chances is None:
        clicks.one_user()
    clicks.rejects()
    clicks.write(folder / FOLDER)
    return clicks.truth(now, clicks.chances)


class Clicks:
    """The clicks so far: lines by file, labels by name."""

    def __init__(self, random: Random, start: datetime, days: int) -> None:
        self.random = random
        self.start = start
        self.end = start + days * DAY
        self.events = 0
        self.users = 0
        self.labels: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.cents = 0
        self.visits: set[Visit] = set()
        self.extend: Visit | None = None
        self.bridge: tuple[Visit, Visit] | None = None
        self.kept: Visit | None = None
        self.repeat: Click | None = None
        self.lines: dict[str, list[tuple[datetime, str]]] = defaultdict(list)

    def one_user(self) -> None:
        """A user's visits over all days, one after the other; now and then a click of nobody."""
        self.users += 1
        user = f"u{self.users:06}"
        begin = self.start + self.random.random() * DAY
        previous: tuple[Visit, datetime] | None = None
        while begin < self.end:
            visit, first_received = self.visit(user, begin)
            if previous is not None:
                self.notice_chances(*previous, visit, first_received)
            previous = visit, first_received
            begin = visit.ended_at + self.pause()
            if self.random.random() < 0.1:
                self.click(None, visit.ended_at)

    def visit(self, user: str, begin: datetime) -> tuple[Visit, datetime]:
        """One visit: its label, and when its first click to arrive was received."""
        occurred, end, received = begin, begin, [self.click(user, begin)]
        while self.random.random() < 0.89 and (occurred := occurred + self.gap()) < self.end:
            received.append(self.click(user, occurred))
            end = occurred
        label = Visit(user, begin, end, len(received))
        self.visits.add(label)
        return label, min(received)

    def gap(self) -> timedelta:
        """Between two clicks of a visit: at most the timeout, sometimes exactly."""
        luck = self.random.random()
        if luck < 0.01:
            return TIMEOUT
        if luck < 0.02:
            return timedelta()
        return min(timedelta(seconds=self.random.expovariate(1 / 90)), TIMEOUT)

    def pause(self) -> timedelta:
        """Between two visits: longer than the timeout, sometimes by a microsecond, sometimes short enough to bridge."""
        luck = self.random.random()
        if luck < 0.02:
            return TIMEOUT + MICROSECOND
        if luck < 0.07:
            return timedelta(minutes=self.random.uniform(35, 55))
        return TIMEOUT + MICROSECOND + timedelta(hours=self.random.expovariate(1 / 9))

    def click(self, user: str | None, occurred: datetime) -> datetime:
        """An event, its delivery and perhaps deliveries of copies; returns when it was first received."""
        page = self.random.choice(PAGES)
        amount = self.random.randint(100, 50_000) if page == "/checkout" else None
        event = Click(user, f"{self.random.getrandbits(64):016x}", occurred, page, amount)
        received = occurred + self.delay()
        self.events += 1
        self.cents += amount or 0
        self.labels["without_user"] += user is None
        self.labels["late_events"] += received > midnight(occurred) + DAY + GRACE
        self.send(event, received)
        if self.random.random() < 0.03:
            self.duplicate(event, received)
        elif self.bridge and user not in (None, self.bridge[0].user) and occurred >= self.start + 3 * DAY:
            self.repeat = self.repeat or event
        self.restamp_near_midnight(event, received)
        return received

    def duplicate(self, event: Click, received: datetime) -> None:
        """The same event again, received later: most are exact, some contradict it."""
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            conflict = self.random.random() < 0.1
            again = event._replace(amount=(event.amount or 0) + 1) if conflict else event
            self.labels["duplicates"] += 1
            self.labels["conflicts"] += conflict
            self.send(again, received + self.later())

    def restamp_near_midnight(self, event: Click, received: datetime) -> None:
        """A retry that a device stamps anew lies in the neighbouring partition: the same id, at another time."""
        stamped = event.occurred_at + self.random.choice((RESTAMP, -RESTAMP))
        other_day = midnight(stamped) != midnight(event.occurred_at)
        if other_day and self.start <= stamped < self.end and self.random.random() < 0.3:
            for label in ("duplicates", "conflicts", "across_midnight"):
                self.labels[label] += 1
            self.send(event._replace(occurred_at=stamped), max(received, stamped) + self.later())

    def delay(self) -> timedelta:
        """From the click to its receipt: seconds, or the hours and days that a device was offline."""
        luck = self.random.random()
        longest = 5 if luck < 0.95 else 3_600 if luck < 0.985 else 8 * 3_600 if luck < 0.997 else 2 * 86_400
        return timedelta(seconds=self.random.uniform(0.01, longest))

    def later(self) -> timedelta:
        return timedelta(seconds=self.random.uniform(0.5, self.random.choice((5, 600, 6 * 3_600))))

    def rejects(self) -> None:
        """Lines that cannot become events; each has one fault."""
        for _ in range(max(self.events // 500, 20)):
            received = self.start + self.random.random() * (self.end - self.start)
            event = Click("u000001", f"{self.random.getrandbits(64):016x}", received, "/", None)
            faults = {
                "malformed_record": line(event, received)[: self.random.randint(1, 60)],
                "missing_event_id": line(event._replace(event_id=""), received),
                "event_time_in_future": line(event._replace(occurred_at=received + 30 * DAY), received),
                "before_start": line(event._replace(occurred_at=self.start - MICROSECOND), received),
                "unreadable_event_time": line(event, received).replace('"occurred_at": "', '"occurred_at": "about '),
            }
            reason = self.random.choice(list(faults))
            self.rejected[reason] += 1
            self.put(faults[reason], received)

    def send(self, event: Click, received: datetime) -> None:
        self.put(line(event, received), received)

    def put(self, text: str, received: datetime) -> None:
        self.lines[f"clicks-{received:%Y-%m-%d-%H}.json.gz"].append((received, text))

    def notice_chances(self, before: Visit, before_received: datetime, after: Visit, after_received: datetime) -> None:
        """Remember the first visits that a late click can extend (second day) and, of another user, bridge (third)."""
        day = (before.started_at - self.start) // DAY
        if midnight(before.started_at) != midnight(after.ended_at + TIMEOUT):
            return
        pause = after.started_at - before.ended_at
        if day == 1 and pause > 2 * TIMEOUT:
            self.extend = self.extend or before
        other = self.extend is not None and self.extend.user != before.user
        if day == 2 and TIMEOUT < pause <= 2 * TIMEOUT and other and self.bridge is None:
            self.bridge = before, after
            self.kept = before if before_received < after_received else after

    def write(self, folder: Path) -> None:
        for name, lines in self.lines.items():
            write_file(folder / name, lines)

    def truth(self, now: datetime, chances: LateChances) -> Truth:
        labels, rejected = self.labels, sum(self.rejected.values())
        return Truth(
            start=self.start,
            now=now,
            records=self.events + labels["duplicates"] + rejected,
            rejected=dict(self.rejected),
            deduplicated=self.events,
            duplicates=labels["duplicates"],
            conflicts=labels["conflicts"],
            across_midnight=labels["across_midnight"],
            late_events=labels["late_events"],
            without_user=labels["without_user"],
            amount=Decimal(self.cents).scaleb(-2),
            sessions=frozenset(self.visits),
            chances=chances,
        )

    @property
    def chances(self) -> LateChances | None:
        if self.extend and self.bridge and self.kept and self.repeat:
            return LateChances(self.extend, self.bridge, self.kept, self.repeat)
        return None


def midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)
