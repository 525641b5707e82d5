"""The streams of a folder as a component of somebody else's Dagster project."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster.components.core.package_entry import discover_entry_point_package_objects
from dagster.components.testing import DefsFolderSandbox, create_defs_folder_sandbox

from dedup_platform.orchestration.broken import GROUP
from dedup_platform.orchestration.component import StreamsComponent
from dedup_platform.testing import make_stream

# Of how Dagster reads `defs.yaml`, which it then refers to.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
    pytest.mark.filterwarnings("ignore::dagster.PreviewWarning"),
]
KIND = "dedup_platform.orchestration.component.StreamsComponent"
ELSEWHERE = """import dagster as dg

@dg.asset(deps=[dg.AssetKey(["daily", "sessions"])])
def visits() -> None:
    pass
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DefsFolderSandbox]:
    """A project that has an asset of its own."""
    monkeypatch.setenv("DEDUP_PLATFORM_HOME", str(tmp_path / "home"))
    with create_defs_folder_sandbox() as sandbox:
        (sandbox.defs_folder_path / "visits.py").write_text(ELSEWHERE)
        yield sandbox


def scaffolded(project: DefsFolderSandbox, attributes: dict[str, str] | None = None) -> Path:
    """The folder of a component that `dg scaffold` made."""
    contents = {"type": KIND, **({"attributes": attributes} if attributes else {})}
    return project.scaffold_component(StreamsComponent, "events", defs_yaml_contents=contents)


def test_dg_finds_it() -> None:
    found = [each for key, each in discover_entry_point_package_objects().items() if key.to_typename() == KIND]
    assert found == [StreamsComponent]


def test_assets_of_the_project_follow_those_of_streams(project: DefsFolderSandbox) -> None:
    streams = scaffolded(project) / "streams"
    streams.mkdir()
    make_stream(streams, "daily")
    make_stream(streams, "hourly", granularity="hour")
    with project.build_all_defs() as defs:
        graph = defs.resolve_asset_graph()
        assert graph.get(dg.AssetKey("visits")).parent_keys == {dg.AssetKey(["daily", "sessions"])}
        assert {"daily_ingest", "hourly_repair", "maintenance"} <= {job.name for job in defs.resolve_all_job_defs()}
        assert {"daily_new_input", "hourly_late_partitions"} <= {each.name for each in defs.sensors or ()}


def test_a_stream_file_that_is_wrong_costs_no_other(project: DefsFolderSandbox) -> None:
    folder = scaffolded(project, {"streams": "../../ours"})
    streams = (folder / "../../ours").resolve()
    streams.mkdir()
    make_stream(streams, "daily")
    (streams / "wrong.yaml").write_text("name: [")
    with project.load_component_and_build_defs(folder) as (component, defs):
        assert isinstance(component, StreamsComponent)
        groups = {node.group_name for node in defs.resolve_asset_graph().asset_nodes}
        assert {"daily", GROUP} <= groups


def test_without_a_stream_it_says_where_it_looked(project: DefsFolderSandbox) -> None:
    folder = scaffolded(project)
    with pytest.raises(Exception, match="events") as raised, project.build_all_defs():
        pass
    assert str(folder / "streams") in "".join(str(each) for each in _chain(raised.value))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
