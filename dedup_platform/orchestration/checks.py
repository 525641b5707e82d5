"""The checks of each table, declared for the UI and evaluated partition by partition.

They are logged by the step itself: a check that Dagster evaluates loses its partition in a run over a range.
"""

from collections.abc import Iterator, Mapping

import dagster as dg

from dedup_platform import tables
from dedup_platform.orchestration.partitions import Listing
from dedup_platform.stream import Stream

CONSERVATION = "conservation"

CHECKS = {
    tables.DEDUPLICATED_EVENTS: {
        CONSERVATION: "Raw events that are not rejected = deduplicated events + duplicate events.",
        "uniqueness": "No two events have the same key within the window.",
        "inside": "Every row lies inside its partition.",
    },
    tables.SESSION_FRAGMENTS: {
        CONSERVATION: "The fragments hold as many events as there are with an entity.",
        "gaps": "Fragments of an entity in one partition are further apart than the timeout.",
        "inside": "Every row lies inside its partition.",
    },
    tables.SESSIONS: {
        CONSERVATION: "The sessions hold as many events as the fragments.",
        "uniqueness": "No two sessions have the same id.",
        "gaps": "Sessions of an entity are further apart than the timeout.",
        "inside": "Every row lies inside its partition.",
    },
}
"""Table -> check -> what holds. Conservation is checked before publishing; the others read what was written."""

TOLD_APART = 31
"""Partitions of a commit: of more, those that hold what they should are told together. Dagster takes long for each."""
Faults = Mapping[int, Mapping[str, int]]


def specs(stream: Stream, table: str) -> list[dg.AssetCheckSpec]:
    """The checks of a table's asset."""
    asset = dg.AssetKey([stream.name, table])
    described = CHECKS.get(table, {}).items()
    return [dg.AssetCheckSpec(name, asset=asset, description=description) for name, description in described]


def evaluations(
    stream: Stream, table: str, rows: Mapping[int, int], faults: Faults, listed: Listing
) -> Iterator[dg.AssetCheckEvaluation]:
    """Every check of every partition that a commit touched. `rows`: ordinal -> all rows of the table in it.

    `faults`: ordinal -> check -> rows that break it. Those of partitions that are not `listed`, so that Dagster has no
    key for them, name none. Nor does the one of all partitions without a fault, where there are more than `TOLD_APART`.
    """
    asset, names = dg.AssetKey([stream.name, table]), CHECKS.get(table, ())
    are_few = len(rows) <= TOLD_APART

    def wrong_rows(partition: int, name: str) -> int:
        return faults.get(partition, {}).get(name, 0)

    for partition, count in sorted(rows.items()):
        for name in names:
            if (wrong := wrong_rows(partition, name)) or are_few:
                yield dg.AssetCheckEvaluation(
                    asset,
                    name,
                    passed=wrong == 0,
                    metadata={"rows": count, "wrong": wrong},
                    partition=stream.partitions.key(partition) if partition in listed else None,
                )
    for name in () if are_few else names:
        sound = [count for partition, count in rows.items() if not wrong_rows(partition, name)]
        yield dg.AssetCheckEvaluation(asset, name, True, {"rows": sum(sound), "wrong": 0, "partitions": len(sound)})


def unbalanced(stream: Stream, table: str, why: str) -> dg.AssetCheckEvaluation:
    """What is told of a commit that was not published because its counts do not balance."""
    return dg.AssetCheckEvaluation(dg.AssetKey([stream.name, table]), CONSERVATION, False, {"why": why})
