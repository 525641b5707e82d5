"""Receipts: stored and read back, those of older versions too; what is newer is refused, and damage counts as loss."""

import json
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from dedup_platform.cli.exits import REFUSED, exit_code
from dedup_platform.errors import NewerVersionError
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.receipts import (
    ANY_GENERATION,
    VERSION,
    Acceptance,
    AnyReceipt,
    BuildReceipt,
    FilesReceipt,
    Input,
    Part,
    PositionsReceipt,
    ReadFile,
    RewriteReceipt,
    SkippedOffsets,
    TopicPositions,
    digest_of,
    parse_receipt,
    parts_of,
    receipt_text,
)
from dedup_platform.planning.cells import Cell
from dedup_platform.settings import Settings

CELLS = (Cell(19783, 0), Cell(19784, 3))
EACH_KIND: list[AnyReceipt] = [
    BuildReceipt(
        table="sessions",
        built_from={"session_fragments": Input(snapshot=2**62, sequence=7)},
        fingerprint="0123456789abcdef",
        reason="late",
        checked=CELLS,
        rewritten=CELLS[:1],
        previous="before.json",
        events=10**12,
        longest_reach=3,
        buckets=16,
        checkpoint={"built": (Part(name="a.parquet", rows=2),), "untold": ()},
    ),
    FilesReceipt(
        files=(
            ReadFile("a b/ü.json", 1, 2**40, "e", 5),
            ReadFile("lost.json", 0, None, None, 1),
            ReadFile("left out.json", 0, 7, "f", 0, skipped=True),
        ),
        accepted=(Acceptance("a", "e", 2), Acceptance("b", "f")),
        derived=True,
    ),
    RewriteReceipt(reason="redecode", rewritten=CELLS, disturbed=CELLS[1:], previous="before.json"),
    PositionsReceipt(
        positions=(TopicPositions(topic="clicks", id="x", next={0: (2**40, 0), 11: (3, 1)}),),
        accepted_up_to=(TopicPositions(topic="gone", id=None, next={}),),
    ),
    PositionsReceipt(
        positions=(TopicPositions(topic="clicks", id="x", next={0: (5, 0)}),),
        accepted_up_to=(),
        skipped=(SkippedOffsets(topic="clicks", partition=0, generation=1, first=7, end=9),),
    ),
]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(Settings(home=tmp_path))


def write(catalog: Catalog, name: str, text: bytes) -> None:
    path = Path(catalog.settings.warehouse) / "events" / "receipts" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)


@pytest.mark.parametrize("receipt", EACH_KIND, ids=lambda receipt: receipt.kind)
def test_each_kind_is_read_as_it_was_written(receipt: AnyReceipt, catalog: Catalog) -> None:
    catalog.write_receipt("events", receipt)
    assert catalog.read_receipt("events", receipt.name) == receipt


def test_a_receipt_does_not_change() -> None:
    for receipt in EACH_KIND:
        with pytest.raises(ValidationError, match="frozen"):
            receipt.__setattr__("reason", "another")


