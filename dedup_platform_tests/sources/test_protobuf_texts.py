"""What columns tell of Protobuf's events, and which of them they leave to be read alone."""

import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import polars as pl
import pytest
from google.protobuf.message_factory import GetMessageClass

from dedup_platform.sources.contents import Contents
from dedup_platform.sources.field_values import field_reader
from dedup_platform.sources.protobuf import event_reading
from dedup_platform.sources.protobuf.records import ProtobufMessages
from dedup_platform.sources.text.canonical_text import double_text, float_text
from dedup_platform.stream.format import ProtobufFormat
from dedup_platform.stream.paths import field_path
from dedup_platform_tests.sources.hostile_messages import NUMBERS, event_kind, write_schemas
from dedup_platform_tests.sources.schemas import varint
from dedup_platform_tests.sources.texts_in_columns import IN_DOUBT, is_true, told

READ = ["user", "n", "ratio", "kind", "note", "left", "counts", "labels", "place.name", "inner.at", "at", "name"]
OF_VARINTS = {"i32": 4, "i64": 5, "u32": 6, "u64": 7, "s32": 8, "s64": 9, "paid": 16}
GOOD = {"user": "u", "n": 0.5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    write_schemas(folder)
    return folder


@pytest.fixture(scope="module")
def event(folder: Path) -> Callable[..., bytes]:
    made = GetMessageClass(event_kind(folder / "proto3.desc"))
    return lambda **fields: made(**fields).SerializeToString()


@pytest.fixture(scope="module")
def read(folder: Path) -> Callable[[list[bytes]], Contents]:
    """Makes contents of events of which all fields in READ and OF_VARINTS are looked at."""
    form = ProtobufFormat.model_validate(
        {"schema": "proto3.desc", "message": "Event"}, context={"origin": folder / "stream.yaml"}
    )
    messages = ProtobufMessages(form, sorted({field_path(name).top for name in (*READ, *OF_VARINTS)}), _no_registry)
    return lambda payloads: messages.contents(pl.Series(payloads, dtype=pl.Binary))


def _no_registry(schema_id: int) -> NoReturn:
    raise AssertionError(schema_id)


def values(contents: Contents, names: Iterable[str] = READ) -> dict[str, list[str | None]]:
    """What columns tell of each field, which is seen to be what each event says of itself."""
    fields = {name: field_reader(name, "protobuf") for name in names}
    columns = {name: told(field, contents) for name, field in fields.items()}
    for place, content in enumerate(contents):
        for name, field in fields.items():
            text = columns[name][place]
            assert text == IN_DOUBT or (not isinstance(content, str) and is_true(text, field.value(content, "")))
    return columns


def doubts(columns: dict[str, list[str | None]]) -> list[bool]:
    """Which events are in doubt for a field of theirs."""
    return [IN_DOUBT in texts for texts in zip(*columns.values(), strict=True)]


def field(number: int, kind: int, content: bytes) -> bytes:
    return varint(number << 3 | kind) + (varint(len(content)) if kind == 2 else b"") + content


def test_what_is_set(read: Any, event: Any) -> None:
    payload = event(
        user="u",
        n=0.5,
        ratio=0.1,
        kind=300,
        note="",
        left="l",
        place={"name": "p"},
        inner={"at": {"seconds": 1709290800, "nanos": 5000}},
        at={"seconds": 1709290800},
        name={"value": "v"},
    )
    assert one(values(read([payload]))) == {
        "user": "u",
        "n": "0.5",
        "ratio": "0.1",
        "kind": "VIEW",
        "note": "",
        "left": "l",
        "counts": "[]",
        "labels": "{}",
        "place.name": "p",
        "inner.at": "2024-03-01T11:00:00.000005Z",
        "at": "2024-03-01T11:00:00Z",
        "name": "v",
    }


def test_what_is_not_set(read: Any, event: Any) -> None:
    nothing = dict.fromkeys(READ) | {"user": "u", "n": "0.0", "ratio": "0.0", "kind": "UNKNOWN"}
    assert one(values(read([b""]))) == nothing | {"user": "", "counts": "[]", "labels": "{}"}
    assert one(values(read([event(user="u")]))) == nothing | {"counts": "[]", "labels": "{}"}
    assert one(values(read([event(user="u", place={}, name={})])))["place.name"] == ""
    assert one(values(read([event(user="u", place={}, name={})])))["name"] == ""


def one(columns: dict[str, list[str | None]]) -> dict[str, str | None]:
    return {name: column[0] for name, column in columns.items()}


@pytest.mark.parametrize(
    "more",
    [
        b"",
        field(1, 2, b"again"),
        field(999, 0, b"\1") + field(999, 1, b"12345678") + field(999, 2, b"\xff") + field(999, 5, b"1234"),
        field(34, 2, b"\1" + b"\xff" * 9 + b"\1"),
        field(32, 2, field(5, 2, b"\1\2") + field(3, 2, b"")),
        field(1, 0, b"\1"),
        field(21, 2, b"x"),
    ],
    ids=["nothing", "again", "unknown", "packed", "inside", "of another type", "one of two"],
)
def test_what_columns_understand(read: Any, event: Any, more: bytes) -> None:
    assert doubts(values(read([event(**GOOD) + more, event(**GOOD)]))) == [False, False]


@pytest.mark.parametrize(
    "more",
    [
        field(999, 3, b"") + field(999, 4, b""),
        field(28, 2, b"") * 2,
        field(21, 2, b"x") + field(22, 0, b"\1"),
        field(24, 2, b"\1"),
        field(18, 0, b"\7"),
        field(3, 2, b"\x10" + b"\xff" * 9 + b"\1"),
        field(25, 2, b"\xff"),
        field(32, 2, field(1, 2, b"\xff")),
        field(34, 2, b"\x80"),
        field(34, 2, b"\xff" * 10 + b"\1"),
        field(33, 2, b"123"),
        field(4, 0, b"\1") * 200,
        b"\0\0",
        b"\x0a\5u",
        b"\x0a",
    ],
    ids=lambda more: repr(more[:12]),
)
def test_what_is_left_in_doubt(read: Any, event: Any, more: bytes) -> None:
    assert doubts(values(read([event(**GOOD) + more, event(**GOOD)]))) == [True, False]


def test_messages_inside_one_another_are_left_in_doubt_at_some_depth(read: Any, event: Any) -> None:
    inner = b""
    for _ in range(50):
        inner = field(29, 2, inner)
    assert doubts(values(read([inner, event(**GOOD)]))) == [True, False]


def test_what_takes_too_many_steps_is_left_in_doubt(read: Any, event: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_reading, "_MOST_STEPS", 2)
    assert doubts(values(read([event(user="u"), event(**GOOD), event(ratio=1, **GOOD)]))) == [False, True, True]


def test_numbers_of_all_sizes(read: Any) -> None:
    payloads = [b"".join(field(at, 0, varint(number)) for at in OF_VARINTS.values()) for number in NUMBERS]
    assert doubts(values(read(payloads), OF_VARINTS)) == [False] * len(NUMBERS)


def test_times(read: Any, event: Any) -> None:
    nanos = [0, 1, 1_000, 999_999_000, 1_000_000, 500_000_000, 999_999_999]
    times = [{"seconds": second, "nanos": more} for second in (0, -1, 1709290800, 9_223_372_035) for more in nanos]
    assert doubts(values(read([event(user="u", at=time) for time in times]), ["user", "at"])) == [False] * len(times)
    far = [{"seconds": second} for second in (-62_135_596_800, 253_402_300_799, 2**63 - 1, -(2**63))]
    assert doubts(values(read([event(user="u", at=time) for time in far]), ["at"])) == [True] * len(far)


def test_floats(read: Any, event: Any) -> None:
    random = Random("floats")
    numbers = [struct.unpack("<d", random.randbytes(8))[0] for _ in range(1000)]
    numbers += [round(random.uniform(-1e7, 1e7), random.randint(0, 7)) for _ in range(1000)]
    numbers += [10 ** random.uniform(-7, 18) for _ in range(1000)]
    numbers += [1e-4, 0.00009999, 9999999999999998.0, 1e16, 1e12, 1e15, 5e-324, 123456789.0, 16777216.0, -0.0]
    small = [struct.unpack("<f", random.randbytes(4))[0] for _ in range(1000)]
    small += [struct.unpack("<f", struct.pack("<f", n))[0] for n in numbers if abs(n) < 1e37]
    columns = values(
        read([event(user="u", n=number) for number in numbers] + [event(user="u", ratio=number) for number in small])
    )
    assert columns["n"][: len(numbers)] == list(map(double_text, numbers))
    assert columns["ratio"][len(numbers) :] == list(map(float_text, small))
