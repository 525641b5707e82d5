"""Lines: an endless one does not fill the memory."""

from collections.abc import Iterator

import pytest

from dedup_platform.sources.compression import DamageError
from dedup_platform.sources.records import MAX_RECORD_BYTES
from dedup_platform.sources.text.lines import Lines

MIB = 2**20


def chunks(damage: DamageError | None) -> Iterator[bytes]:
    yield b"first\n"
    for _ in range(10 * MAX_RECORD_BYTES // MIB):
        yield b"x" * MIB
    if damage:
        raise damage
    yield b"\nlast"


@pytest.mark.parametrize("damage", [None, DamageError("broken", 1)])
def test_only_the_beginning_of_an_endless_line_is_kept(damage: DamageError | None) -> None:
    reader = Lines(chunks(damage))
    first, long, *others = [line for block in reader for line in block]
    assert first == b"first\n"
    assert MAX_RECORD_BYTES < len(long) < 3 * MAX_RECORD_BYTES
    assert others == ([] if damage else [b"last"])
    assert (reader.damage, reader.rest) == (damage, b"")
