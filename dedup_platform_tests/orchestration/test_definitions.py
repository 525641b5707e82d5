"""What a deployment's definitions contain, and that they load without a warning (warnings are errors in tests)."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from dedup_platform import tables
from dedup_platform.definitions import definitions as defined
from dedup_platform.orchestration.broken import GROUP
from dedup_platform.orchestration.build import build_definitions
from dedup_platform.orchestration.partitions import last_known, listing, partitions_definition
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream, load_stream
from dedup_platform.testing import make_stream


def with_late(stream: Stream, line: str) -> Stream:
    stream.origin.write_text(f"{stream.origin.read_text()}late: {line}\n")
    return load_stream(stream.origin)


@pytest.fixture
def two_streams(tmp_path: Path) -> dict[str, Stream]:
    daily = with_late(make_stream(tmp_path, "daily"), "{max_partitions_per_run: 5}")
    return {"daily": daily, "hourly": make_stream(tmp_path, "hourly", granularity="hour")}


@pytest.fixture
def definitions(tmp_path: Path, two_streams: dict[str, Stream]) -> dg.Definitions:
    return build_definitions(Settings(home=tmp_path), two_streams)


def test_every_stream_has_its_assets_jobs_and_sensors(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    keys = {
        f"{name}/{table}"
        for name in ("daily", "hourly")
        for table in ("source", *tables.ALL, *tables.FOLLOWER_OF.values(), tables.AUDIT, "rejected_events")
    }
    assert {key.to_user_string() for key in graph.get_all_asset_keys()} == keys
    assert {job.name for job in definitions.resolve_all_job_defs()} >= {
        "daily_ingest",
        "daily_repair",
        "daily_publish",
        "hourly_ingest",
        "hourly_repair",
        "maintenance",
    }
    assert {each.name for each in definitions.sensors or ()} == {
        "daily_new_input",
        "daily_late_partitions",
        "daily_unpublished_changes",
        "hourly_new_input",
        "hourly_late_partitions",
        "hourly_unpublished_changes",
    }


def test_assets_tell_what_their_columns_hold(definitions: dg.Definitions, two_streams: dict[str, Stream]) -> None:
    for table in (*tables.ALL, *tables.FOLLOWER_OF.values(), tables.AUDIT):
        node = definitions.resolve_asset_graph().get(dg.AssetKey(["daily", table]))
        columns = node.metadata["dagster/column_schema"].columns
        assert [column.name for column in columns] == tables.column_names(two_streams["daily"], table)
        assert all(column.description for column in columns)


def test_assets_tell_how_to_make_a_report_of_their_figures(definitions: dg.Definitions) -> None:
    for table in tables.ALL:
        node = definitions.resolve_asset_graph().get(dg.AssetKey(["daily", table]))
        assert node.metadata["report"] == "dedup-platform report daily --html daily.html"


def test_a_broken_stream_file_is_an_asset_that_says_so(
    tmp_path: Path, two_streams: dict[str, Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = two_streams["daily"].origin.parent
    for name in ("clicks é.yaml", "clicks_e.yaml", "clicks_e.yml"):
        (folder / name).write_text("name: [\n")
    monkeypatch.setenv("DEDUP_PLATFORM_HOME", str(tmp_path))
    monkeypatch.setenv("DEDUP_PLATFORM_STREAMS", str(folder))
    loaded = defined()
    assert {sensor.name for sensor in loaded.sensors or ()} > {"daily_new_input", "hourly_new_input"}
    graph = loaded.resolve_asset_graph()
    told = {key.path[-1]: graph.get(key).description for key in graph.get_all_asset_keys() if GROUP in key.path}
    assert sorted(told) == ["clicks___yaml", "clicks_e_yaml", "clicks_e_yml"]
    assert f"    {folder / 'clicks é.yaml'}:2: is not YAML" in (told["clicks___yaml"] or "")


def test_a_stream_without_sessions_has_neither_assets_nor_steps_for_them(tmp_path: Path) -> None:
    stream = make_stream(tmp_path, "plain").model_copy(update={"sessions": None})
    definitions = build_definitions(Settings(home=tmp_path), {"plain": stream})
    keys = {key.path[1] for key in definitions.resolve_asset_graph().get_all_asset_keys()}
    assert keys == {"source", *tables.all_of(stream), tables.EVENT_CHANGES, tables.AUDIT, "rejected_events"}
    for job in ("plain_ingest", "plain_repair", "plain_repair_unlisted", "plain_publish", "maintenance"):
        nodes = definitions.resolve_job_def(job).graph.node_defs
        assert nodes
        assert not [node.name for node in nodes if "session" in node.name]


def test_sensors_work_without_being_switched_on(definitions: dg.Definitions) -> None:
    for name in ("daily_new_input", "hourly_late_partitions"):
        assert definitions.resolve_sensor_def(name).default_status == dg.DefaultSensorStatus.RUNNING


def test_a_setting_says_how_often_sensors_look(tmp_path: Path, two_streams: dict[str, Stream]) -> None:
    for seconds in (1, 5):
        definitions = build_definitions(Settings(home=tmp_path, sensor_interval=seconds), two_streams)
        for name in ("daily_new_input", "hourly_late_partitions"):
            asked = definitions.resolve_sensor_def(name).minimum_interval_seconds
            assert asked is not None
            assert 0 < asked <= seconds


def test_all_assets_of_a_stream_share_its_partitions_and_a_backfill_policy(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    nodes = [graph.get(dg.AssetKey(["daily", table])) for table in tables.ALL]
    assert {node.partitions_def for node in nodes} == {nodes[0].partitions_def}
    assert {node.backfill_policy for node in nodes} == {dg.BackfillPolicy.multi_run(5)}


def test_each_table_has_a_pool_of_its_own_and_jobs_claim_the_same_ones(definitions: dg.Definitions) -> None:
    written = [table for table in tables.ALL if table != tables.DUPLICATE_EVENTS]
    pools = {f"daily.{table}" for table in written}
    job = definitions.resolve_job_def("daily_ingest")
    assert {pool for node in job.graph.node_defs for pool in node.pools} == pools
    assert {pool for table in written for pool in definitions.resolve_assets_def(["daily", table]).op.pools} == pools


def test_maintenance_claims_the_pools_of_the_writers_and_waits_to_be_switched_on(definitions: dg.Definitions) -> None:
    job = definitions.resolve_job_def("maintenance")
    written = [table for table in tables.ALL if table != tables.DUPLICATE_EVENTS]
    pools = {f"{stream}.{table}" for stream in ("daily", "hourly") for table in written}
    assert {pool for node in job.graph.node_defs for pool in node.pools} == pools
    schedule = definitions.resolve_schedule_def("maintenance_nightly")
    assert (schedule.job_name, schedule.default_status) == ("maintenance", dg.DefaultScheduleStatus.STOPPED)


@pytest.mark.parametrize("granularity", ["day", "hour"])
@pytest.mark.parametrize("max_future", [timedelta(0), timedelta(minutes=10), timedelta(hours=30)])
def test_partitions_reach_beyond_now_by_max_future(tmp_path: Path, granularity: str, max_future: timedelta) -> None:
    stream = make_stream(tmp_path, granularity=granularity)
    stream = with_late(stream, f"{{max_future: {max_future // timedelta(minutes=1)}m}}")
    now = datetime.now(UTC)
    assert last_known(stream) >= stream.partitions.ordinal(now + max_future)
    assert last_known(stream) <= stream.partitions.ordinal(now + max_future) + 1
    assert stream.partitions.key(last_known(stream)) in partitions_definition(stream).get_partition_keys()


def test_a_stream_that_starts_in_the_future_has_no_partition_yet(tmp_path: Path) -> None:
    assert last_known(make_stream(tmp_path, start="2999-01-01")) < make_stream(tmp_path, "b").partitions.ordinal(
        datetime(2999, 1, 1, tzinfo=UTC)
    )


@pytest.mark.parametrize("granularity", ["day", "hour"])
def test_partitions_that_dagster_will_know_within_a_day_are_awaited(tmp_path: Path, granularity: str) -> None:
    stream = make_stream(tmp_path, granularity=granularity)
    listed, last = listing(stream), last_known(stream)
    first, a_day = stream.partitions.ordinal(stream.partitions.start), timedelta(days=1) // stream.partitions.length
    assert [each in listed for each in (first - 1, first, last, last + 1)] == [False, True, True, False]
    edges = (first - 1, first, last + a_day, last + a_day + 1, last + 10**7)
    assert [listed.is_awaited(each) for each in edges] == [False, True, True, False, False]


@pytest.mark.parametrize(("ahead", "is_awaited"), [(1, True), (400, False)])
def test_the_partitions_of_a_start_in_the_future_are_awaited_if_it_is_near(
    tmp_path: Path, ahead: int, is_awaited: bool
) -> None:
    start = datetime.now(UTC).date() + timedelta(days=ahead)
    stream = make_stream(tmp_path, start=start.isoformat())
    first = stream.partitions.ordinal(stream.partitions.start)
    assert listing(stream).is_awaited(first) == is_awaited
    assert not listing(stream).is_awaited(first - 1)


def test_no_streams_are_valid_definitions(tmp_path: Path) -> None:
    dg.Definitions.validate_loadable(build_definitions(Settings(home=tmp_path), {}))