@pytest.mark.parametrize(
    ("text", "receipt"),
    [
        (
            b'{"files":[{"path":"a.json","generation":0,"size":12,"etag":"e","records":3}],"name":"x.json",'
            b'"previous":null}',
            FilesReceipt(name="x.json", files=(ReadFile("a.json", 0, 12, "e", 3),)),
        ),
        (
            b'{"accepted":[{"path":"a.json","etag":"e"}],"name":"x.json","previous":"w.json"}',
            FilesReceipt(name="x.json", accepted=(Acceptance("a.json", "e", ANY_GENERATION),), previous="w.json"),
        ),
        (
            b'{"name":"x.json","reason":"maintenance","accepted":[],"checkpoint":{"files":[{"name":"p.parquet",'
            b'"rows":4}],"untold":[]},"previous":null}',
            FilesReceipt(
                name="x.json",
                reason="maintenance",
                checkpoint={"files": (Part(name="p.parquet", rows=4),), "untold": ()},
            ),
        ),
        (
            b'{"name":"x.json","checkpoint":{"files":[]}}',
            FilesReceipt(name="x.json", checkpoint={"files": ()}),
        ),
        (
            b'{"name":"x.json","reason":"replay","rewritten":[[19783,0]],"disturbed":[],"previous":"w.json"}',
            RewriteReceipt(name="x.json", reason="replay", rewritten=CELLS[:1], previous="w.json"),
        ),
        (
            b'{"name":"x.json","positions":[{"topic":"t","id":"i","next":{"0":[5,0]}}],"accepted_up_to":[]}',
            PositionsReceipt(
                name="x.json", positions=(TopicPositions(topic="t", id="i", next={0: (5, 0)}),), accepted_up_to=()
            ),
        ),
        (
            b'{"name":"x.json","table":"sessions","built_from":{"session_fragments":{"snapshot":5,"sequence":2}},'
            b'"fingerprint":"f","reason":"open","checked":[[19783,0],[19784,3]],"rewritten":[],"previous":null,'
            b'"events":4,"longest_reach":2}',
            BuildReceipt(
                name="x.json",
                table="sessions",
                built_from={"session_fragments": Input(snapshot=5, sequence=2)},
                fingerprint="f",
                reason="open",
                checked=CELLS,
                events=4,
                longest_reach=2,
            ),
        ),
    ],
    ids=["files", "accepted", "accepted and checkpoint", "checkpoint", "rewrite", "positions", "build"],
)
def test_receipts_that_tell_neither_version_nor_kind_are_read(text: bytes, receipt: AnyReceipt) -> None:
    assert parse_receipt("events", "x.json", text) == receipt


def test_a_receipt_of_a_newer_version_is_refused_by_name(catalog: Catalog) -> None:
    write(catalog, "new.json", json.dumps({"version": VERSION + 1, "kind": "unheard of"}).encode())
    with pytest.raises(NewerVersionError, match=rf"new\.json is of version {VERSION + 1}") as refused:
        catalog.read_receipt("events", "new.json")
    assert exit_code(refused.value) == REFUSED


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"version":1}',
        b'{"version":"one","files":[]}',
        b'{"files": 3}',
        b'{"kind": "unheard of"}',
        b'{"name":"another.json","files":[]}',
        b'{"rewritten":[[99999999999999999999,0]]}',
        b'{"files":[{"path":"\\ud800","generation":0,"size":1,"etag":"e","records":1}]}',
        b'{"table":"sessions","built_from":{},"fingerprint":"f","checked":[]}',
    ],
    ids=lambda text: text[:20],
)
def test_a_damaged_receipt_counts_as_lost(text: bytes, catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    write(catalog, "damaged.json", text)
    with caplog.at_level(logging.WARNING):
        assert catalog.read_receipt("events", "damaged.json") is None
    assert "damaged.json is damaged and counts as lost" in caplog.text


@pytest.mark.parametrize("receipt", EACH_KIND, ids=lambda receipt: receipt.kind)
def test_whatever_bit_is_damaged_a_receipt_says_what_was_written_or_is_lost(
    receipt: AnyReceipt, catalog: Catalog
) -> None:
    text = receipt_text(receipt)
    its_version = text.index(b":") + 1
    for place in range(len(text)):
        write(catalog, receipt.name, text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :])
        if place == its_version and text[place] ^ 1 > ord(str(VERSION)):
            with pytest.raises(NewerVersionError):
                catalog.read_receipt("events", receipt.name)
            continue
        assert catalog.read_receipt("events", receipt.name) in (None, receipt), place


@pytest.mark.parametrize("receipt", EACH_KIND, ids=lambda receipt: receipt.kind)
def test_a_receipt_without_a_digest_must_tell_all_that_its_kind_tells(receipt: AnyReceipt, catalog: Catalog) -> None:
    told = json.loads(receipt_text(receipt))
    del told["digest"]
    write(catalog, receipt.name, json.dumps(told).encode())
    assert catalog.read_receipt("events", receipt.name) == receipt
    may_be_left_out = {
        "previous",
        "events",
        "longest_reach",
        "buckets",
        "checkpoint",
        "version",
        "kind",
        "name",
        "skipped",
    }
    for key in told.keys() - may_be_left_out:
        write(catalog, receipt.name, json.dumps({name: told[name] for name in told if name != key}).encode())
        assert catalog.read_receipt("events", receipt.name) is None, key


