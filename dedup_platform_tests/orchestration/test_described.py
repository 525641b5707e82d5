"""What assets say of themselves before anything runs."""

import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

import dagster as dg
import pytest
from dagster._core.definitions.utils import is_valid_owner
from typer.testing import CliRunner

from dedup_platform import cli, tables
from dedup_platform.errors import StreamFileError
from dedup_platform.orchestration.build import build_definitions
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream, load_stream
from dedup_platform.testing import make_stream
from dedup_platform_tests.orchestration.conftest import Deployment, click

KAFKA = '{kind: kafka, brokers: "a.example:9092", topic: clicks, format: json}'


def owned(folder: Path, owner: str) -> Stream:
    path = make_stream(folder, "daily").origin
    path.write_text(f"{path.read_text()}owner: {owner}\n")
    return load_stream(path)


def nodes(stream: Stream, settings: Settings) -> dict[str, dg.AssetSpec]:
    graph = build_definitions(settings, {stream.name: stream}).resolve_asset_graph()
    return {key.path[-1]: graph.get(key).to_asset_spec() for key in graph.get_all_asset_keys()}


@pytest.mark.parametrize("owner", ["ann.b+c@example.co.uk", "team:data platform"])
def test_all_assets_name_the_owner_and_the_stream(tmp_path: Path, owner: str) -> None:
    assert is_valid_owner(owner)
    stream = owned(tmp_path, owner)
    assert load_stream(stream.origin).model_dump(mode="json")["owner"] == owner
    for spec in nodes(stream, Settings(home=tmp_path)).values():
        assert list(spec.owners) == [owner]
        assert spec.tags["dedup_platform/stream"] == "daily"
        assert spec.metadata["stream_file"] == dg.MetadataValue.path(stream.origin)
        assert spec.kinds


def test_without_an_owner_none_is_told(tmp_path: Path) -> None:
    stream = make_stream(tmp_path, "daily")
    assert "owner" not in stream.model_dump()
    assert not any(spec.owners for spec in nodes(stream, Settings(home=tmp_path)).values())


@pytest.mark.parametrize(
    "owner", ["ann", "ann@example", '"team:"', '"team: x"', '"ann@example.com\\n"', '"team:a\\nb"']
)
def test_what_dagster_would_refuse_as_an_owner_is_refused_in_the_stream_file(tmp_path: Path, owner: str) -> None:
    with pytest.raises(StreamFileError, match="owner: is no owner; write an email address, or team:"):
        owned(tmp_path, owner)


def test_a_long_name_of_a_stream_is_no_tag_that_dagster_refuses(tmp_path: Path) -> None:
    stream = make_stream(tmp_path, "s" * 100)
    assert nodes(stream, Settings(home=tmp_path))[tables.SESSIONS].tags["dedup_platform/stream"] == "s" * 63


@pytest.mark.parametrize(
    ("path", "place", "kinds"),
    [
        ("s3://landing/clicks/*.json", "s3://landing/clicks/*.json", {"s3", "json"}),
        ("in/*.json", "file://FOLDER/in/*.json", {"file", "json"}),
        (None, "kafka://a.example:9092/clicks", {"kafka", "json"}),
    ],
)
def test_the_source_is_an_asset_that_raw_events_come_from(
    tmp_path: Path, path: str | None, place: str, kinds: set[str]
) -> None:
    file = make_stream(tmp_path, "daily").origin
    source = f"{{kind: files, path: '{path}', format: json}}" if path else KAFKA
    file.write_text(re.sub("^source:.*?(?=^fields:)", f"source: {source}\n", file.read_text(), flags=re.M | re.S))
    definitions = build_definitions(Settings(home=tmp_path), {"daily": load_stream(file)})
    graph = definitions.resolve_asset_graph()
    [key] = graph.get(dg.AssetKey(["daily", tables.RAW_EVENTS])).parent_keys
    node = graph.get(key)
    assert (key.path, node.is_external, node.kinds) == (["daily", "source"], True, kinds)
    assert node.metadata["dagster/uri"] == place.replace("FOLDER", str(tmp_path.resolve()))


def test_the_address_of_a_table_is_where_it_is(deploy: Deployment) -> None:
    deploy.deliver("first.json", click("a", "2024-03-01T10:00"))
    deploy.ingest()
    catalog, settings = deploy.platform.lake.catalog, deploy.platform.settings
    named = [*tables.ALL, *tables.FOLLOWER_OF.values(), tables.AUDIT]
    specs = nodes(deploy.stream, settings)
    for table in named:
        told = specs[table].metadata
        assert urlsplit(catalog.load_table(deploy.stream.name, table).location()).path == told["dagster/uri"], table
        assert told["dagster/table_name"] == f"lake.{deploy.stream.name}.{table}"
        assert deploy.platform.lake.spark().table(told["dagster/table_name"]).columns
    for table in (tables.SESSIONS, tables.REJECTED_EVENTS):
        _, *words = shlex.split(specs[table].metadata["read"])
        environment = {
            "DEDUP_PLATFORM_HOME": str(settings.home),
            "DEDUP_PLATFORM_STREAMS": str(deploy.stream.origin),
        }
        answer = CliRunner().invoke(cli.app, words, env=environment)
        assert answer.exit_code == 0, answer.output


def test_a_catalog_that_lays_tables_out_itself_is_not_spoken_for(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, catalog_uri="https://catalog.example/rest")
    told = nodes(make_stream(tmp_path, "daily"), settings)[tables.SESSIONS].metadata
    assert "dagster/uri" not in told
    assert told["dagster/table_name"] == "lake.daily.sessions"
