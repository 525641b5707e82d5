"""A user's day with `make dev`: materialize a partition, backfill a range, and a late file that repairs itself."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from playwright.sync_api import Browser
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.orchestration.embedded import run_stream
from dedup_platform.planning import health
from dedup_platform.planning.moments import utc_now
from dedup_platform.platform import Platform
from dedup_platform.settings import ENV_PREFIX, Settings
from dedup_platform.stream import Stream, load_stream
from dedup_platform.testing import lay_out, make_stream, record, temporary_platform, utc, write_batch
from dedup_platform.testing.judge import wrong_rows
from dedup_platform.testing.servers import PostgresServer, S3Server
from dedup_platform_tests.end_to_end.browser import (
    EVIL,
    NO_CHROMIUM,
    attempts,
    chromium,
    chromium_command,
    deleting,
    foreign_pages,
    materialize,
    open_page,
    picture,
)
from dedup_platform_tests.end_to_end.conftest import BRIEF, PATIENCE, Webserver, dagster_dev, wait_until
from dedup_platform_tests.end_to_end.processes import CommandLine
from dedup_platform_tests.end_to_end.shown import rejected_and_replayed, what_an_asset_shows
from dedup_platform_tests.end_to_end.stuck import silence, write_stuck_stream
from dedup_platform_tests.orchestration.conftest import QUIET
from dedup_platform_tests.servers import new_name

DAYS = ("2024-03-01", "2024-03-02", "2024-03-03", "2024-03-04")
DERIVED = (tables.DUPLICATE_EVENTS, *tables.DERIVED)
STUCK = ("before", "last")
"""Streams whose source never answers: neither their sensors nor their runs keep others waiting."""


def test_a_day_with_dagster_dev(tmp_path: Path, settings: Settings, spark: SparkSession, thorough: bool) -> None:
    stream = stream_of_four_days(tmp_path)
    run_stream(settings, stream, QUIET)
    environment = BRIEF | {
        "DEDUP_PLATFORM_HOME": str(settings.home),
        "DEDUP_PLATFORM_STREAMS": str(tmp_path),
        "DAGSTER_HOME": str(settings.dagster_home),
    }
    with silence() as brokers:
        for name in STUCK:
            write_stuck_stream(tmp_path, name, brokers)
        with dagster_dev(environment, tmp_path / "dagster.log") as server:
            stuck = [server.materialize([[name, tables.RAW_EVENTS]], DAYS[0]) for name in STUCK]
            if command := chromium_command():
                with chromium(command) as browser:
                    what_an_asset_shows(browser, server, stream, DAYS[3])
                    clicks_of_a_person(browser, server, stream)
                    an_outage_and_the_way_out(browser, server, stream)
                    answers_no_foreign_page(browser, server, stream)
                    if thorough:
                        stream = rejected_and_replayed(browser, server, stream, CommandLine(environment))
                        platform = Platform(settings, {stream.name: stream}, lambda: spark)
                        wait_until(lambda: is_repaired(platform, stream), "what was replayed is repaired", PATIENCE)
            a_day(server, stream)
            assert "SUCCESS" not in map(server.status, stuck)
    check(Platform(settings, {stream.name: stream}, lambda: spark), stream)
    if not command:
        pytest.skip(NO_CHROMIUM)


@pytest.mark.thorough
def test_a_day_with_everything_in_postgres(
    tmp_path: Path, postgres_server: PostgresServer, s3_server: S3Server, spark: SparkSession
) -> None:
    """The catalog, the control database and Dagster's own records; the warehouse is on S3."""
    stream, bucket = stream_of_four_days(tmp_path), new_name()
    s3_server.create_bucket(bucket)
    places: dict[str, Any] = {
        "warehouse": f"s3://{bucket}/lake",
        "s3_endpoint": s3_server.endpoint,
        "s3_access_key_id": s3_server.access_key,
        "s3_secret_access_key": s3_server.secret_key,
        **{f"{name}_uri": postgres_server.create_database(new_name()) for name in ("catalog", "control", "dagster")},
    }
    home = tmp_path / "home"
    environment = BRIEF | {f"{ENV_PREFIX}{name.upper()}": value for name, value in places.items()}
    environment |= {"DEDUP_PLATFORM_HOME": str(home), "DEDUP_PLATFORM_STREAMS": str(stream.origin)}
    CommandLine(environment)("run")
    with dagster_dev(environment, tmp_path / "dagster.log", end=signal.SIGKILL) as server:
        a_day(server, stream)
    check(temporary_platform(home, stream, spark, utc_now, **places), stream)
    assert not list(home.rglob("*.db")), "something is in SQLite"
    assert count(places["dagster_uri"], "runs") >= 4


