"""Times that are read from their bytes are those that Python reads, and nothing else is taken for a time."""

from datetime import UTC, datetime, timedelta
from random import Random

import polars as pl
import pytest

from dedup_platform.planning.moments import microseconds
from dedup_platform.sources.fixed_times import fixed_times

PRECISIONS = {6: "microseconds", 3: "milliseconds", 0: "seconds"}


@pytest.mark.parametrize("decimals", PRECISIONS)
def test_times_of_all_years(decimals: int) -> None:
    random = Random(decimals)
    days = [datetime(1, 1, 1, tzinfo=UTC) + timedelta(days=random.randrange(3_652_059)) for _ in range(20_000)]
    times = [day + timedelta(microseconds=random.randrange(86_400_000_000)) for day in days]
    texts = [time.isoformat(timespec=PRECISIONS[decimals]).replace("+00:00", "Z") for time in times]
    assert fixed_times(pl.Series(texts), decimals).to_list() == [
        microseconds(datetime.fromisoformat(text)) for text in texts
    ]


@pytest.mark.parametrize("decimals", PRECISIONS)
def test_what_is_no_such_time_has_none(decimals: int) -> None:
    random = Random(decimals)
    time = datetime(2024, 2, 29, 23, 59, 59, 999_999, UTC).isoformat(timespec=PRECISIONS[decimals])[:-6] + "Z"
    texts = [
        time[:at] + character + time[at + 1 :]
        for at in range(len(time))
        for character in [*"0123456789-:TZ .+/;y", "\0", "\x7f", "é", "٣"]
    ]
    random.shuffle(texts)
    assert fixed_times(pl.Series(texts), decimals).to_list() == [_told(text, len(time)) for text in texts]


def _told(text: str, length: int) -> int | None:
    if len(text.encode()) != length:
        return None
    try:
        # strptime takes spaces for digits, and figures of other scripts.
        if not text.isascii() or " " in text:
            return None
        form = "%Y-%m-%dT%H:%M:%S" + (".%f" if "." in text else "") + "Z"
        return microseconds(datetime.strptime(text, form).replace(tzinfo=UTC))
    except ValueError:
        return None


@pytest.mark.parametrize(
    "text",
    [
        "2023-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2024-04-31T00:00:00Z",
        "2024-00-01T00:00:00Z",
        "2024-13-01T00:00:00Z",
        "2024-01-00T00:00:00Z",
        "2024-01-32T00:00:00Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:60:00Z",
        "2024-01-01T00:00:60Z",
        "0000-01-01T00:00:00Z",
        "2024-01-01T00:00:00",
        "",
    ],
)
def test_impossible_times_have_none(text: str) -> None:
    texts = pl.Series(["2024-02-29T12:00:00Z", text, None])
    assert fixed_times(texts, 0).to_list() == [microseconds(datetime(2024, 2, 29, 12, tzinfo=UTC)), None, None]


def test_no_texts_at_all() -> None:
    assert fixed_times(pl.Series([], dtype=pl.String), 6).to_list() == []
    assert fixed_times(pl.Series([None, None], dtype=pl.String), 6).to_list() == [None, None]
    assert fixed_times(pl.Series([None], dtype=pl.String), 6).dtype == pl.Int64
