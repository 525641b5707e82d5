"""The program of a life: what happens, in which order, and what comes in between."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Literal, NamedTuple

Fate = Literal["", "killed", "meanwhile"]
"""`killed`: the process dies at one of its steps; `meanwhile`: another process does something before it publishes."""

WEIGHTS = {
    "deliver": 3,
    "ingest": 14,
    "planned": 10,
    "stale": 7,
    "whole": 2,
    "repair": 12,
    "settings": 3,
    "buckets": 2,
    "lose": 3,
    "maintain": 3,
    "replay": 2,
    "redecode": 4,
    "accept": 1,
    "start": 1,
    "fields": 1,
    "clock": 2,
    "sessions": 2,
}
"""Operations (`Life.op_NAME`), and how often each comes."""


LENGTH = 16
"""Operations in a life, behind its beginning."""


class Op(NamedTuple):
    """One operation of a life; its details follow from the seed alone, so others can be left out around it."""

    name: str
    seed: int
    fate: Fate = ""


def program(seed: int, length: int = LENGTH) -> list[Op]:
    """A random life."""
    random = Random(seed)
    begin = random.choice((["deliver"], ["deliver", "ingest", "repair"], ["deliver", "ingest", "repair"]))
    names = random.choices([*WEIGHTS], [*WEIGHTS.values()], k=length)
    fates: list[Fate] = random.choices(("", "killed", "meanwhile"), (5, 3, 2), k=length)
    beginning = [Op(name, random.randrange(2**32)) for name in begin]
    return beginning + [Op(name, random.randrange(2**32), fate) for name, fate in zip(names, fates, strict=True)]


def shrunk(ops: Sequence[Op], fails: Callable[[Sequence[Op]], bool]) -> list[Op]:
    """A shorter life that still fails: of which no operation can be left out, and no fate taken away."""
    kept = list(ops)
    size = len(kept) // 2
    while size:
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            if fewer != kept and fails(fewer):
                kept = fewer
                break
        else:
            size //= 2
    for place, op in enumerate(kept):
        plainer = [*kept[:place], op._replace(fate=""), *kept[place + 1 :]]
        if op.fate and fails(plainer):
            kept = plainer
    return kept
