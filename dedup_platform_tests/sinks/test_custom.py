"""A sink of one's own does what every sink must do, and a fault in it is found."""

from pathlib import Path

import pytest

from dedup_platform.errors import SinkTakenError
from dedup_platform.sinks import Batch, SinkState
from dedup_platform.testing.sinks import TARGET, check_sink
from dedup_platform_tests.sinks.sqlite_table import SqliteTable, copies, open_table


def counts(file: Path) -> dict[str, int]:
    return {row["session_id"]: row["event_count"] for row in copies(str(file))}


def test_it_does_what_every_sink_must_do(tmp_path: Path) -> None:
    file = tmp_path / "copies.db"
    check_sink(lambda: open_table(TARGET, {"file": str(file)}), lambda: counts(file))


class ForgetsEpochs(SqliteTable):
    def write(self, batch: Batch) -> None:
        [(self._epoch,)] = self._database.execute("SELECT epoch FROM state")
        super().write(batch)


class ForgetsPositions(SqliteTable):
    def open(self) -> SinkState:
        return SinkState(None, super().open().refused)


class TakesWhateverComes(SqliteTable):
    def write(self, batch: Batch) -> None:
        try:
            super().write(batch)
        except SinkTakenError:
            return


class KeepsLeftovers(SqliteTable):
    def write(self, batch: Batch) -> None:
        super().write(batch)
        if batch.completes and batch.after.feed == "another feed":
            self._database.execute('INSERT INTO copies VALUES (\'old\', 0, \'{"session_id": "x", "event_count": 1}\')')


class ForgetsRefusals(SqliteTable):
    def open(self) -> SinkState:
        return SinkState(super().open().position)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (ForgetsEpochs, "one that was taken over"),
        (ForgetsPositions, "forgets how far it has come"),
        (TakesWhateverComes, "takes a batch from"),
        (KeepsLeftovers, "a beginning anew leaves"),
        (ForgetsRefusals, "of a refusal the sink keeps"),
    ],
)
def test_what_a_sink_does_wrong_is_said(kind: type[SqliteTable], said: str, tmp_path: Path) -> None:
    file = tmp_path / "copies.db"
    with pytest.raises(AssertionError, match=said):
        check_sink(lambda: kind(TARGET, {"file": str(file)}), lambda: counts(file))
