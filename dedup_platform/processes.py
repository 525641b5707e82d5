"""Processes that are not to outlive whoever started them."""

import shutil
from collections.abc import Sequence


def with_parent(command: Sequence[str]) -> list[str]:
    """The command, so that it is killed as soon as the thread that started it has ended, however that was.

    Whoever is killed ends nothing that they started. As it is where there is no `setpriv` (it is Linux's).
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", *command] if setpriv else list(command)
