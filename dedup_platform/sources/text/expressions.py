"""Regular expressions that judge texts and take values out of them in one pass, however long they are.

The engine behind Polars takes groups at the speed of matching only where an expression has few states, few groups, and
always one way to go on. So a long one is many, each for what follows behind the one before.
"""

import re
from collections.abc import Sequence

import polars as pl

__all__ = ["Expressions", "Groups"]

Groups = Sequence[pl.DataFrame]
"""What each expression found in some texts, a column for each of its groups."""

_MOST_STATES, _MOST_GROUPS = 800, 15
"""There is room for about 1000 states, and for 16 groups. The first group is all that the expression matches."""
_WHOLE = "1"
_LITERAL = 100
_MEANS_SOMETHING = re.compile(r"[\\.+*?()|\[\]{}^$#&~-]")


class Expressions:
    """Those of one kind of text, written from its beginning to its end."""

    def __init__(self) -> None:
        self._patterns = [""]
        self._states, self._groups = 0, 1

    def add(self, pattern: str, states: int, groups: int = 0) -> tuple[int, str]:
        """Go on with this, of about so many states and groups: which expression has it, and its first group's name."""
        if self._states + states > _MOST_STATES or self._groups + groups > _MOST_GROUPS:
            self._patterns.append("")
            self._states, self._groups = 0, 1
        self._patterns[-1] += pattern
        self._states += states
        self._groups += groups
        return len(self._patterns) - 1, str(self._groups - groups + 1)

    def add_literal(self, text: str) -> None:
        """Go on with just this text."""
        for start in range(0, len(text), _LITERAL):
            part = text[start : start + _LITERAL]
            self.add(_MEANS_SOMETHING.sub(r"\\\g<0>", part), len(part.encode()))

    def groups(self, texts: pl.Series) -> tuple[Groups, pl.Series]:
        """What is found in some texts, and in which of them all is as it must be."""
        *others, end = self._patterns
        found: list[pl.DataFrame] = []
        for pattern in (*(f"^({each})" for each in others), rf"^({end})\z"):
            if found:
                texts = _behind(texts, found[-1][_WHOLE])
            found.append(texts.str.extract_groups(pattern).struct.unnest())
        return found, found[-1][_WHOLE].is_not_null()


def _behind(texts: pl.Series, beginnings: pl.Series) -> pl.Series:
    """What follows the beginnings of some texts; null for null."""
    some = pl.DataFrame({"text": texts, "beginning": beginnings})
    rest = pl.col("text").cast(pl.Binary).bin.slice(pl.col("beginning").str.len_bytes()).cast(pl.String)
    return some.select(rest).to_series()