def test_receipts_that_lead_in_a_circle_end_where_it_closes(catalog: Catalog) -> None:
    for name, before in [("a.json", "b.json"), ("b.json", "c.json"), ("c.json", "b.json"), ("d.json", "d.json")]:
        write(catalog, name, receipt_text(RewriteReceipt(name=name, previous=before)))
    found = catalog.receipts_from("events", "a.json")
    assert [(name, receipt is None) for name, receipt in found] == [
        ("a.json", False),
        ("b.json", False),
        ("c.json", True),
    ]
    assert list(catalog.receipts_from("events", "d.json")) == [("d.json", None)]
    assert list(catalog.receipts_from("events", None)) == []


ROWS = pa.table({"path": ["a", "b"], "records": [1, 2]})


def test_a_part_of_a_checkpoint_is_read_as_it_was_written(catalog: Catalog) -> None:
    part = catalog.write_part("events", "part.parquet", ROWS)
    assert (part.name, part.rows) == ("part.parquet", 2)
    assert catalog.read_part("events", part, ROWS.schema) == ROWS
    assert catalog.read_part("events", part.model_copy(update={"digest": None}), ROWS.schema) == ROWS
    assert catalog.read_part("events", Part(name="gone.parquet", rows=2), ROWS.schema) is None


def parquet(rows: pa.Table) -> bytes:
    into = pa.BufferOutputStream()
    pq.write_table(rows, into)
    return bytes(into.getvalue())


@pytest.mark.parametrize(
    "text",
    [b"", b"PAR1", parquet(ROWS)[:-20], parquet(ROWS)[:60], parquet(ROWS[:1]), parquet(ROWS.drop(["path"]))],
    ids=["empty", "its beginning", "truncated", "half", "fewer rows", "other columns"],
)
def test_a_damaged_part_counts_as_lost(text: bytes, catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    write(catalog, "part.parquet", text)
    with caplog.at_level(logging.WARNING):
        assert catalog.read_part("events", Part(name="part.parquet", rows=2), ROWS.schema) is None
    assert "part.parquet of a checkpoint is damaged and counts as lost" in caplog.text


def test_a_part_with_other_values_counts_as_lost(catalog: Catalog) -> None:
    part = catalog.write_part("events", "part.parquet", ROWS)
    write(catalog, "part.parquet", parquet(ROWS.set_column(1, "records", [[1, 3]])))
    assert catalog.read_part("events", part, ROWS.schema) is None


def test_what_a_newer_version_adds_without_another_version_number_is_passed_over() -> None:
    told = json.loads(receipt_text(EACH_KIND[0])) | {"of_tomorrow": 1}
    del told["digest"]
    told["digest"] = digest_of(json.dumps(told, separators=(",", ":")).encode())
    assert parse_receipt("events", EACH_KIND[0].name, json.dumps(told).encode()) == EACH_KIND[0]


def test_only_receipts_that_version_1_would_misread_are_of_version_2() -> None:
    versions = [receipt.version for receipt in EACH_KIND]
    assert versions == [1, 1, 1, 1, 2]
    assert [json.loads(receipt_text(receipt))["version"] for receipt in EACH_KIND] == versions


def test_a_file_that_was_read_is_told_as_version_1_told_it() -> None:
    [read, *_, left_out] = json.loads(receipt_text(EACH_KIND[1]))["files"]
    assert read == {"path": "a b/ü.json", "generation": 1, "size": 2**40, "etag": "e", "records": 5}
    assert left_out["skipped"] is True


def test_a_part_from_before_files_could_be_skipped_is_read(catalog: Catalog) -> None:
    schema = ROWS.schema.append(pa.field("skipped", pa.bool_()))
    part = catalog.write_part("events", "part.parquet", ROWS)
    assert catalog.read_part("events", part, schema) == ROWS.append_column(schema.field("skipped"), [[False, False]])


def test_what_is_none_has_no_parts() -> None:
    assert parts_of(None) == parts_of(EACH_KIND[1]) == {}
    assert parts_of(EACH_KIND[0])["built"] == (Part(name="a.parquet", rows=2),)
