"""What is spelled out of texts from outside."""

import pytest

from dedup_platform.escapes import one_line, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, é, 日本, 👩🏽", "plain, é, 日本, 👩🏽"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\r\nb\tc\x07\x7f\x9b", r"a\r\nb\tc\x07\x7f\x9b"),
        ("\u202egnp\u2066\u200f", r"\u202egnp\u2066\u200f"),
        ("\u2028\u2029\ufeff\U000e0041", r"\u2028\u2029\ufeff\U000e0041"),
        ("\udcff", r"\udcff"),
        ("👩‍👧 می‌خواهم a\u00a0b", "👩‍👧 می‌خواهم a\u00a0b"),
    ],
)
def test_what_is_obeyed_is_spelled_out_and_what_is_read_stays(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_lines_may_stay_lines() -> None:
    assert visible("a\n\x1bb\r\n") == "a\n\\x1bb\\r\n"
