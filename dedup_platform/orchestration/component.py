"""The streams of a folder as a component of a Dagster project, for who has one already: `dg` lists and scaffolds it."""

from pathlib import Path

import dagster as dg

from dedup_platform.orchestration.build import build_definitions
from dedup_platform.settings import load_settings
from dedup_platform.stream import read_streams

__all__ = ["StreamsComponent"]


class StreamsComponent(dg.Component, dg.Model, dg.Resolvable):
    """Assets, checks, jobs, sensors and upkeep for the stream files of one folder.

    A project has one of it: all streams share one lake, one Spark and one upkeep. Where the lake is, and all else that
    is of the machine and not of a stream, says the environment (`DEDUP_PLATFORM_...`), as for the command line.
    """

    streams: str = "streams"
    """The folder of stream files, or one of them; relative to the folder of `defs.yaml`."""

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """What `dg` tells of it."""
        description = "Deduplicated events and sessions with stable ids, from a folder of stream files"
        return dg.ComponentTypeSpec(
            description=description, produces=["asset", "asset_check", "job", "schedule", "sensor", "resource"]
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions of all streams. Raises StreamFileError with every problem if no stream is left.

        A stream file that is wrong is an asset that says so, and costs no other stream.
        """
        found = read_streams(Path(context.path, self.streams))
        return build_definitions(load_settings(), found.streams, broken=found.broken)
