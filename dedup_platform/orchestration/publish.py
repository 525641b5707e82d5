"""What a run changed in a table, published in the same run."""

import dagster as dg

from dedup_platform import tables
from dedup_platform.changes import FeedCommit, Published
from dedup_platform.orchestration.metadata import Context, asset_key
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream


def publish(context: Context, platform: Platform, stream: Stream, table: str) -> None:
    """Bring what follows the table up to date, if anything does, and tell Dagster.

    The table itself is written by now. What fails here fails no run: the sensor finds what is not published, and its
    own runs say what is wrong.
    """
    for follower in tables.followers(table):
        try:
            done = platform.publish_changes(stream.name, [table])
        except Exception as error:
            context.log.warning(f"{stream.name}.{follower} is behind and will be published later: {error}")
            return
        for each in done:
            if each.first_version:
                context.log.info(sentence(each))
                context.log_event(dg.AssetMaterialization(asset_key(stream, each.feed), metadata=numbers(each)))
        table = follower


def sentence(done: FeedCommit) -> str:
    """What was published, for people: `session_changes: versions 4 to 6, 3 delete, 12 insert`."""
    if not done.first_version:
        return f"{done.feed}: nothing new"
    is_one = done.first_version == done.last_version
    versions = f"version {done.last_version}" if is_one else f"versions {done.first_version} to {done.last_version}"
    return ", ".join([f"{done.feed}: {versions}", *(f"{n:,} {kind}" for kind, n in sorted(done.changes.items()))])


def told(done: Published) -> str:
    """What a sink got, for people: `copy: version 7, 3 delete, 12 insert; 2 suppressed, 1 refused`."""
    said = ", ".join(
        [f"{done.sink}: version {done.version}", *(f"{n:,} {kind}" for kind, n in sorted(done.sent.items()))]
    )
    others = {"suppressed": done.suppressed, "refused": done.refused}
    besides = ", ".join(f"{number:,} {what}" for what, number in others.items() if number)
    return f"{said}; {besides}" if besides else said


def numbers(done: FeedCommit) -> dict[str, int]:
    """What was published, as the UI plots it."""
    if not done.first_version:
        return {"versions": 0}
    versions = {"version": done.last_version, "versions": done.last_version - done.first_version + 1}
    return {**versions, **done.changes, "bytes_written": done.bytes_written}
