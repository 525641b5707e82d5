"""How a command ends: its exit code, and what is printed of a failure."""

from dedup_platform import errors
from dedup_platform.escapes import one_line

NOT_EQUAL = 1
UNHEALTHY = 1
REFUSED = 4
FAILED = 5
INTERRUPTED = 130
EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (errors.StreamFileError, 2),
    (errors.SettingsError, 2),
    (errors.AlreadyThereError, 2),
    (errors.InferenceError, 2),
    (errors.UnknownStreamError, 2),
    (errors.UnknownFileError, 2),
    (errors.UnknownOffsetsError, 2),
    (errors.UnknownRecordError, 2),
    (errors.QueryError, 2),
    (errors.ConflictError, 3),
    (errors.SourceChangedError, 3),
    (errors.IncompatibleChangeError, 4),
    (errors.NewerVersionError, 4),
    (errors.ConservationError, 4),
    (errors.HeldBatchError, 4),
    (errors.LostRecordsError, 4),
)
_OF_LINES = (errors.StreamFileError, errors.SettingsError, errors.ServerStartError)
"""Failures of several lines, all of them ours. In others a line could be somebody else's."""


def exit_code(error: Exception) -> int:
    """What HELP promises for a failure."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), FAILED)


def message_of(error: Exception) -> str:
    """What to print of a failure: all that the platform says, the first line of what anybody else says."""
    if isinstance(error, _OF_LINES):
        return str(error)
    if isinstance(error, errors.DedupPlatformError):
        return one_line(str(error))
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first} (--debug before the command shows where)"
