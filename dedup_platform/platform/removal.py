"""Takes what was made of a stream away: all of its tables, and what the control database knows of them."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from dedup_platform.errors import SourceError, StreamInUseError
from dedup_platform.ingest.gone import gone_files
from dedup_platform.lake.removal import TableRemoval, TableSize
from dedup_platform.ledger import Boards, Health
from dedup_platform.planning.claims import is_live
from dedup_platform.platform.claims import owner
from dedup_platform.platform.context import Context
from dedup_platform.platform.sinks import Sinks
from dedup_platform.platform.status import SinkStatus
from dedup_platform.processes import is_gone

__all__ = ["Extent", "Removal", "TableSize"]


@dataclass(frozen=True)
class Extent:
    """What goes with a stream."""

    tables: tuple[TableSize, ...]
    others: tuple[str, ...]
    """Tables of somebody else in the stream's namespace. They stay."""
    files_read: int
    """How many files of the source would be read again."""
    skipped: int
    """How many files people had left out: that is forgotten, too."""
    gone: tuple[int, int]
    """How many files were read that are at the source no more, and how many records they had."""
    trouble: str
    """Why the source cannot be asked whether it still has all; empty if it can."""
    sinks: tuple[SinkStatus, ...]
    """The copies elsewhere that the stream file names."""

    def __bool__(self) -> bool:
        return bool(self.tables)


class Removal:
    """Of a stream by its name. There need not be a stream file any more; what it says is then not known."""

    def __init__(self, context: Context, stream: str) -> None:
        self._context, self._stream = context, stream
        self._tables = TableRemoval(context.lake.catalog, stream)
        self._boards = Boards(lambda: context.ledger.engine)

    def extent(self) -> Extent:
        """What would go. Asks the source what it still has, and the sinks how far they have come."""
        sizes, others = tuple(self._tables.sizes()), tuple(self._tables.others())
        definition, ledger = self._context.streams.get(self._stream), self._context.ledger
        if definition is None or not sizes:
            return Extent(sizes, others, 0, 0, (0, 0), "", ())
        with suppress(FileNotFoundError):
            # Of a damaged table nothing can be folded any more, and it can go all the same.
            ledger.sync(self._stream)
        gone, trouble = (0, 0), ""
        if definition.source.kind == "files":
            try:
                files = gone_files(self._context.settings, ledger, definition, self._context.clock())
                gone = len(files), sum(each.records for each in files)
            except SourceError as error:
                trouble = str(error)
        return Extent(
            sizes,
            others,
            ledger.files_read(self._stream),
            len(ledger.skipped(self._stream)),
            gone,
            trouble,
            Sinks(self._context).status(self._stream),
        )

    def is_known(self) -> bool:
        """Whether there is anything of the stream in the lake."""
        return bool(self._tables.tables()) or self._tables.is_left_over()

    def refuse_while_in_work(self) -> None:
        """StreamInUseError if a process has claimed a table, a feed or a sink of the stream, and lives."""
        if at_work := list(self._at_work()):
            raise StreamInUseError(self._stream, at_work)

    def reset(self) -> None:
        """Take the tables away, with all positions: the next ingest begins as the first one did.

        Called again after a crash, it goes on. Whoever writes meanwhile is refused by the catalog, or begins anew.
        """
        self._tables.remove()
        self._context.ledger.forget(self._stream)
        Health(lambda: self._context.ledger.engine).forget(self._stream)
        self._boards.forget(self._stream)

    def drop(self) -> None:
        """The same, and nothing of the stream is left in the lake."""
        self.reset()
        self._tables.remove_namespace()

    def _at_work(self) -> Iterator[str]:
        now = self._context.clock()
        for target, board in sorted(self._boards.of(self._stream).items()):
            for claim in board.claims:
                if is_live(claim, now, is_gone):
                    yield f"{owner(claim)} is at {target}"
