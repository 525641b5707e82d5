"""A headless Chromium: as people use the UI, and as a page of somebody else would."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from dedup_platform_tests.end_to_end.conftest import PATIENCE, Webserver
from dedup_platform_tests.servers import serving

EVIL = "evil.example"
"""A name that the browser takes for this machine's, as one could that an attacker's name server answers for."""
NO_CHROMIUM = "the UI was not tried in a browser: there is no Chromium (Debian: apt-get install chromium)"
_COMMANDS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--no-sandbox",  # which root must do without; only pages of this machine are opened
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--host-resolver-rules=MAP {EVIL} 127.0.0.1",
)


def chromium_command() -> str | None:
    """Where the browser is; None if it is not installed."""
    return next(filter(None, map(shutil.which, _COMMANDS)), None)


_WITHOUT_FOLDERS_OF_TESTS = r"""() => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const text = texts.currentNode;
        const shown = text.data.replace(/\/\S*\/pytest-of-[^\/]+\/[^\/]+\/[^\/]+\//g, "/data/");
        if (shown !== text.data) text.data = shown;
    }
}"""


@contextmanager
def chromium(command: str) -> Iterator[Browser]:
    """The browser while the block runs."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=command, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def open_page(browser: Browser, address: str) -> Page:
    """A page that does not know of the ones before it."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.set_default_timeout(PATIENCE * 1000)
    page.goto(address)
    return page


def picture(page: Page, name: str) -> None:
    """The page as it looks now, for docs/pictures: in the folder that the variable PICTURES names, if it does."""
    if folder := os.environ.get("PICTURES"):
        # What is drawn last moves to its place.
        page.wait_for_timeout(3000)
        page.evaluate(_WITHOUT_FOLDERS_OF_TESTS)
        page.screenshot(path=Path(folder, f"{name}.png"))


def materialize(browser: Browser, server: Webserver, key: Sequence[str], partitions: str, button: str) -> None:
    """What a person clicks to have partitions of an asset materialized, as the UI wants them written."""
    page = open_page(browser, f"http://127.0.0.1:{server.port}/assets/{'/'.join(key)}?view=overview")
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_role("button", name="Show all partitions").click()
    field = page.get_by_placeholder("ex: ")
    field.fill(partitions)
    field.press("Enter")
    # The dialog asks for much whose name begins so; only what it launches is a mutation.
    with page.expect_response(lambda answer: "mutation Launch" in (answer.request.post_data or "")):
        page.get_by_role("button", name=button).click()
    page.context.close()


_ATTEMPTS = """async ([ui, query]) => {
    const tried = {};
    const attempt = async (name, work) => {
        try { tried[name] = String(await work()); } catch (error) { tried[name] = "refused"; }
    };
    const body = JSON.stringify({query});
    const as = (type) => ({method: "POST", headers: {"Content-Type": type}, body});
    const post = (type, more) => fetch(`${ui}/graphql`, {...as(type), ...more});
    await attempt("post JSON", async () => (await post("application/json")).status);
    await attempt("post a text and read", async () => (await post("text/plain")).status);
    await attempt("post a text unseen", async () => (await post("text/plain", {mode: "no-cors"})).type);
    await attempt("read", async () => (await fetch(`${ui}/server_info`)).status);
    await attempt("read unseen", async () => (await fetch(`${ui}/server_info`, {mode: "no-cors"})).type);
    await attempt("open a socket", () => new Promise((opened, failed) => {
        const socket = new WebSocket(`${ui.replace("http", "ws")}/graphql`, "graphql-ws");
        socket.onopen = () => opened("open");
        socket.onerror = failed;
    }));
    const settled = (element, where) => new Promise((settle) => {
        element.onload = () => settle("loaded");
        element.onerror = () => settle("refused");
        if (where) where(element);
        document.body.append(element);
    });
    const address = `${ui}/graphql?query=${encodeURIComponent(query)}`;
    await attempt("show an image", () => settled(document.createElement("img"), (image) => { image.src = address; }));
    const frame = document.createElement("iframe");
    frame.name = "into";
    await settled(frame, (frame) => { frame.src = ui; });
    const form = document.createElement("form");
    Object.assign(form, {method: "POST", action: `${ui}/graphql`, enctype: "text/plain", target: "into"});
    const field = document.createElement("input");
    Object.assign(field, {name: body.slice(0, -1) + ', "x": "', value: '"}'});
    form.append(field);
    document.body.append(form);
    const sent = new Promise((settle) => { frame.onload = settle; });
    form.submit();
    await sent;
    return tried;
}"""


def attempts(page: Page, server: Webserver, query: str) -> tuple[dict[str, str], set[int]]:
    """What a page is told of all the ways in which it can have a browser send a query to the UI.

    And how the UI answered them: a page cannot see that of each.
    """
    ui = f"http://127.0.0.1:{server.port}"
    answers = set[int]()
    page.on("response", lambda answer: answers.add(answer.status) if answer.url.startswith(f"{ui}/graphql") else None)
    tried: dict[str, str] = page.evaluate(_ATTEMPTS, [ui, query])
    return tried, answers


@contextmanager
def foreign_pages() -> Iterator[list[str]]:
    """The addresses of an empty page: of another port, and of another name."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><body>")

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    with serving(Handler) as port:
        yield [f"http://{name}:{port}/" for name in ("127.0.0.1", EVIL)]


def deleting(run_id: str) -> str:
    """The mutation that deletes a run."""
    return f"mutation {{ deletePipelineRun(runId: {json.dumps(run_id)}) {{ __typename }} }}"
