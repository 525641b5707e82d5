"""The failures that the platform can name.

DedupPlatformError
├── StreamFileError          a stream file says something that it may not say; lists every problem
├── SettingsError            the deployment's settings (environment) cannot be used
├── AlreadyThereError        what was to be written is there already; nothing was changed
├── UnreachableError         a database or catalog that the settings name does not answer, or refuses us
├── InferenceError           a sample does not tell what a stream file must say, or has not what was named
├── UnknownStreamError       no stream file has this name
├── SourceError              the source cannot be read (a missing folder, no permission)
├── SourceChangedError       a file changed after it was read
├── SinkError                the store of a sink does not answer, or cannot do what it is asked
├── RefusedRowsError         the store of a sink does not take a row
├── LostRecordsError         the source no longer holds records that were not read yet
├── UnknownFileError         no file of this path can be accepted, or skipped
├── UnknownOffsetsError      offsets that are to be skipped do not wait to be read
├── UnknownRecordError       no rejected record has these coordinates
├── QueryError               a question in SQL cannot be answered: a mistake in it, or it would write
├── DeadlyRecordError        a record ended the process that decoded it again; nothing was changed
├── SparkServerError         the Spark Connect server is not there, or went away in the middle of the work
├── MissingPartError         Java, or a server that tests need, is not installed; says how to install it
├── WrongJarError            a jar is not the one that the project knows
├── ServerStartError         jars could not be had, or a server did not start; shows the end of what was printed
├── ConflictError            someone else committed first; run again
│   ├── SinkTakenError       someone else publishes to the same sink now
│   ├── OutdatedTokenError   a table refuses the token of whoever writes to it
│   ├── ClaimLostError       someone else took over what this process was at
│   └── StreamInUseError     someone else works on a stream that was to be taken away
├── ClockBehindError         Spark's clock is behind the time of a table's newest commit; nothing was changed
├── EmptyStreamError         records were taken in, and none became an event, or a part of a session
├── HeldBatchError           too large a share of a batch would be rejected; nothing was published
├── ConservationError        counts do not balance; nothing was published
├── NewerVersionError        what a newer version of the platform wrote, which this one cannot read
└── IncompatibleChangeError  the stream file differs from its tables in a way that is refused
"""

from collections.abc import Iterable

from dedup_platform.escapes import one_line

__all__ = [
    "AlreadyThereError",
    "ClockBehindError",
    "ConflictError",
    "ConservationError",
    "DeadlyRecordError",
    "DedupPlatformError",
    "EmptyStreamError",
    "HeldBatchError",
    "IncompatibleChangeError",
    "InferenceError",
    "LostRecordsError",
    "MissingPartError",
    "NewerVersionError",
    "QueryError",
    "RefusedRowsError",
    "ServerStartError",
    "SettingsError",
    "SinkError",
    "SourceChangedError",
    "SourceError",
    "SparkServerError",
    "StreamFileError",
    "UnknownFileError",
    "UnknownOffsetsError",
    "UnknownRecordError",
    "UnknownStreamError",
    "UnreachableError",
    "WrongJarError",
]


class DedupPlatformError(Exception):
    """Everything that the platform raises on purpose. The message is one that a user can act on."""


class StreamFileError(DedupPlatformError):
    """One or more problems in stream files, each as `file:line: key: what is wrong; what is allowed`."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*map(one_line, problems))

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems in the order of the files' lines."""
        return self.args

    def __str__(self) -> str:
        return "\n".join(self.args)


class SettingsError(DedupPlatformError):
    """A setting is missing or unusable; the message names the environment variable."""


class AlreadyThereError(DedupPlatformError):
    """A file at `path` was to be made, and something is there: nothing is ever overwritten."""

    def __init__(self, path: object, instead: str) -> None:
        super().__init__(str(path), instead)

    def __str__(self) -> str:
        path, instead = self.args
        return f"{one_line(path)} is there already, and nothing was changed; {instead}"


class UnreachableError(DedupPlatformError):
    """What the environment variable `variable` names does not answer, or refuses us."""

    def __init__(self, variable: str, reason: str) -> None:
        super().__init__(variable, reason)
        self.variable = variable

    def __str__(self) -> str:
        return f"{self.variable}: {self.args[1]}. Is it there, and are user and password right?"


class LockedError(UnreachableError):
    """Another process kept the SQLite file that `variable` names locked for so many seconds."""

    def __init__(self, variable: str, file: str, seconds: float) -> None:
        super().__init__(variable, f"another process has kept {file} locked for {seconds:g} seconds")
        self.file = file

    def __str__(self) -> str:
        return (
            f"{self.variable}: {self.args[1]}. Run again when it is done. `fuser {self.file}` tells which it is: if it "
            "does nothing any more, end it."
        )


class InferenceError(DedupPlatformError):
    """What was read at `place` does not tell what a stream file must say, or has not what was named."""

    def __init__(self, place: object, reason: str) -> None:
        super().__init__(str(place), reason)

    def __str__(self) -> str:
        place, reason = self.args
        return f"{one_line(place)}: {one_line(reason)}"


