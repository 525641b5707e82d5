"""The process of a command: how failures and interrupts end it."""

import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable
from threading import Thread
from typing import Any

from rich.text import Text

from dedup_platform.cli.console import EnoughReadError, err
from dedup_platform.cli.exits import INTERRUPTED, exit_code, message_of

ON_INTERRUPT: list[Callable[[], None]] = []
"""What the command says of itself before its process ends, should it be interrupted."""
_GLANCE = 0.1  # seconds
_OBJECTS_BETWEEN_COLLECTIONS = 100_000
"""Loading libraries makes a million objects that stay: to look through them again and again is a tenth of a start."""


def run_to_its_end(app: Callable[[], object]) -> None:
    """Run the command line; every failure becomes one message and an exit code.

    The work has a thread of its own: in the main one, Spark would answer an interrupt itself, with pages of traceback.
    """
    let_children_be_ended()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    codes: list[int] = []
    worker = Thread(target=lambda: codes.append(_run(app)), daemon=True)
    worker.start()
    try:
        # Once Polars is imported an interrupt does not end a wait: it is seen between two.
        while worker.is_alive():
            worker.join(_GLANCE)
    except KeyboardInterrupt:
        err.print()
        err.print("interrupted; what was committed stays, and the next run goes on from there")
        try:
            for note in ON_INTERRUPT:
                note()
        finally:
            # Not sys.exit, which would wait for Spark.
            os._exit(INTERRUPTED)
    sys.exit(codes[0])


def let_children_be_ended() -> None:
    """Have processes that are started from here end by SIGTERM, also where whoever started this one let it ignore that.

    Children inherit it. Dagster's copies of captured logs, which it ends so, would live for ever and hold our output.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        # This process goes on to ignore it; a function is no child's.
        signal.signal(signal.SIGTERM, _ignore)


def _ignore(*_: Any) -> None:
    pass


def _run(app: Callable[[], object]) -> int:
    try:
        app()
    except SystemExit as ended:
        return int(ended.code or 0)
    except EnoughReadError:
        # What is left would fail once more, when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if "--debug" in sys.argv:
            traceback.print_exc()
        else:
            err.print("[bold red]error:[/bold red] ", end="")
            err.print(Text(message_of(error)), soft_wrap=True)
        return exit_code(error)
    return 0
