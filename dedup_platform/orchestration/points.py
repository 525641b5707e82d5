"""Points in Dagster: a run that has repaired the last table makes one, if the tables agree."""

from dedup_platform.lake.points import Point
from dedup_platform.orchestration.metadata import Context
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream
from dedup_platform.tables import derived


def make_point(context: Context, platform: Platform, stream: Stream, table: str) -> None:
    """Make a point after the last table. What fails here fails no run: the next one tries again."""
    if table != derived(stream)[-1]:
        return
    try:
        point = platform.points.make(stream.name)
    except Exception as error:
        context.log.warning(f"{stream.name}: no point was made, the next run tries again: {error}")
        return
    if point:
        context.log.info(f"{stream.name}: {sentence(point)}")


def sentence(point: Point) -> str:
    """A point, for people: `the newest point is v12, of 2026-01-31 23:59:59, as of snapshot 123 of raw_events`."""
    made = f"{point.made_at:%Y-%m-%d %H:%M:%S}"
    return f"the newest point is {point.name}, of {made}, as of snapshot {point.as_of} of raw_events"
