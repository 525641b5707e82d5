"""Moments in columns are the texts that single ones are."""

import numpy as np
from hypothesis import example, given, strategies as st

from dedup_platform.sources.iso_times import SECONDS, utc_texts
from dedup_platform.sources.text.canonical_text import timestamp_text

moments = st.tuples(
    st.integers(SECONDS.start, SECONDS.stop - 1),
    st.one_of(
        st.just(0), *(st.integers(0, 1000**number - 1).map((1000 ** (3 - number)).__mul__) for number in (1, 2, 3))
    ),
)


@given(st.lists(moments, min_size=1))
@example([(SECONDS[0], 0), (SECONDS[-1], 999_999_999), (-1, 1), (951_782_400, 1_000), (951_868_799, 1_000_000)])
def test_moments_are_the_texts_that_single_ones_are(given: list[tuple[int, int]]) -> None:
    seconds, nanoseconds = (np.array(each, np.int64) for each in zip(*given, strict=True))
    expected = [timestamp_text(second * 10**9 + more, 10**9, "Z") for second, more in given]
    assert utc_texts(seconds, nanoseconds).to_list() == expected


def test_every_day_of_400_years() -> None:
    seconds = np.arange(-146_097 * 43_200, 146_097 * 43_200, 86_400)
    expected = [timestamp_text(second, 1, "Z") for second in seconds.tolist()]
    assert utc_texts(seconds, np.zeros(len(seconds), np.int64)).to_list() == expected
