"""Where claims are kept: beside the facts of the ledger, and no part of their fold.

One row holds all claims of a table, feed or sink, and is replaced only as long as it is what it was when it was read.
Who deletes it has work done twice, and no row changed.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError

from dedup_platform.ledger.database import for_reading, is_damaged, lock
from dedup_platform.planning.claims import Board

T = TypeVar("T")

_METADATA = sa.MetaData()
CLAIMS = sa.Table(
    "claims",
    _METADATA,
    sa.Column("stream", sa.String(200), primary_key=True),
    sa.Column("target", sa.String(200), primary_key=True),
    sa.Column("version", sa.BigInteger(), nullable=False),
    sa.Column("board", sa.Text(), nullable=False),
)
_BOARD = TypeAdapter(Board)
_TRIES = 3
"""So often a change is tried anew that a database refused."""


class Boards:
    """The boards of all streams."""

    def __init__(self, engine: Callable[[], sa.Engine]) -> None:
        self._engine = engine

    def of(self, stream: str) -> dict[str, Board]:
        """The boards of a stream by table, feed or sink."""
        with for_reading(self._engine()).connect() as connection:
            # There is none before the first claim, and somebody may have dropped it since.
            if not sa.inspect(connection).has_table(CLAIMS.name):
                return {}
            query = sa.select(CLAIMS.c.target, CLAIMS.c.board).where(CLAIMS.c.stream == stream)
            found = {target: _read(text) for target, text in connection.execute(query)}
        return {target: board for target, board in found.items() if board}

    def change(self, stream: str, target: str, step: Callable[[Board | None], tuple[Board, T]]) -> T:
        """Put what `step` makes of a board in its place; it is called again if another process changed it meanwhile."""
        failures = 0
        while True:
            try:
                with self._engine().begin() as connection:
                    is_changed, result = _change(connection, stream, target, step)
            except sa.exc.IntegrityError:
                pass  # another process was the first
            except sa.exc.DatabaseError as error:
                if is_damaged(error):
                    # Whoever asks for facts next has the database made anew.
                    return step(None)[1]
                failures += 1
                if failures > _TRIES:
                    raise
                # There is no table, or somebody dropped it.
                self._create()
            else:
                if is_changed:
                    return result

    def forget(self, stream: str) -> None:
        """Let there be no claims of a stream."""
        self._create()
        with self._engine().begin() as connection:
            connection.execute(sa.delete(CLAIMS).where(CLAIMS.c.stream == stream))

    def _create(self) -> None:
        with self._engine().begin() as connection:
            lock(connection, "")
            _METADATA.create_all(connection)


def _change(
    connection: sa.Connection, stream: str, target: str, step: Callable[[Board | None], tuple[Board, T]]
) -> tuple[bool, T]:
    place = sa.and_(CLAIMS.c.stream == stream, CLAIMS.c.target == target)
    row = connection.execute(sa.select(CLAIMS.c.version, CLAIMS.c.board).where(place)).one_or_none()
    before = _read(row.board) if row else None
    board, result = step(before)
    if board == before:
        return True, result
    values = {"version": row.version + 1 if row else 0, "board": _BOARD.dump_json(board).decode()}
    if row is None:
        connection.execute(sa.insert(CLAIMS).values(stream=stream, target=target, **values))
        return True, result
    done = connection.execute(sa.update(CLAIMS).where(place, CLAIMS.c.version == row.version).values(values))
    return done.rowcount == 1, result


def _read(text: str) -> Board | None:
    """A board; None if it is not one of this version's."""
    with suppress(ValidationError):
        return _BOARD.validate_json(text)
    return None
