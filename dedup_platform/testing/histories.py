"""Random histories of deliveries: what can go wrong between an event and its arrival, for many entities at once.

Each entity lives through one plot of its own, so that hundreds of histories fit into one job. A plot is a short list of
(event id, event time); what is random is the rest: order of arrival, order of delivery, batches, files, redeliveries.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import accumulate
from random import Random
from typing import Literal

from dedup_platform.testing.oracle import Rules, group
from dedup_platform.testing.records import Record, record

TICK = timedelta(microseconds=1)
DAY = timedelta(days=1)
Draft = tuple[str, datetime]
Order = Literal["any", "told", "backwards"]
Plot = Callable[[Random, Rules, datetime], list[Draft]]


@dataclass(frozen=True)
class History:
    """Batches of records in order of delivery; the records of a batch lie in whole files. All have arrived by `now`."""

    batches: Sequence[Sequence[Record]]
    now: datetime

    @property
    def records(self) -> list[Record]:
        return [each for batch in self.batches for each in batch]


def histories(seed: int, n_entities: int, rules: Rules, start: datetime, batches: int = 6) -> History:
    """One history for each of `n_entities`, told together in `batches` batches; no event lies before `start`.

    Every plot occurs when `n_entities` is 2 * len(PLOTS) or more.
    """
    random = Random(seed)
    midnight = start + (1 + (rules.window + 8 * rules.timeout + 4 * rules.partition) // DAY) * DAY
    delivered: list[list[Record]] = [[] for _ in range(batches)]
    for number in range(n_entities):
        plot, told = PLOTS[number % len(PLOTS)]
        order = random.choice((told, "any"))
        boundary = midnight + random.choice((0, 0, 0, 1)) * rules.partition
        arrivals = arrive(random, order, plot(random, rules, boundary), f"e{number:04}")
        for batch, each in zip(deliver(random, order, len(arrivals), batches), arrivals, strict=True):
            delivered[batch].append(each)
    filed = [in_files(random, number, records) for number, records in enumerate(delivered)]
    return History(filed, max(each.arrival_time for batch in filed for each in batch) + DAY)


def rebatched(history: History, seed: int, batches: int) -> History:
    """The same files in another order and in other batches."""
    random = Random(seed)
    files = list(group(history.records, lambda each: each.source).values())
    random.shuffle(files)
    cut = [[each for file in files[n::batches] for each in file] for n in range(batches)]
    return History(cut, history.now)


# What the network does


def arrive(random: Random, order: Order, drafts: list[Draft], entity: str) -> list[Record]:
    """The drafts as records in order of arrival, some of them more than once, with equal arrival times among them."""
    if order == "any" and random.random() < 0.5:
        random.shuffle(drafts)
    anonymous = random.random() < 0.1
    records: list[Record] = []
    clock = drafts[0][1]
    for event_id, time in drafts:
        clock = max(clock, time) + random.choice((timedelta(), TICK, timedelta(seconds=5), timedelta(hours=7)))
        name = f"{entity} {event_id}" if anonymous else event_id
        records.append(record(None if anonymous else entity, name, time, clock, **attributes(random)))
    for sent in random.choices(records, k=random.choice((0, 0, 1, 2, 3))):
        records.append(again(random, sent, clock))
    return records


def again(random: Random, sent: Record, clock: datetime) -> Record:
    """The same line once more, or a retry that was received later, or one that contradicts the first."""
    luck = random.random()
    if luck < 0.4:
        return sent
    if luck < 0.8:
        return replace(sent, arrival_time=max(clock, sent.arrival_time) + random.choice((TICK, DAY)))
    return replace(sent, arrival_time=max(clock, sent.arrival_time) + TICK, attributes=attributes(random))


def attributes(random: Random) -> dict[str, object]:
    return {
        "page": random.choice((None, "/", "/cart", "/checkout")),
        "amount": random.choice((None, *map(Decimal, ("0.10", "0.20", "0.30", "-7.25", "12345678.90")))),
        "quantity": random.choice((None, 0, 1, -5, 2**40)),
    }


def deliver(random: Random, order: Order, count: int, batches: int) -> list[int]:
    """The batch of each arrival; where the order is told, one batch each as far as they reach."""
    scattered = [random.randrange(batches) for _ in range(count)]
    if order == "any":
        return scattered
    apart = random.sample(range(batches), count) if count <= batches else scattered
    return sorted(apart, reverse=order == "backwards")


def in_files(random: Random, batch: int, records: Iterable[Record]) -> list[Record]:
    """A batch spread over up to three files, whose names say nothing about the order of delivery."""
    names = [f"{random.randrange(1000):03}-{batch:02}-{n}.json" for n in range(random.randint(1, 3))]
    shuffled = list(records)
    random.shuffle(shuffled)
    offsets = dict.fromkeys(names, 0)
    filed = []
    for each in shuffled:
        name = random.choice(names)
        filed.append(replace(each, source=name, source_offset=offsets[name]))
        offsets[name] += 1
    return filed


# What happens


def walk(random: Random, rules: Rules, midnight: datetime) -> list[Draft]:
    """Steps of every interesting length around midnight, ids that come back."""
    lengths = [timedelta(), TICK, rules.timeout / 3, rules.timeout, rules.timeout + TICK, rules.partition / 2]
    steps = [random.choice(lengths) for _ in range(random.randint(2, 8))]
    start = midnight - random.choice((timedelta(), TICK, rules.timeout, rules.partition))
    return [(random.choice("abcdefgh"), time) for time in moments(start, steps)]


def exact_gaps(random: Random, rules: Rules, midnight: datetime) -> list[Draft]:
    """Gaps of exactly the timeout and of a microsecond more, in turn or as it comes."""
    gaps = [rules.timeout + random.choice((timedelta(), TICK)) for _ in range(4)]
    return named(moments(midnight - 2 * rules.timeout, gaps))


def late_bridge(random: Random, rules: Rules, midnight: datetime) -> list[Draft]:
    """Two sessions, then the event between them, exactly in the middle: it joins them or just does not."""
    sessions = [midnight - rules.timeout, midnight + rules.timeout + random.choice((-TICK, timedelta(), TICK))]
    random.shuffle(sessions)
    return named([*sessions, midnight])


def to_the_day_before(random: Random, rules: Rules, midnight: datetime) -> list[Draft]:
    """A session that begins after midnight, then events that move its start to the partition before, and further."""
    after = midnight + random.choice((timedelta(), rules.timeout / 3))
    back = [after - rules.timeout * n for n in range(1, random.randint(2, 5))]
    return named([after, after + rules.timeout / 2, *back])


def winner_next_door(random: Random, rules: Rules, midnight: datetime) -> list[Draft]:
    """Copies on either side of midnight, the window or a microsecond more apart, and a session on each side."""
    side = random.choice((-TICK, TICK, rules.window / 2))
    far = side - rules.window if side > timedelta() else side + rules.window
    beyond = random.choice((timedelta(), TICK, -TICK))
    copies = [("x", midnight + side), ("x", midnight + far + beyond)]
    random.shuffle(copies)
    return [*copies, *named([midnight - rules.timeout / 2, midnight + rules.timeout / 2])]


def long_chain(random: Random, rules: Rules, midnight: datetime) -> list[Draft]:
    """Copies of copies: each within the window of the next, all together far longer than it."""
    step = random.choice((rules.window, rules.window / 2 + TICK, rules.window + TICK))
    chain = [("x", midnight + step * n) for n in range(random.randint(3, 5))]
    if random.random() < 0.5:
        random.shuffle(chain)
    return chain


def over_empty_partitions(random: Random, rules: Rules, midnight: datetime) -> list[Draft]:
    """A long session in steps of the timeout, which may be longer than a partition."""
    step = rules.timeout - random.choice((timedelta(), TICK, rules.timeout / 8))
    times = [midnight - TICK + step * n for n in range(-2, random.randint(2, 5))]
    return named(random.sample(times, len(times)))


def at_midnight(random: Random, rules: Rules, midnight: datetime) -> list[Draft]:
    """The last microsecond of a partition, its end, the first microsecond of the next; and all of them at once."""
    end = midnight + rules.partition
    boundaries = [midnight - TICK, midnight, midnight + TICK, end - TICK, end]
    return [(random.choice("abcdefgh"), time) for time in random.choices(boundaries, k=6)]


def deposed(random: Random, rules: Rules, midnight: datetime) -> list[Draft]:
    """A session whose bridge is beaten by a copy beyond it, which may be read last though it arrived first.

    Then the session falls apart though nothing is new in the partition where it starts.
    """
    away = random.choice((1, 1, -1)) * rules.window
    return [("x", midnight + away), ("x", midnight), *named([midnight - rules.timeout, midnight + rules.timeout])]


def moments(start: datetime, gaps: Iterable[timedelta]) -> list[datetime]:
    """`start`, and a moment after each gap."""
    return list(accumulate(gaps, lambda time, gap: time + gap, initial=start))


def named(times: Iterable[datetime]) -> list[Draft]:
    return [(f"{number}", time) for number, time in enumerate(times)]


PLOTS: tuple[tuple[Plot, Order], ...] = (
    (walk, "any"),
    (exact_gaps, "told"),
    (late_bridge, "told"),
    (to_the_day_before, "told"),
    (winner_next_door, "backwards"),
    (long_chain, "backwards"),
    (over_empty_partitions, "told"),
    (at_midnight, "any"),
    (deposed, "backwards"),
    (deposed, "backwards"),
)
"""Each plot, and the order that makes it what it is: events arrive and are read as told, or are read backwards."""
