"""What somebody sees of a stream in Dagster's UI, and does about it, in a browser."""

import os
import shlex

from playwright.sync_api import Browser

from dedup_platform import tables
from dedup_platform.planning import health
from dedup_platform.stream import Stream, load_stream
from dedup_platform_tests.end_to_end.browser import open_page, picture
from dedup_platform_tests.end_to_end.conftest import Webserver
from dedup_platform_tests.end_to_end.processes import CommandLine


def what_an_asset_shows(browser: Browser, server: Webserver, stream: Stream, day: str) -> None:
    """Columns, where the table is, sessions that the run changed, and the numbers that matter first as plots."""
    assets = f"http://127.0.0.1:{server.port}/assets/{stream.name}"
    page = open_page(browser, f"{assets}/{tables.SESSIONS}?view=overview")
    page.get_by_text("Who or what the event is of").first.wait_for()
    page.get_by_text(f"lake.{stream.name}.{tables.SESSIONS}", exact=True).first.wait_for()
    page.get_by_text("changed_sessions", exact=True).first.wait_for()
    page.get_by_role("cell", name="new", exact=True).first.wait_for()
    page.get_by_role("cell", name=f"{day} 10:02:00", exact=True).first.wait_for()
    picture(page, "asset")
    for table, plotted in ((tables.SESSIONS, ["rows"]), (tables.DEDUPLICATED_EVENTS, ["late_rows", "duplicates"])):
        page.goto(f"{assets}/{table}?view=overview")
        page.get_by_text("Plots", exact=True).first.click()
        # By partition the UI plots those of the last weeks only.
        page.get_by_text("Events", exact=True).last.click()
        for name in plotted:
            page.get_by_text(name, exact=True).first.wait_for()
        page.locator("canvas").first.wait_for()
        page.locator("canvas").first.scroll_into_view_if_needed()
        picture(page, f"plots-of-{table}")
    page.goto(f"{assets}/{tables.SESSIONS}?view=lineage")
    page.get_by_text(tables.SESSION_FRAGMENTS, exact=True).first.wait_for()
    picture(page, "lineage")
    page.close()


def rejected_and_replayed(browser: Browser, server: Webserver, stream: Stream, command: CommandLine) -> Stream:
    """Somebody sees why records are rejected, corrects the stream file, types what the UI says, and the check is green.

    The stream as the file says now.
    """
    line = '{"id": "other", "entity": "a", "happens": "2024-03-04T10:01:00Z", "arrived": "2024-03-04T10:31:00Z"}'
    write_lines(stream, "other.json", line, line, line, "<img src=x onerror=alert(1)> **x**")
    assets = f"http://127.0.0.1:{server.port}/assets/{stream.name}"
    share = f"{assets}/{tables.RAW_EVENTS}?view=checks&checkDetail={health.REJECTS}"
    page = open_page(browser, f"{assets}/{tables.REJECTED_EVENTS}?view=overview")
    replay = page.get_by_text(f"rejected replay {stream.name} --reason unreadable_event_time").first
    replay.wait_for()
    page.get_by_text("<img src=x onerror=alert(1)> **x**", exact=True).first.wait_for()
    assert not page.locator("img[src='x']").count()
    picture(page, "rejected")
    _, *words = shlex.split(replay.inner_text())
    page.goto(share)
    page.get_by_text("more than health.max_reject_ratio").first.wait_for()
    said = stream.origin.read_text()
    stream.origin.write_text(said.replace("event_time: happened", "event_time: {first_of: [happened, happens]}"))
    assert "3 became events" in command(*words)
    page.get_by_text("1 of 16 records are rejected").first.wait_for()
    page.get_by_text("Passed", exact=True).first.wait_for()
    page.close()
    return load_stream(stream.origin)


def write_lines(stream: Stream, name: str, *lines: str) -> None:
    """A file of the stream that is old enough to be read."""
    path = stream.files.root / name
    path.with_suffix(".new").write_text("".join(f"{line}\n" for line in lines))
    os.utime(path.with_suffix(".new"), (1.7e9, 1.7e9))
    path.with_suffix(".new").rename(path)
