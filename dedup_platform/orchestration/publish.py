"""What a run changed in a table, published in the same run."""

import dagster as dg

from dedup_platform import tables
from dedup_platform.changes import Audited, FeedCommit
from dedup_platform.orchestration.metadata import Context, asset_key
from dedup_platform.orchestration.publish_words import saved, sentence
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream


def publish(context: Context, platform: Platform, stream: Stream, table: str) -> None:
    """Bring what follows the table up to date, if anything does, and tell Dagster.

    The table itself is written by now. What fails here fails no run: the sensor finds what is not published, and its
    own runs say what is wrong.
    """
    last = table
    for follower in tables.followers(table):
        try:
            done = platform.publish_changes(stream.name, [table])
        except Exception as error:
            context.log.warning(f"{stream.name}.{follower} is behind and will be published later: {error}")
            return
        for each in done:
            if each.first_version or each.left:
                context.log.info(sentence(each))
            if each.first_version:
                context.log_event(dg.AssetMaterialization(asset_key(stream, each.feed), metadata=numbers(each)))
        table = follower
    if last == tables.derived(stream)[-1]:
        _audit(context, platform, stream)


def _audit(context: Context, platform: Platform, stream: Stream) -> None:
    """Count what the run's commits came to. What fails here is counted by the next run."""
    try:
        done = platform.audit(stream.name)
    except Exception as error:
        context.log.warning(f"{stream.name}.{tables.AUDIT} is behind and will be written later: {error}")
        return
    if done.commits:
        context.log.info(saved(done.counts))
        context.log_event(dg.AssetMaterialization(asset_key(stream, tables.AUDIT), metadata=counted(done)))


def counted(done: Audited) -> dict[str, int]:
    """The same as the UI plots it: of the commits that were counted, and of all together."""
    return {"commits": done.commits, **done.counts, **{f"total_{name}": each for name, each in done.totals.items()}}


def numbers(done: FeedCommit) -> dict[str, int]:
    """What was published, as the UI plots it."""
    if not done.first_version:
        return {"versions": 0}
    versions = {"version": done.last_version, "versions": done.last_version - done.first_version + 1}
    return {**versions, **done.changes, "bytes_written": done.bytes_written}
