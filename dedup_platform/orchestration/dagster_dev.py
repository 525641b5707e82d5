"""`python -m dedup_platform.orchestration.dagster_dev`: `dagster dev` with our web server in the place of Dagster's."""

from collections.abc import Sequence
from subprocess import Popen
from typing import Any

from dagster._cli import dev

_THEIRS, _OURS = "dagster_webserver", "dedup_platform.orchestration.webserver"
_open_process = dev.open_ipc_subprocess  # type: ignore[attr-defined]


def _with_our_webserver(parts: Sequence[str], **kwargs: Any) -> Popen[Any]:
    return _open_process([_OURS if part == _THEIRS else part for part in parts], **kwargs)


if __name__ == "__main__":
    # `dagster dev` names the module of its web server nowhere else.
    dev.open_ipc_subprocess = _with_our_webserver  # type: ignore[attr-defined]
    dev.dev_command()
