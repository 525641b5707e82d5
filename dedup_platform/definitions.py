"""The one Definitions of this deployment, for `dagster dev` and `dagster definitions validate`. No logic."""

import dagster as dg

from dedup_platform.orchestration.build import build_definitions
from dedup_platform.settings import load_settings
from dedup_platform.stream import StreamFiles, read_streams


@dg.definitions
def definitions() -> dg.Definitions:
    """Everything for the streams of `DEDUP_PLATFORM_STREAMS`, else of the folder `streams`; none where neither is."""
    settings = load_settings()
    found = read_streams(settings.stream_files) if settings.stream_files else StreamFiles({}, {})
    return build_definitions(settings, found.streams, broken=found.broken)
