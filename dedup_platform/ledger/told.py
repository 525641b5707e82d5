"""Which commits others were told of: beside the facts of the ledger, and no part of their fold.

Who deletes it has commits told once more, under the same ids.
"""

from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa

from dedup_platform.ledger.database import for_reading, lock

_METADATA = sa.MetaData()
TOLD = sa.Table(
    "told",
    _METADATA,
    sa.Column("stream", sa.String(200), primary_key=True),
    sa.Column("table", sa.String(200), primary_key=True),
    sa.Column("uuid", sa.String(40), nullable=False),
    sa.Column("sequence", sa.BigInteger(), nullable=False),
)


@dataclass(frozen=True)
class UpTo:
    """A table by its id, and the sequence number of the last of its commits that was told."""

    uuid: str
    sequence: int


class ToldCommits:
    """How far the commits of each table were told."""

    def __init__(self, engine: Callable[[], sa.Engine]) -> None:
        self._engine = engine

    def of(self, stream: str) -> dict[str, UpTo]:
        """How far those of a stream's tables were; a table of which none was is left out."""
        with for_reading(self._engine()).connect() as connection:
            return _read(connection, stream)

    def note(self, stream: str, told: dict[str, UpTo]) -> None:
        """Commits of these tables were told so far; never back to before what another process has told meanwhile."""
        with self._engine().begin() as connection:
            lock(connection, "")
            _METADATA.create_all(connection)
            lock(connection, stream)
            known = _read(connection, stream)
            for table, up_to in told.items():
                before = known.get(table)
                if before and before.uuid == up_to.uuid and before.sequence >= up_to.sequence:
                    continue
                connection.execute(sa.delete(TOLD).where(TOLD.c.stream == stream, TOLD.c.table == table))
                values = {"uuid": up_to.uuid, "sequence": up_to.sequence}
                connection.execute(sa.insert(TOLD).values(stream=stream, table=table, **values))


def _read(connection: sa.Connection, stream: str) -> dict[str, UpTo]:
    # There is none before the first commit was told, and somebody may have dropped it since.
    if not sa.inspect(connection).has_table(TOLD.name):
        return {}
    query = sa.select(*TOLD.c["table", "uuid", "sequence"]).where(TOLD.c.stream == stream)
    return {table: UpTo(uuid, sequence) for table, uuid, sequence in connection.execute(query)}
