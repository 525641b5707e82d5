"""Stream files that are none, where people look for their streams."""

import re
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path

import dagster as dg

from dedup_platform.errors import StreamFileError

GROUP = "broken_stream_files"


def broken_assets(broken: Mapping[Path, StreamFileError]) -> Iterable[dg.AssetSpec]:
    """An asset for each broken stream file, which says what is wrong with it. Nothing materializes it."""
    taken = set[str]()
    for path, error in broken.items():
        name = re.sub(r"[^A-Za-z0-9_]", "_", path.name)
        key = next(each for number in count() if (each := f"{name}_{number}" if number else name) not in taken)
        taken.add(key)
        problems = "\n".join(f"    {problem}" for problem in error.problems)
        left_out = "This stream file is left out until it is put right and the definitions are loaded again"
        yield dg.AssetSpec(
            [GROUP, key],
            group_name=GROUP,
            description=f"{left_out}:\n\n{problems}",
            kinds={"yaml"},
        )