def clicks_of_a_person(browser: Browser, server: Webserver, stream: Stream) -> None:
    """One partition as a run, and a range as a backfill, which is one run, too."""
    key = [stream.name, tables.SESSIONS]
    with materialized(server, key, DAYS[0]):
        materialize(browser, server, key, DAYS[0], "Launch 1 run")
    with materialized(server, key, DAYS[3]):
        materialize(browser, server, key, f"[{DAYS[1]}...{DAYS[3]}]", "Launch backfill")
    assert len({server.materialized_by(key, day) for day in DAYS[1:]}) == 1


def an_outage_and_the_way_out(browser: Browser, server: Webserver, stream: Stream) -> None:
    """Without its folder the stream is red and says what to do; with it again a run by hand makes it green at once."""
    key, root = [stream.name, tables.RAW_EVENTS], stream.files.root
    checks = f"http://127.0.0.1:{server.port}/assets/{'/'.join(key)}?view=checks&checkDetail="
    away = root.rename(root.with_name("away"))
    page = open_page(browser, f"{checks}{health.SOURCE}")
    page.get_by_text("the source's folder cannot be read").first.wait_for()
    page.get_by_text(f"dedup-platform run --stream {stream.name}").first.wait_for()
    picture(page, "outage")
    page.goto(f"{checks}{health.INGEST}")
    page.get_by_text("the ingest is open").first.wait_for()
    page.get_by_text("a run started by hand tries now").first.wait_for()
    away.rename(root)
    materialize(browser, server, key, DAYS[0], "Launch 1 run")
    page.get_by_text("the ingest is normal").first.wait_for()
    page.goto(f"{checks}{health.SOURCE}")
    page.get_by_text("nothing waits").first.wait_for()
    page.close()


@contextmanager
def materialized(server: Webserver, key: list[str], day: str) -> Iterator[None]:
    """Wait at the end of the block until another run than before it has materialized a partition."""
    before = server.materialized_by(key, day)

    def is_done() -> bool:
        run = server.materialized_by(key, day)
        return run != before and server.status(run) == "SUCCESS"

    yield
    wait_until(is_done, f"{key} is materialized for {day}", PATIENCE)


def answers_no_foreign_page(browser: Browser, server: Webserver, stream: Stream) -> None:
    """Whatever a page of somebody else has the browser send: nothing is read, started or deleted."""
    run_id = server.materialized_by([stream.name, tables.SESSIONS], DAYS[0])
    with foreign_pages() as addresses:
        for address in addresses:
            page = open_page(browser, address)
            tried, answers = attempts(page, server, deleting(run_id))
            assert set(tried.values()) == {"refused", "opaque"}, tried
            assert answers == {403}
            page.close()
    assert server.status(run_id) == "SUCCESS"
    page = open_page(browser, f"http://{EVIL}:{server.port}/")
    assert "This server is not called" in page.content()
    page.close()
    own = open_page(browser, f"http://127.0.0.1:{server.port}/server_info")
    tried, _ = attempts(own, server, deleting(run_id))
    assert (tried["post JSON"], tried["read"], tried["open a socket"]) == ("200", "200", "open")
    own.close()
    assert run_id not in {run["runId"] for run in server.runs()}, "the same could have been done by the others"


def a_day(server: Webserver, stream: Stream) -> None:
    answers_its_own_pages_only(server)
    materialize_one_partition(server, stream)
    backfill_a_range(server, stream)
    drop_a_late_file(server, stream)
    kill_the_warm_spark(server)


def check(platform: Platform, stream: Stream) -> None:
    assert wrong_rows(platform, stream.name) == []
    assert is_repaired(platform, stream)


def is_repaired(platform: Platform, stream: Stream) -> bool:
    return not any(plan.stale for plan in platform.plan(stream.name))


def count(uri: str, table: str) -> int:
    engine = sa.create_engine(uri)
    with engine.connect() as connection:
        found = connection.execute(sa.select(sa.func.count()).select_from(sa.table(table))).scalar_one()
    engine.dispose()
    return int(found)


