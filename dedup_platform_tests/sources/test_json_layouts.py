"""What the quotes of JSON records tell is what the records hold that are read one by one."""

from collections.abc import Sequence
from random import Random

import polars as pl
import pytest

from dedup_platform.sources.contents import NamedField
from dedup_platform.sources.field_values import field_reader
from dedup_platform.sources.text import json_layouts
from dedup_platform.sources.text.json_layouts import JsonLayouts
from dedup_platform.sources.text.json_pieces import is_sample
from dedup_platform.sources.text.json_records import json_content
from dedup_platform.sources.texts import text_of

FIELDS: Sequence[NamedField] = [
    named for name in ("user", "n", "actor.id", "tags[1]", "none") for named in field_reader(name, "json").named
]
RECORD = '{"user": "u1", "n": 1.50, "actor": {"id": "ключ", "x": null}, "tags": ["a", "b"], "z": -1e5}'


def _told(records: Sequence[str]) -> list[list[str | None] | None]:
    """Of each record the texts of all fields, or None if no layout tells."""
    laid_out = JsonLayouts().read(pl.Series(records), FIELDS)
    rows = zip(*(texts.to_list() for texts in laid_out.texts), strict=True)
    return [list(row) if is_known else None for row, is_known in zip(rows, laid_out.is_known, strict=True)]


def _held(record: str) -> list[str | None] | None:
    content = json_content(record.encode())
    if isinstance(content, str):
        return None
    values = [field.value(content, "") for field in FIELDS]
    return [text_of(value) for value in values]


def test_records_that_are_laid_out_alike_are_known() -> None:
    others = [RECORD.replace("u1", f"user {number}").replace("1.50", f"{number}") for number in range(200)]
    assert _told(others) == [_held(record) for record in others]
    assert _told(others)[7] == ["user 7", "7", "ключ", "b", None]


@pytest.mark.parametrize(
    "other",
    [
        RECORD.replace("u1", r"u\"1"),
        RECORD.replace("u1", r"u\n1"),
        RECORD.replace("u1", "u\t1"),
        RECORD.replace(", ", ",\t", 1),
        RECORD.replace("null", "nul"),
        RECORD.replace("null", "None"),
        RECORD.replace("1.50", "01.50"),
        RECORD.replace("1.50", "1."),
        RECORD.replace("1.50", "NaN"),
        RECORD.replace("1.50", ""),
        RECORD.replace("1.50", "1 2"),
        RECORD.replace("1.50", "{}"),
        RECORD.replace('"u1", ', '"u1, "'),
        RECORD.replace('"user"', '"usex"'),
        RECORD.replace('"user"', '"user2"'),
        RECORD.replace('"z"', '"n"'),
        RECORD.replace('"tags"', '"tags'),
        RECORD[:-1],
        RECORD + "}",
        RECORD + " ",
        RECORD[1:],
        "",
    ],
)
def test_others_are_not(other: str) -> None:
    records = [RECORD] * 50 + [other] + [RECORD] * 50
    assert _told(records) == [_held(RECORD)] * 50 + [None] + [_held(RECORD)] * 50


@pytest.mark.parametrize("behind", ["}", " ", "1", "é"])
def test_nothing_stands_behind_a_record_that_ends_with_a_text(behind: str) -> None:
    record = '{"n": 1, "user": "u"}'
    told = _told([record] * 200 + [record + behind])
    assert told[-2:] == [["u", "1", None, None, None], None]


def test_null_and_words_are_values() -> None:
    records = [RECORD] * 99 + [RECORD.replace("1.50", word) for word in ("null", "true", "false", "0", "-0.0E+1")]
    assert [told and told[1] for told in _told(records)][99:] == [None, "true", "false", "0", "-0.0E+1"]


def test_lists_and_objects_that_are_asked_for_are_left_to_others() -> None:
    laid_out = JsonLayouts().read(pl.Series([RECORD] * 200), field_reader("tags", "json").named)
    assert not laid_out.is_known.any()


def test_numbers_side_by_side_have_no_quotes_between_them() -> None:
    assert _told(['{"user": "u", "list": [1, 2]}'] * 200) == [None] * 200


def test_records_without_a_layout_cost_no_more_than_a_few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = list[str]()

    def is_sample_too(record: str) -> bool:
        judged.append(record)
        return is_sample(record)

    monkeypatch.setattr(f"{json_layouts.__name__}.is_sample", is_sample_too)
    _told([f'{{"user": "u", "{number}": 1}}' for number in range(5000)])
    assert len(judged) == 4


def test_many_layouts_are_known() -> None:
    records = [f'{{"user": "u{number}", "{number % 40}": 1}}' for number in range(40 * json_layouts._FEW)]
    assert [told and told[0] for told in _told(records)] == [f"u{number}" for number in range(len(records))]


@pytest.mark.parametrize("seed", range(20))
def test_mutated_records(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_layouts, "_FEW", 4)
    random = Random(seed)
    records = [_mutated(random, RECORD) if random.random() < 0.3 else RECORD for _ in range(2000)]
    told = _told(records)
    assert sum(each is not None for each in told) > 500
    for record, found in zip(records, told, strict=True):
        assert found is None or found == _held(record), record


def _mutated(random: Random, record: str) -> str:
    at = random.randrange(len(record))
    match random.randrange(4):
        case 0:
            return record[:at] + record[at + 1 :]
        case 1:
            return record[:at] + random.choice('"\\{}[],: 0a\té') + record[at + 1 :]
        case 2:
            return record[:at] + random.choice('"\\{}[],: 0a\té') + record[at:]
    other = random.randrange(len(record))
    low, high = sorted((at, other))
    return record[:low] + record[high:] + record[low:high]
