"""What is posted to a webhook, by a real server: what it gets, and that no answer of it holds anybody for long."""

import time
from datetime import UTC, datetime

import pytest

from dedup_platform.errors import SettingsError, UnreachableError
from dedup_platform.platform.alerts import Alert, Failed, post
from dedup_platform.settings import load_settings
from dedup_platform_tests.servers import WEBHOOK_PATH, webhook

AT = datetime(2024, 3, 1, tzinfo=UTC)
GONE = Alert("clicks", AT, [Failed("clicks/raw_events", "source_reachable", "<!channel> & gone", "dedup-platform run")])


def test_an_object_or_a_message_for_slack_is_posted() -> None:
    with webhook() as (address, got):
        post(address, GONE, "json")
        post(address, GONE, "slack")
        post(address, Alert("clicks", AT, []), "json")
        post(address, Alert("clicks", AT, []), "slack")
    assert {path for path, _ in got} == {WEBHOOK_PATH}
    failed = {"asset": "clicks/raw_events", "check": "source_reachable", "what": "<!channel> & gone"}
    assert [told for _, told in got] == [
        {
            "stream": "clicks",
            "healthy": False,
            "at": "2024-03-01T00:00:00+00:00",
            "failed": [failed | {"command": "dedup-platform run"}],
        },
        {
            "text": ":red_circle: *clicks* is unhealthy\n"
            "source_reachable: &lt;!channel&gt; &amp; gone\ntype `dedup-platform run`"
        },
        {"stream": "clicks", "healthy": True, "at": "2024-03-01T00:00:00+00:00", "failed": []},
        {"text": ":white_check_mark: *clicks* is healthy again"},
    ]


@pytest.mark.parametrize(
    ("status", "said"), [(500, "it answered 500"), (404, "it answered 404"), (302, "it answered 302")]
)
def test_an_answer_that_is_no_success_is_an_error_without_the_address(status: int, said: str) -> None:
    with webhook(status) as (address, got), pytest.raises(UnreachableError, match=said) as error:
        post(address, GONE, "json")
    assert len(got) == 1, "what is posted to one address is not handed on to another"
    assert "secret" not in str(error.value)


def test_a_server_that_answers_letter_by_letter_is_left_in_time() -> None:
    with webhook(seconds=0.9) as (address, _):
        begun = time.monotonic()
        with pytest.raises(UnreachableError, match=r"did not answer within 0\.3 seconds"):
            post(address, GONE, "json", seconds=0.3)
        assert time.monotonic() - begun < 0.8


def test_nobody_at_home_is_an_error() -> None:
    with pytest.raises(UnreachableError, match=r"ALERT_WEBHOOK: .*refused") as error:
        post(f"http://127.0.0.1:1{WEBHOOK_PATH}", GONE, "json")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "address", ["hooks.example/x", "ftp://hooks.example/x", "https://", "https://hooks.example/x\n"]
)
def test_what_is_no_address_is_refused_and_not_shown(address: str) -> None:
    with pytest.raises(SettingsError, match=r"^DEDUP_PLATFORM_ALERT_WEBHOOK: ") as error:
        load_settings(alert_webhook=address)
    assert "hooks" not in str(error.value)
    assert "hooks" not in repr(load_settings(alert_webhook="https://hooks.example/x"))
