"""How long points are kept: sets of snapshots, one of each table, that agree and have a tag of one name."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from dedup_platform.stream.values import Count, Duration, Part

__all__ = ["Points"]


class Points(Part):
    """A point is kept for `keep` after the next one was made, but the oldest go where there are more than `at_most`.

    The newest one is always kept. Each costs every table some hundred bytes of metadata, which all commits write anew.
    """

    keep: Duration = timedelta(days=7)
    """A point is kept for so long after the next one was made."""
    at_most: Annotated[Count, Field(ge=2, le=1000)] = 100
    """The oldest points go where there are more."""
