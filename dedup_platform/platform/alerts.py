"""Tells others that a stream's health has changed: posts to a webhook, in a bounded time."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from http.client import HTTPException
from threading import Thread
from typing import Any, Literal
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from dedup_platform.errors import UnreachableError
from dedup_platform.settings import ENV_PREFIX

__all__ = ["Alert", "Failed", "post"]

VARIABLE = f"{ENV_PREFIX}ALERT_WEBHOOK"
SECONDS = 10.0
"""How long a webhook may take, from the first byte sent to the answer."""
_MOST_LETTERS = 2000


@dataclass(frozen=True)
class Failed:
    """A check that failed, on the asset that it is about: what was found, and what to type."""

    asset: str
    check: str
    what: str
    command: str


@dataclass(frozen=True)
class Alert:
    """A stream whose health has changed; healthy again if nothing fails any more."""

    stream: str
    at: datetime
    failed: Sequence[Failed]

    @property
    def is_healthy(self) -> bool:
        """Whether this tells of a recovery."""
        return not self.failed


def body(alert: Alert, form: Literal["json", "slack"]) -> Mapping[str, Any]:
    """What is posted: `{"text": …}` for Slack, else the stream, whether it is healthy, when, and what failed."""
    if form == "slack":
        return {"text": _slack_text(alert)}
    failed = [asdict(each) for each in alert.failed]
    return {"stream": alert.stream, "healthy": alert.is_healthy, "at": alert.at.isoformat(), "failed": failed}


def post(address: str, alert: Alert, form: Literal["json", "slack"], seconds: float = SECONDS) -> None:
    """Post an alert; UnreachableError, which does not name the address, if it was not taken in time."""
    posting = _Posting(address, json.dumps(body(alert, form)).encode(), seconds)
    posting.start()
    posting.join(seconds)
    # A server that answers letter by letter keeps within any limit on the next letter.
    if posting.is_alive():
        raise UnreachableError(VARIABLE, f"it did not answer within {seconds:g} seconds")
    if posting.trouble:
        raise UnreachableError(VARIABLE, posting.trouble)


class _NoRedirects(HTTPRedirectHandler):
    """What is posted to one address is not handed on to another."""

    def redirect_request(self, *_: Any) -> None:
        return None


class _Posting(Thread):
    def __init__(self, address: str, content: bytes, seconds: float) -> None:
        super().__init__(daemon=True)
        self._request = Request(address, content, {"Content-Type": "application/json"}, method="POST")
        self._seconds = seconds
        self.trouble: str | None = None

    def run(self) -> None:
        try:
            with build_opener(_NoRedirects).open(self._request, timeout=self._seconds):
                pass
        except HTTPError as error:
            error.close()
            self.trouble = f"it answered {error.code}"
        except URLError as error:
            self.trouble = str(error.reason)
        except TimeoutError:
            self.trouble = "it did not answer in time"
        except (OSError, HTTPException, ValueError) as error:
            # What these say may hold the address.
            self.trouble = type(error).__name__


def _slack_text(alert: Alert) -> str:
    if alert.is_healthy:
        return f":white_check_mark: *{alert.stream}* is healthy again"
    lines = [f"{_escaped(each.check)}: {_escaped(each.what)}\ntype `{_escaped(each.command)}`" for each in alert.failed]
    return "\n".join([f":red_circle: *{alert.stream}* is unhealthy", *lines])


def _escaped(text: str) -> str:
    """As Slack wants it, so that no text becomes a link or calls a channel (api.slack.com, formatting text)."""
    shown = text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