def answers_its_own_pages_only(server: Webserver) -> None:
    mutation = b'{"query": "mutation { deletePipelineRun(runId: \\"none\\") { __typename } }"}'
    own = f"127.0.0.1:{server.port}"
    as_json = {"Content_Type": "application/json"}
    assert server.status_of("GET", "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate") == 200
    assert server.status_of("POST", "/graphql", mutation, **as_json, Origin=f"http://{own}") == 200
    foreign = [
        server.status_of("POST", "/graphql", mutation, **as_json, Origin="http://evil.example"),
        server.status_of("POST", "/graphql", mutation, **as_json, Origin="http://evil.example", Host="evil.example"),
        server.status_of("POST", "/graphql", mutation, Content_Type="text/plain; a=application/json", Origin="null"),
        server.status_of("GET", "/graphql?query=mutation%7BdeletePipelineRun(runId:%22none%22)%7B__typename%7D%7D"),
        server.status_of("GET", "/", Host="evil.example"),
        server.status_of(
            "GET",
            "/graphql",
            Origin="http://evil.example",
            Connection="Upgrade",
            Upgrade="websocket",
            Sec_WebSocket_Version="13",
            Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQ==",
        ),
    ]
    assert foreign == [403] * len(foreign)


def materialize_one_partition(server: Webserver, stream: Stream) -> None:
    run_id = server.materialize([[stream.name, tables.SESSIONS]], DAYS[0])
    wait_until(lambda: server.status(run_id) == "SUCCESS", "the run of one partition succeeds", PATIENCE)
    assert server.materialized_by([stream.name, tables.SESSIONS], DAYS[0]) == run_id


def backfill_a_range(server: Webserver, stream: Stream) -> None:
    backfill_id = server.backfill([[stream.name, table] for table in DERIVED], list(DAYS[1:3]))
    wait_until(
        lambda: server.backfill_status(backfill_id) == "COMPLETED_SUCCESS", "the backfill of a range succeeds", PATIENCE
    )
    [run] = server.runs(**{"dagster/backfill": backfill_id})
    assert [run["tags"][f"dagster/asset_partition_range_{end}"] for end in ("start", "end")] == list(DAYS[1:3])
    assert server.materialized_by([stream.name, tables.SESSIONS], DAYS[2]) == run["runId"]


def drop_a_late_file(server: Webserver, stream: Stream) -> None:
    """It lands in the second day; the sensor asks for that day only."""
    late = record("a", "late", utc("2024-03-02T10:10"), utc("2024-03-20T10:00"), page="/", quantity=1)
    repairs = {"dagster/sensor_name": f"{stream.name}_late_partitions"}
    earlier = {run["runId"] for run in server.runs(**repairs)}

    def new(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [run for run in runs if run["runId"] not in earlier]

    write_batch(stream, lay_out([late], "late.json"))
    sparks = set[int]()

    def is_done() -> bool:
        sparks.update(server.sparks())
        return any(run["status"] == "SUCCESS" for run in new(server.runs(**repairs)))

    wait_until(is_done, "the sensor's repair ends", PATIENCE)
    assert len(sparks) == 1, "a run started a Spark of its own"
    [run] = new(server.runs(**repairs))
    assert [run["tags"][f"dagster/asset_partition_range_{end}"] for end in ("start", "end")] == [DAYS[1]] * 2
    assert run["tags"]["dedup_platform/reason"] == "late"


def kill_the_warm_spark(server: Webserver) -> None:
    """Another one takes its place."""
    [killed] = server.sparks()
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: len(server.sparks() - {killed}) == 1, "a new Spark Connect server is started", PATIENCE)


def stream_of_four_days(folder: Path) -> Stream:
    stream = make_stream(folder, "dagster_dev", start="2024-03-01")
    # Longer than an ingest takes on a busy machine: what has settled by its end, it would repair itself.
    stream.origin.write_text(f"{stream.origin.read_text()}late: {{settle: 10s}}\n")
    stream = load_stream(stream.origin)
    times = [utc(f"{day}T10:0{minute}") for day in DAYS for minute in range(3)]
    write_batch(stream, lay_out([record("a", f"{time}", time, page="/", quantity=1) for time in times], "first.json"))
    return stream
