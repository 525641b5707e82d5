"""Processes that are not to outlive whoever started them."""

import shutil
import subprocess
from collections.abc import Sequence
from functools import cache


def with_parent(command: Sequence[str], signal: str = "KILL") -> list[str]:
    """The command, so that it gets this signal as soon as the thread that started it has ended, however that was.

    Whoever is killed ends nothing that they started. As it is where no `setpriv` can do this (it is Linux's).
    """
    setpriv = _setpriv()
    return [setpriv, "--pdeathsig", signal, *command] if setpriv else list(command)


@cache
def _setpriv() -> str | None:
    """The program; None where there is none, or one that does not know how (those before 2.33, and BusyBox's)."""
    found = shutil.which("setpriv")
    if found and subprocess.run([found, "--pdeathsig", "KILL", "true"], capture_output=True, check=False).returncode:
        return None
    return found
