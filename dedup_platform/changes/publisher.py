"""Brings sinks up to date: each change once, in order, whatever is killed or refused on the way."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

import polars as pl

from dedup_platform import tables
from dedup_platform.changes.aliases import retired_by
from dedup_platform.changes.batches import ORDINAL, VERSION, batches, halves
from dedup_platform.changes.choice import Choice
from dedup_platform.changes.reading import FRESH, FeedReader
from dedup_platform.errors import RefusedRowsError, SinkError
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.pins import unpin
from dedup_platform.lake.schema import field_numbers
from dedup_platform.settings import Settings
from dedup_platform.sinks import Batch, Position, Refusal, Sink, open_sink
from dedup_platform.sinks.opening import KEYS
from dedup_platform.stream import Stream

BATCH_ROWS = 100_000
"""At most so many changes are written in one transaction."""
MOST_REFUSED = 100
"""After so many rows that were refused one after the other it is not the rows that are wrong."""

OpenSink = Callable[[Stream, str, Settings, Mapping[str, int] | None], Sink]


@dataclass
class Published:
    """What bringing one sink up to date came to."""

    sink: str
    version: int = 0
    """The last version that the sink has; 0 before it has any."""
    sent: Counter[str] = field(default_factory=Counter)
    """`_change_type` -> rows."""
    suppressed: int = 0
    """Changes that matter to nobody downstream, and were not sent."""
    forced: int = 0
    """Those of the rows sent that somebody wanted again."""
    refused: int = 0
    """Rows that the store does not take, all that wait for a retry."""
    moves: int = 0
    """Transactions that moved the position."""
    left: str = ""
    """What was left to another process, which is at it, in words."""

    def then(self, later: "Published") -> "Published":
        """What bringing the sink up to date twice came to."""
        return replace(
            later,
            sent=self.sent + later.sent,
            suppressed=self.suppressed + later.suppressed,
            forced=self.forced + later.forced,
            moves=self.moves + later.moves,
        )


class Publisher:
    """Brings the sinks of any stream up to date with the feeds."""

    def __init__(self, lake: Lakehouse, settings: Settings, open_: OpenSink = open_sink) -> None:
        self._lake = lake
        self._settings = settings
        self._open = open_

    def publish(
        self, stream: Stream, name: str, told: Published, retry: bool = False, again: Choice | None = None
    ) -> None:
        """Write all that a sink has not got of its feed, in order, and note in `told` what that comes to.

        With `retry` also the rows that it refused before, and those of `again` once more, as they are now: where that
        is everything, the sink begins anew. Raises SinkError if the store fails, and SinkTakenError if another process
        publishes to the same sink.
        """
        said = stream.publish.sinks[name]
        numbers = field_numbers(self._lake.catalog.load(stream.name, said.follows))
        sink = self._open(stream, name, self._settings, numbers)
        try:
            reader = FeedReader(self._lake, stream, said.follows, name)
            opened = _Opened(sink, stream, name, told)
            is_all = again is not None and again.is_everything
            # Once: what this call has begun, a later try goes on with.
            begins_again = is_all and not told.moves
            if begins_again or reader.is_beginning(opened.position):
                begun = reader.start(None if begins_again else opened.position)
                if begun is None:
                    return
                opened.retired = partial(retired_by, self._lake, stream, said.follows, begun.version)
                opened.begin(begun, reader.rows(begun), reader.nothing(), forced=is_all)
            # Also after a beginning that another process ended.
            unpin(self._lake.catalog, stream, said.follows, name)
            assert opened.position
            opened.follow(reader.changes(opened.position))
            if retry and opened.refused:
                opened.retry(reader.now(opened.refused, KEYS[said.follows], opened.position))
            if again and not is_all:
                opened.force(reader.again(again, KEYS[said.follows], opened.position))
        finally:
            sink.close()


class _Opened:
    """A sink that was taken over, and where it is."""

    def __init__(self, sink: Sink, stream: Stream, name: str, told: Published) -> None:
        said = stream.publish.sinks[name]
        self._sink, self._stream, self._name, self._told = sink, stream, name, told
        self._key = KEYS[said.follows]
        matters = tables.told_names(stream, tables.FEED_OF[said.follows])["is_downstream"]
        self._matters = pl.col(matters) if said.changes == "downstream" else pl.lit(value=True)
        state = sink.open()
        self.position = state.position
        self.refused = {key: each.version for key, each in state.refused.items()}
        self._refused_in_a_row = 0
        self._most_refused: float = MOST_REFUSED
        # While it begins, and before the first batch of that.
        self._is_beginning = self._begins = False
        self.retired: Callable[[], Iterator[pl.DataFrame]] = lambda: iter(())
        self._is_forced = False
        self._left_out = 0
        """Changes that matter to nobody downstream, and that no batch has told of yet."""
        self._tell()

    def begin(self, at: Position, rows: Iterator[pl.DataFrame], nothing: pl.DataFrame, forced: bool) -> None:
        """Write the rest of the table; `nothing` stands for the rows of one that has none."""
        done = Position(at.feed, at.version)
        self._is_beginning, self._begins, self._is_forced = True, at.ordinal == FRESH, forced
        found = False
        for cut in batches(rows, BATCH_ROWS):
            found = True
            after = done if cut.is_whole else Position(at.feed, at.version, cut.changes[ORDINAL][-1], at.snapshot_id)
            self._write(cut.changes, after, at.snapshot_id)
        if not found:
            self._send(done, nothing)
        self._is_beginning = self._is_forced = False

    def follow(self, changes: Iterator[pl.DataFrame]) -> None:
        """Write changes that come after the position."""
        assert self.position
        feed = self.position.feed
        for cut in batches(changes, BATCH_ROWS):
            last = cut.changes[[VERSION, ORDINAL]].row(-1)
            after = Position(feed, last[0], None if cut.is_whole else last[1])
            matters = cut.changes.filter(self._matters)
            self._left_out = len(cut.changes) - len(matters)
            self._write(matters, after)

    def retry(self, rows: pl.DataFrame) -> None:
        """Write rows that were refused, as they are now. However many are refused again, the others have their turn."""
        self._most_refused = inf
        for part in rows.iter_slices(BATCH_ROWS):
            self._write_here(part)

    def force(self, pieces: Iterator[pl.DataFrame]) -> None:
        """Write rows as they are now, whatever the sink knows of them."""
        self._is_forced = True
        for piece in pieces:
            for part in piece.iter_slices(BATCH_ROWS):
                self._write_here(part)
        self._is_forced = False

    def _write_here(self, changes: pl.DataFrame) -> None:
        """Write rows without moving on, in several transactions where some are refused."""
        assert self.position
        try:
            self._send(self.position, changes, healed=self._healed(changes))
        except RefusedRowsError as error:
            if parts := halves(changes):
                for part in parts:
                    self._write_here(part)
            else:
                self._put_aside(changes, self.position, str(error))
        else:
            self._refused_in_a_row = 0

    def _write(self, changes: pl.DataFrame, after: Position, begun: int | None = None) -> None:
        """Write changes in one transaction, or in several where rows are refused; `begun` with a snapshot's rows."""
        try:
            self._send(after, changes, healed=self._healed(changes))
        except RefusedRowsError as error:
            if parts := halves(changes):
                version, ordinal = parts[0][[VERSION, ORDINAL]].row(-1)
                self._write(parts[0], Position(after.feed, version, ordinal, begun), begun)
                self._write(parts[1], after, begun)
            else:
                self._put_aside(changes, after, str(error))
        else:
            self._refused_in_a_row = 0

    def _put_aside(self, changes: pl.DataFrame, after: Position, reason: str) -> None:
        self._refused_in_a_row += 1
        if self._refused_in_a_row > self._most_refused:
            raise SinkError(
                self._stream.name,
                self._name,
                f"refuses every row ({reason}): {MOST_REFUSED} are put aside. Mend the store, then say "
                "`dedup-platform publish --retry`",
                lasting=True,
            )
        [key] = set(self._keys(changes))
        version, ordinal = changes[[VERSION, ORDINAL]].row(-1)
        refusal = Refusal(key, version, ordinal, reason)
        self._send(after, changes.clear(), refused=[refusal])
        self.refused[key] = version
        self._tell()

    def _send(
        self, after: Position, changes: pl.DataFrame, refused: Sequence[Refusal] = (), healed: Sequence[str] = ()
    ) -> None:
        completes = self._is_beginning and after.snapshot_id is None
        if completes:
            # What was refused before and was not given again is there no more.
            gone = {key for key, version in self.refused.items() if version != after.version}
            healed = sorted(gone.union(healed) - {each.key for each in refused})
        kinds = {"begins": self._begins, "completes": completes, "forced": self._is_forced}
        batch = Batch(
            self.position,
            after,
            changes,
            **kinds,
            refused=refused,
            healed=healed,
            retired=self.retired,
            suppressed=self._left_out,
        )
        try:
            self._sink.write(batch)
        except RefusedRowsError as error:
            if len(changes):
                raise
            # No row of ours is to blame: what others made of the store.
            raise SinkError(self._stream.name, self._name, str(error), lasting=True) from error
        self._begins = False
        self.position = batch.after
        for key in batch.healed:
            self.refused.pop(key, None)
        self._told.moves += batch.after != batch.before
        self._told.suppressed += self._left_out
        self._told.forced += len(batch.changes) if self._is_forced else 0
        self._left_out = 0
        self._told.sent.update(dict(batch.changes["_change_type"].value_counts().iter_rows()))
        self._tell()

    def _healed(self, changes: pl.DataFrame) -> list[str]:
        return sorted(self.refused.keys() & self._keys(changes)) if self.refused else []

    def _keys(self, changes: pl.DataFrame) -> list[str]:
        return [json.dumps(row) for row in changes.select(self._key).rows()]

    def _tell(self) -> None:
        self._told.version = self.position.version if self.position else 0
        self._told.refused = len(self.refused)
