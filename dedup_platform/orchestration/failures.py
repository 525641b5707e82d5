"""What fails in a run is told in a sentence and with what to type; the stack of what was raised stays behind it."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from dedup_platform.escapes import one_line
from dedup_platform.ingest.attempts import reason_of

__all__ = ["as_raised", "told"]


@contextmanager
def told(command: str) -> Iterator[None]:
    """A step, or a part of one, whose failure is shown with a command that tries it again, or gets it out of the way.

    An interruption is no failure, and passes as it is.
    """
    try:
        yield
    except dg.Failure:
        raise
    except Exception as error:
        reason = one_line(reason_of(error))
        # Many of ours name the command that helps first.
        following = f"then start the run again, or type `{command}`: either tries at once"
        words = f"{reason.rstrip('.')}; {following}" if "`dedup-platform" in reason else ""
        sentence = words or f"{reason.rstrip('.')}. Mend that, {following}"
        metadata = {"command": command, "error": type(error).__name__}
        raise dg.Failure(sentence, metadata=metadata) from error


@contextmanager
def as_raised() -> Iterator[None]:
    """For whoever executes a run in this process: what a step raised comes through as it was."""
    try:
        yield
    except dg.Failure as failure:
        if failure.__cause__:
            raise failure.__cause__ from None
        raise
