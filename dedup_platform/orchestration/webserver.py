"""`python -m dedup_platform.orchestration.webserver`: Dagster's web server, which answers its own pages only.

Dagster's own asks nobody who they are, and answers whatever page is open in a browser of this machine: such a page
could start and delete runs, also by a name of its own that it lets stand for 127.0.0.1 (DNS rebinding).
"""

from urllib.parse import urlsplit

from dagster_webserver import app
from dagster_webserver.cli import main
from dagster_webserver.webserver import DagsterWebserver
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dedup_platform.settings import ENV_PREFIX, load_settings

__all__ = ["OwnPagesOnly", "refusal"]

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
_POLICY_VIOLATION = 1008  # RFC 6455, 7.4.1


def refusal(scope: Scope, hosts: frozenset[str]) -> str | None:
    """Why a request, or the opening of a WebSocket, is refused; None if it is not.

    Browsers tell where a request comes from by `Origin` (Fetch standard, 3.2) and `Sec-Fetch-Site` (W3C Fetch
    Metadata). What is no browser tells neither, and is let in: it could say anything.
    """
    headers = Headers(scope=scope)
    host = headers.get("host", "")
    name = _host_name(host)
    if name not in hosts:
        return f"This server is not called {name!r}. Add the name to {ENV_PREFIX}UI_HOSTS if it is."
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        return "Pages of other origins are not answered."
    is_graphql = scope["path"].rstrip("/").endswith("/graphql")
    # A link from elsewhere may lead to a page.
    is_visit = scope.get("method") == "GET" and headers.get("sec-fetch-mode") == "navigate" and not is_graphql
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not is_visit:
        return "Pages of other sites are not answered."
    if is_graphql and scope.get("method") in ("GET", "HEAD") and scope["query_string"]:
        return "Queries are not taken from addresses: a link or a picture could be one. Send them by POST."
    return None


def _host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


class OwnPagesOnly:
    """ASGI middleware: what is refused gets 403, and no page of another site shows ours inside of its own."""

    def __init__(self, application: ASGIApp, hosts: frozenset[str]) -> None:
        self._application = application
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on what is not refused."""
        if scope["type"] not in ("http", "websocket"):
            await self._application(scope, receive, send)
            return
        reason = refusal(scope, self._hosts)
        if reason is None:
            await self._application(scope, receive, _unframed(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        else:
            await PlainTextResponse(reason, 403)(scope, receive, send)


def _unframed(send: Send) -> Send:
    async def send_unframed(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["X-Frame-Options"] = "DENY"
        await send(message)

    return send_unframed


class _Webserver(DagsterWebserver):
    def build_middleware(self) -> list[Middleware]:
        hosts = LOOPBACK_NAMES | (load_settings().ui_hosts or frozenset())
        return [Middleware(OwnPagesOnly, hosts), *super().build_middleware()]


if __name__ == "__main__":
    # Dagster has no other place for a middleware.
    app.DagsterWebserver = _Webserver  # type: ignore[attr-defined]
    main()
