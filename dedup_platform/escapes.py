"""Texts that come from outside, as they are shown to people: what a terminal or a log would obey is spelled out.

A file's name or a record may hold what moves the cursor, sets the clipboard, turns the direction of writing, or begins
a line of its own, which could be taken for one of ours.
"""

import unicodedata

__all__ = ["one_line", "visible"]

_JOINERS = "\u200c\u200d"
"""They are in many words and emoji, and change nothing that is around them."""


def one_line(text: str) -> str:
    r"""The text with everything that is not printed as an escape of Python's: `\n`, `\x1b`, `\u202e`."""
    return text if text.isprintable() else "".join(map(_shown, text))


def visible(text: str) -> str:
    """The same, but lines stay lines."""
    return "\n".join(map(one_line, text.split("\n")))


def _shown(char: str) -> str:
    if char.isprintable() or char in _JOINERS or unicodedata.category(char) == "Zs":
        return char
    return char.encode("unicode_escape").decode()