class UnknownStreamError(DedupPlatformError):
    """No stream of this name is known."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        super().__init__(name, tuple(sorted(known)))
        self.name = name

    def __str__(self) -> str:
        known = ", ".join(self.args[1]) or "none"
        return f"there is no stream named {self.name!r}; known streams: {known}"


class SourceError(DedupPlatformError):
    """The source at `path` cannot be read at all (a single damaged file rejects records instead)."""

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(str(path), reason)
        self.path = str(path)

    def __str__(self) -> str:
        return f"{one_line(self.path)}: {self.args[1]}"


class SourceChangedError(DedupPlatformError):
    """A file changed after it was read, or while it was being read."""


class SinkError(DedupPlatformError):
    """The store of a sink does not answer, or cannot do what it is asked. What was being written is there or is not.

    What is `lasting` does not pass by itself: somebody must change something first.
    """

    def __init__(self, stream: str, sink: str, reason: str, lasting: bool = False) -> None:
        super().__init__(stream, sink, reason)
        self.reason, self.lasting = reason, lasting

    def __str__(self) -> str:
        stream, sink, reason = self.args
        return f"{stream}: sink {sink}: {reason}"


class RefusedRowsError(DedupPlatformError):
    """The store of a sink does not take some row of what it was given; nothing of it was written."""


class LostRecordsError(DedupPlatformError):
    """A topic lost what was not read yet, or began anew: it says what, and how to go on."""


class UnknownFileError(DedupPlatformError):
    """A file was named that cannot be accepted, as it did not change, or cannot be skipped, as it does not wait."""


class UnknownOffsetsError(DedupPlatformError):
    """Offsets that are to be skipped were read already, or are not there."""


class UnknownRecordError(DedupPlatformError):
    """No rejected record has these coordinates: it was never there, or it is an event by now."""


class QueryError(DedupPlatformError):
    """A statement in SQL has a mistake, asks for what is not there, or does something else than read."""


class DeadlyRecordError(DedupPlatformError):
    """A record ended the process that decoded it again: a fault in a library, or a limit of memory or time."""


class SparkServerError(DedupPlatformError):
    """No Spark Connect server answers at `remote`, or it ended in the middle of the work."""

    def __init__(self, remote: str, reason: str) -> None:
        # Behind the address there may be a token.
        self.remote = remote.partition("/;")[0]
        super().__init__(self.remote, reason)

    def __str__(self) -> str:
        return f"the Spark Connect server {self.remote} {self.args[1]}"


class MissingPartError(DedupPlatformError):
    """A program or jar that something is started with is not on this machine; `install` is how to get it."""

    def __init__(self, part: str, install: str) -> None:
        super().__init__(part, install)

    def __str__(self) -> str:
        part, install = self.args
        return f"{part} is not installed; get it with: {install}"


class WrongJarError(DedupPlatformError):
    """A jar at `path` has another SHA-256 than the one of its version that the project knows."""

    def __init__(self, path: str, found: str) -> None:
        super().__init__(path, found)

    def __str__(self) -> str:
        path, found = self.args
        return (
            f"{path}: this is not the jar that was tested (its SHA-256 is {found}). Delete it, and the cache beside "
            "its folder, and run again: it is downloaded anew. If it comes again, whoever it comes from changed it"
        )


class ServerStartError(DedupPlatformError):
    """What was started ended, or did not answer in time; `printed` is the end of its log."""

    def __init__(self, name: str, reason: str, printed: str) -> None:
        super().__init__(name, reason, printed)

    def __str__(self) -> str:
        name, reason, printed = self.args
        return f"{name} {reason}. The end of what it printed:\n{printed}"


class ConflictError(DedupPlatformError):
    """Someone else committed to the table first. Nothing was written; run again."""

    retryable = True


class SinkTakenError(ConflictError):
    """Someone else has opened the sink since, or it is not where it was: nothing was written."""

    def __init__(self, stream: str, sink: str) -> None:
        super().__init__(stream, sink)

    def __str__(self) -> str:
        stream, sink = self.args
        return f"{stream}: sink {sink}: another process publishes to it now; nothing was written"


class OutdatedTokenError(ConflictError):
    """A table has seen a larger token than the writer's, `seen`: nothing was written."""

    def __init__(self, stream: str, table: str, seen: int) -> None:
        super().__init__(stream, table, seen)
        self.seen = seen

    def __str__(self) -> str:
        stream, table, seen = self.args
        return f"{stream}.{table}: a claim with a newer token ({seen}) came in between; nothing was written. Run again."


class ClaimLostError(ConflictError):
    """Another process took over what this one was at, because it gave no sign of life; nothing was written."""

    def __init__(self, stream: str, target: str) -> None:
        super().__init__(stream, target)

    def __str__(self) -> str:
        stream, target = self.args
        return f"{stream}.{target}: another process took over, as this one gave no sign of life; nothing was written"


class StreamInUseError(ConflictError):
    """Somebody works on a stream that is to be begun anew or taken away: `at_work` says who is at what."""

    def __init__(self, stream: str, at_work: Iterable[str]) -> None:
        super().__init__(stream, tuple(at_work))

    def __str__(self) -> str:
        stream, at_work = self.args
        return f"{stream}: {', '.join(at_work)}. Nothing was changed. Wait until they are done, or end them; then again"


class FilesReplacedError(ConflictError):
    """Someone else replaced files that were to be replaced: what was made of them is of no use any more."""


class ClockBehindError(DedupPlatformError):
    """A procedure of Iceberg's refused to commit at a time before the table's newest commit. Nothing was changed."""


class EmptyStreamError(DedupPlatformError):
    """Records were taken in, and none became an event, or none a part of a session. Nothing is lost by it."""


class HeldBatchError(DedupPlatformError):
    """Too large a share of a batch would be rejected; nothing was published. `batch` is what a person may accept."""

    def __init__(self, message: str, batch: str) -> None:
        super().__init__(message, batch)
        self.batch = batch

    def __str__(self) -> str:
        return str(self.args[0])


class ConservationError(DedupPlatformError):
    """What was read and what would be written do not balance; nothing was published."""


class NewerVersionError(DedupPlatformError):
    """What a newer version of the platform wrote, which this one cannot read; nothing was changed."""


class IncompatibleChangeError(DedupPlatformError):
    """The stream file differs from the existing tables in a way that cannot be recomputed; it names both sides."""
