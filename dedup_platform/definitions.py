"""The one Definitions of this deployment, for `dagster dev` and `dagster definitions validate`. No logic."""

import dagster as dg

from dedup_platform.orchestration.build import build_definitions
from dedup_platform.settings import load_settings
from dedup_platform.stream import StreamFiles, read_streams


@dg.definitions
def definitions() -> dg.Definitions:
    """Everything for the streams of `DEDUP_PLATFORM_STREAMS`; no streams where it is not set."""
    settings = load_settings()
    found = read_streams(settings.streams) if settings.streams else StreamFiles({}, {})
    return build_definitions(settings, found.streams, broken=found.broken)
