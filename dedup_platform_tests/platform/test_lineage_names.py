"""What OpenLineage calls a folder, by the rules of its specification."""

import pytest

from dedup_platform.platform.lineage_events import dataset_of


@pytest.mark.parametrize(
    ("location", "named"),
    [
        ("/lake/clicks/sessions", ("file", "/lake/clicks/sessions")),
        ("/lake/#1/what?", ("file", "/lake/#1/what?")),
        ("file:///lake/clicks", ("file", "/lake/clicks")),
        ("s3://bucket/lake/clicks", ("s3://bucket", "lake/clicks")),
        ("s3a://bucket/lake/clicks/", ("s3://bucket", "lake/clicks")),
        ("s3://bucket", ("s3://bucket", "/")),
    ],
)
def test_datasets_are_named_by_where_they_lie(location: str, named: tuple[str, str]) -> None:
    assert dataset_of(location) == named
