"""What tables and columns hold is said of every one of them, and docs/reading.md says the same."""

from pathlib import Path

import pytest

from dedup_platform import tables
from dedup_platform.comments import TABLE_COMMENTS, column_comments
from dedup_platform.stream import Stream
from dedup_platform.testing import make_stream
from dedup_platform_tests.test_docs import rows

EVERY = (*tables.ALL, *tables.FOLLOWER_OF.values(), tables.AUDIT)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """Its feeds' own columns are underscored, since it has an attribute, and an aggregate, of the name of one."""
    return make_stream(tmp_path, attributes={"reason": "string"}, aggregates={"reason": ("first", "reason")})


@pytest.mark.parametrize("table", EVERY)
def test_every_column_has_a_sentence(table: str, stream: Stream) -> None:
    comments = column_comments(stream, table)
    assert [path for path in comments if "." not in path] == tables.column_names(stream, table)
    assert ("first_arrived.session_id" in comments) == (table == tables.SESSION_FRAGMENTS)
    for text in (TABLE_COMMENTS[table], *comments.values()):
        assert text.endswith(".")
        assert len(text) <= 120


@pytest.mark.parametrize(
    ("table", "column", "said"),
    [
        (tables.RAW_EVENTS, "reason", "The attribute reason of the stream file."),
        (tables.SESSIONS, "reason", "first of reason over the events."),
        (tables.EVENT_CHANGES, "reason", "The attribute reason of the stream file."),
        (tables.EVENT_CHANGES, "_reason", "Why the row changed: "),
        (tables.SESSION_CHANGES, "_reason", "Why the row changed: "),
        (tables.SESSION_ALIASES, "reason", "Why the id is no more"),
        (tables.AUDIT, "reason", "Why the commit was made."),
    ],
)
def test_one_name_has_another_meaning_elsewhere(table: str, column: str, said: str, stream: Stream) -> None:
    assert column_comments(stream, table)[column].startswith(said)


def test_the_page_tells_the_same(tmp_path: Path) -> None:
    stream = make_stream(tmp_path, attributes={}, aggregates={})
    tables_of: dict[tuple[str, str], list[str]] = {}
    for table in tables.ALL:
        for column in column_comments(stream, table).items():
            tables_of.setdefault(column, []).append(f"`{table}`")
    expected = [[f"`{column}`", ", ".join(where), text] for (column, text), where in tables_of.items()]
    assert rows("docs/reading.md", "Columns") == expected
