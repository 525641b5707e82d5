"""Claims in the control database: kept between processes, changed by one at a time, and free to be deleted."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import sqlalchemy as sa

from dedup_platform.ledger import Boards
from dedup_platform.ledger.claims import CLAIMS
from dedup_platform.ledger.database import open_database
from dedup_platform.ledger.schema import METADATA
from dedup_platform.planning.claims import ALL, Board, Claim, Partitions, new_board

NOON = datetime(2026, 1, 5, 12, 0, 0, 123456, tzinfo=UTC)
CLAIM = Claim(
    token=7,
    owner="host/1/2.34",
    partitions=~Partitions(frozenset({3, 4})),
    state="in progress",
    since=NOON,
    expires=NOON + timedelta(minutes=1),
    wanted=ALL,
    succeeds=True,
    ended=None,
)
BOARD = Board(1, 9, (CLAIM,))


def put(boards: Boards, stream: str, target: str, board: Board) -> None:
    boards.change(stream, target, lambda _: (board, None))


def test_every_part_of_a_board_is_kept_and_each_target_has_its_own(engine: sa.Engine) -> None:
    boards, other = Boards(lambda: engine), new_board(NOON)
    assert boards.of("clicks") == {}
    put(boards, "clicks", "sessions", BOARD)
    put(boards, "clicks", "marts", other)
    put(boards, "visits", "sessions", other)
    assert boards.of("clicks") == {"sessions": BOARD, "marts": other}
    assert boards.change("clicks", "sessions", lambda before: (BOARD, before)) == BOARD


def test_a_table_that_was_dropped_means_no_claims(engine: sa.Engine) -> None:
    boards = Boards(lambda: engine)
    put(boards, "clicks", "sessions", BOARD)
    CLAIMS.drop(engine)
    assert boards.of("clicks") == {}
    assert boards.change("clicks", "sessions", lambda before: (BOARD, before)) is None
    assert boards.of("clicks") == {"sessions": BOARD}


def test_what_is_no_board_is_none(engine: sa.Engine) -> None:
    boards = Boards(lambda: engine)
    put(boards, "clicks", "sessions", BOARD)
    with engine.begin() as connection:
        connection.execute(sa.update(CLAIMS).values(board='{"of": "another version"}'))
    assert boards.of("clicks") == {}
    assert boards.change("clicks", "sessions", lambda before: (BOARD, before)) is None
    assert boards.of("clicks") == {"sessions": BOARD}


def test_a_board_that_stays_as_it_is_is_not_written(engine: sa.Engine) -> None:
    boards = Boards(lambda: engine)
    put(boards, "clicks", "sessions", BOARD)
    put(boards, "clicks", "sessions", BOARD)
    with engine.connect() as connection:
        assert connection.execute(sa.select(CLAIMS.c.version)).scalars().all() == [0]


def test_no_change_of_several_processes_is_lost(engine: sa.Engine) -> None:
    """The first ones among them create the table and the row."""
    boards = Boards(lambda: engine)

    def count() -> None:
        for _ in range(10):
            boards.change("clicks", "sessions", lambda before: (Board(0, before.token + 1 if before else 1), None))

    threads = [Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert boards.of("clicks")["sessions"].token == 40


def test_in_a_damaged_database_nobody_has_claims(tmp_path: Path) -> None:
    file = tmp_path / "control.db"
    engine = open_database(f"sqlite:///{file}")
    boards = Boards(lambda: engine)
    put(boards, "clicks", "sessions", BOARD)
    engine.dispose()
    file.write_bytes(b"no database" * 1000)
    assert boards.change("clicks", "sessions", lambda before: (BOARD, before)) is None
    engine.dispose()


def test_the_fold_knows_nothing_of_it() -> None:
    assert CLAIMS.name not in METADATA.tables
