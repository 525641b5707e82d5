"""The process of a command: how failures and interrupts end it."""

import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any

from rich.text import Text

from dedup_platform.cli.console import EnoughReadError, err, out
from dedup_platform.cli.exits import INTERRUPTED, exit_code, message_of

ON_INTERRUPT: list[Callable[[], None]] = []
"""What the command does before its process ends, should it be interrupted; as far as `SECONDS_TO_END` suffice."""
SECONDS_TO_END = 1.6
_GLANCE = 0.1  # seconds
_LAST_WORDS = "interrupted; what was committed stays, and the next run goes on from there"
_SHOW_CURSOR = "\x1b[?25h"
"""A bar that moves hides it."""
_OBJECTS_BETWEEN_COLLECTIONS = 100_000
"""Loading libraries makes a million objects that stay: to look through them again and again is a tenth of a start."""


def run_to_its_end(app: Callable[[], object]) -> None:
    """Run the command line; every failure becomes one message and an exit code.

    The work has a thread of its own: in the main one, Spark would answer an interrupt itself, with pages of traceback.
    An interrupt ends the process within two seconds whatever that thread is at, a second interrupt at once: all that is
    published is published by one atomic step, so there is nothing that has to be waited for.
    """
    let_children_be_ended()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    codes: list[int] = []
    worker = Thread(target=lambda: codes.append(_apart(app)), daemon=True)
    # Dagster lets what is printed go to a file, and a process of its own copies it: that may come too late.
    terminal = os.dup(sys.__stderr__.fileno()) if sys.__stderr__ else None
    try:
        worker.start()
        # Once Polars is imported an interrupt does not end a wait: it is seen between two.
        while worker.is_alive():
            worker.join(_GLANCE)
        code = codes[0]
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        _end_interrupted(terminal)
    if terminal is not None:
        os.close(terminal)
    sys.exit(code)


def _end_interrupted(terminal: int | None) -> None:
    """Say so and take the notes that are to be taken, as far as that is done soon; then end, whatever else is at work.

    Not by sys.exit, which would wait for Spark.
    """
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    # What the work still says, "equal" among it, is nobody's answer any more.
    out.quiet = err.quiet = True
    last_words = Thread(target=_say_last_words, args=(terminal,), daemon=True)
    last_words.start()
    until = time.monotonic() + SECONDS_TO_END
    while last_words.is_alive() and time.monotonic() < until:
        last_words.join(_GLANCE)
    os._exit(INTERRUPTED)


def _say_last_words(terminal: int | None) -> None:
    if terminal is not None:
        shown = _SHOW_CURSOR if os.isatty(terminal) else ""
        os.write(terminal, f"{shown}\n{_LAST_WORDS}\n".encode())
    for note in ON_INTERRUPT:
        # The others are to be taken all the same, and nobody could do anything about this one.
        with suppress(Exception):
            note()


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


def let_be_interrupted() -> None:
    """Have what this thread becomes, or starts from now on, end by an interrupt again."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _apart(app: Callable[[], object]) -> int:
    # A terminal interrupts all processes that it sees. Those that are started from here would say so, each with a
    # traceback; they end when this one has.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    return _run(app)


def _run(app: Callable[[], object]) -> int:
    try:
        app()
    except SystemExit as ended:
        return int(ended.code or 0)
    except EnoughReadError:
        # What is left would fail once more, when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        # Polars ends what it is at by this, in whichever thread.
        return INTERRUPTED
    except Exception as error:
        if "--debug" in sys.argv:
            traceback.print_exc()
        else:
            err.print("[bold red]error:[/bold red] ", end="")
            err.print(Text(message_of(error)), soft_wrap=True)
        return exit_code(error)
    return 0
