"""How cells of derived tables are rebuilt under claims."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial, reduce

from dedup_platform.lake.commits import Commit
from dedup_platform.planning.claims import Partitions
from dedup_platform.platform.claims import Claims, Turn
from dedup_platform.platform.context import Context
from dedup_platform.recompute.build import Recompute
from dedup_platform.stream import Stream
from dedup_platform.tables import derived


class Rebuilding:
    """Rebuilds cells of a platform's streams, whose tables are prepared."""

    def __init__(self, context: Context, claims: Claims) -> None:
        self._context, self._claims = context, claims
        self._recompute = Recompute(context.lake, context.ledger)

    def stale(self, stream: Stream, table: str, asked: Partitions) -> Commit:
        """Rebuild the stale cells of some partitions, but of those that another process is at."""

        def rebuild(turn: Turn) -> Commit:
            with turn.reading():
                return self._recompute.stale(stream, table, turn.partitions, turn.token)

        return self._rebuild(stream, table, asked, rebuild)

    def whole(self, stream: Stream, table: str, partitions: Iterable[int]) -> Commit:
        """Rebuild whole partitions; who is at some of them may leave cells alone that are not stale."""

        def rebuild(turn: Turn) -> Commit:
            with turn.reading():
                if turn.is_again:
                    return self._recompute.stale(stream, table, turn.partitions, turn.token)
                return self._recompute.whole(stream, table, sorted(turn.partitions.listed), turn.token)

        return self._rebuild(stream, table, Partitions(frozenset(partitions)), rebuild, beside=True)

    def all_beside(self, stream: Stream) -> list[Commit]:
        """Rebuild all that is stale, table by table, whoever else is at it: nothing is afterwards."""
        return [self._context.work(self._recompute.stale, stream, table) for table in derived(stream)]

    def _rebuild(
        self, stream: Stream, table: str, asked: Partitions, rebuild: Callable[[Turn], Commit], *, beside: bool = False
    ) -> Commit:
        bar = partial(self._context.lake.bar, stream, table)

        def step(turn: Turn) -> Commit:
            return self._context.work(rebuild, turn)

        work = self._claims.work(stream, table, asked, step, bar=bar, beside=beside)
        self._context.lineage.tell(stream)
        return replace(reduce(Commit.then, work.done, Commit(table, None, "nothing")), left=work.left)
