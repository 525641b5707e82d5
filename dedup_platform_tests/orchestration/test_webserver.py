"""Whom Dagster's web server answers, by the headers that browsers send."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from dedup_platform.errors import SettingsError
from dedup_platform.orchestration.webserver import LOOPBACK_NAMES, OwnPagesOnly, refusal
from dedup_platform.settings import ENV_PREFIX, load_settings

HOSTS = LOOPBACK_NAMES | {"ui.example"}
SAME = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}
CROSS = {"sec-fetch-site": "cross-site"}


def scope(method: str = "POST", path: str = "/graphql", kind: str = "http", **headers: str) -> dict[str, Any]:
    path, _, query = path.partition("?")
    named = {"host": "127.0.0.1:3000"} | {name.replace("_", "-"): value for name, value in headers.items()}
    raw = [(name.encode(), value.encode()) for name, value in named.items()]
    found = {"type": kind, "method": method, "path": path, "query_string": query.encode(), "headers": raw}
    return found if kind == "http" else {name: value for name, value in found.items() if name != "method"}


@pytest.mark.parametrize(
    "asked",
    [
        scope(),
        scope(origin="http://127.0.0.1:3000", **SAME),
        scope(host="localhost:3000", origin="http://localhost:3000"),
        scope(host="LOCALHOST:3000", origin="http://localhost:3000"),
        scope(host="localhost.:3000"),
        scope(host="[::1]:3000", origin="http://[::1]:3000"),
        scope(host="ui.example", origin="https://ui.example", **SAME),
        scope(kind="websocket", origin="http://127.0.0.1:3000"),
        scope("GET", "/runs?a=b", **{"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}),
        scope("GET", "/runs?a=b", **CROSS, **{"sec-fetch-mode": "navigate"}),
        scope("GET", "/graphql", **{"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}),
    ],
)
def test_its_own_pages_and_what_is_no_browser_are_answered(asked: dict[str, Any]) -> None:
    assert refusal(asked, HOSTS) is None


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (scope(host="evil.example"), "This server is not called 'evil.example'"),
        (scope(host="evil.example:3000", origin="http://evil.example:3000", **SAME), "is not called 'evil.example'"),
        (scope(host="127.0.0.1.evil.example"), "is not called"),
        (scope(host="localhost@evil.example"), "is not called"),
        (scope(host=""), "is not called ''"),
        (scope(host="[evil"), "is not called ''"),
        (scope(origin="http://evil.example"), "Pages of other origins"),
        (scope(origin="http://127.0.0.1:8000"), "Pages of other origins"),
        (scope(origin="null"), "Pages of other origins"),
        (scope(origin=""), "Pages of other origins"),
        (scope(kind="websocket", origin="http://evil.example"), "Pages of other origins"),
        (scope("GET", "/server_info", **CROSS, **{"sec-fetch-mode": "no-cors"}), "Pages of other sites"),
        (scope("GET", "/logs/x", **{"sec-fetch-site": "same-site"}), "Pages of other sites"),
        (scope("POST", "/runs", **CROSS, **{"sec-fetch-mode": "navigate"}), "Pages of other sites"),
        (scope("GET", "/graphql", **CROSS, **{"sec-fetch-mode": "navigate"}), "Pages of other sites"),
        (scope("GET", "/graphql?query=mutation{a}"), "Queries are not taken from addresses"),
        (scope("GET", "/graphql/?query={a}", **SAME), "Queries are not taken from addresses"),
        (scope("HEAD", "/prefix/graphql?query={a}"), "Queries are not taken from addresses"),
    ],
)
def test_what_another_page_may_have_sent_is_not(asked: dict[str, Any], reason: str) -> None:
    assert reason in (refusal(asked, HOSTS) or "")


def answers(asked: dict[str, Any]) -> list[MutableMapping[str, Any]]:
    """What goes out when a server that answers anything is asked through the middleware."""
    sent: list[MutableMapping[str, Any]] = []

    async def application(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    asyncio.run(OwnPagesOnly(application, HOSTS)(asked, receive, send))
    return sent


def test_no_other_page_shows_ours_inside_of_its_own() -> None:
    [start] = answers(scope())
    assert (start["status"], start["headers"]) == (200, [(b"x-frame-options", b"DENY")])


def test_what_is_refused_is_not_passed_on() -> None:
    start, body = answers(scope(host="evil.example"))
    assert start["status"] == 403
    assert f"{ENV_PREFIX}UI_HOSTS".encode() in body["body"]
    assert answers(scope(kind="websocket", origin="http://evil.example")) == [{"type": "websocket.close", "code": 1008}]


def test_its_other_names_are_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().ui_hosts is None
    monkeypatch.setenv(f"{ENV_PREFIX}UI_HOSTS", "UI.example, 10.0.0.7,,fe80::1")
    assert load_settings().ui_hosts == frozenset({"ui.example", "10.0.0.7", "fe80::1"})


@pytest.mark.parametrize("wrong", ["http://ui.example", "ui.example:3000", "*", "a b"])
def test_a_setting_that_names_no_hosts_is_refused(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv(f"{ENV_PREFIX}UI_HOSTS", wrong)
    with pytest.raises(SettingsError, match="UI_HOSTS"):
        load_settings()
