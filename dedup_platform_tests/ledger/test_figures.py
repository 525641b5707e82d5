"""What was counted of cells is kept as long as it holds, in either database."""

from datetime import timedelta
from pathlib import Path

import pytest

from dedup_platform.ledger import KeptFigures
from dedup_platform.planning.figures import CellFigures, Lateness
from dedup_platform.tables import DEDUPLICATED_EVENTS
from dedup_platform_tests.lived import ARRIVED, BUCKETS, Lived

pytestmark = pytest.mark.usefixtures("control_database")


def test_what_was_counted_is_kept_until_rows_change(tmp_path: Path) -> None:
    lived, table = Lived(tmp_path), DEDUPLICATED_EVENTS
    ledger, stream, cells = lived.platform.ledger, lived.stream, lived.cells
    kept, head, day = KeptFigures(ledger), ledger.sync(stream.name)[table].snapshot_id, cells[0].partition
    assert kept.of_partitions(stream, table) == ({}, cells)
    kept.keep(stream, table, head, {cell: CellFigures(0, Lateness({60: 1}, timedelta(seconds=60))) for cell in cells})
    late = CellFigures(0, Lateness({60: BUCKETS}, timedelta(seconds=60)))
    assert kept.of_partitions(stream, table, [day]) == ({day: late}, [])
    assert kept.sizes(stream.name, [day])[day][table].rows == 1000 * BUCKETS

    lived.described.rewrite(table, cells[:1], ARRIVED)
    newest = ledger.sync(stream.name)[table].snapshot_id
    assert kept.of_partitions(stream, table)[1] == cells[:1]
    kept.keep(stream, table, head, {cells[0]: late})
    assert kept.of_partitions(stream, table)[1] == cells[:1], "it was counted in rows that are gone"
    kept.keep(stream, table, newest, {cells[0]: CellFigures()})
    found, unknown = kept.of_partitions(stream, table, [day])
    assert (found[day].lateness.events, unknown) == (BUCKETS - 1, [])
