"""Receipts: stored and read back, those of older versions too; what is newer is refused, and damage counts as loss."""

import json
import logging
from pathlib import Path

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
    TopicPositions,
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
        files=(ReadFile("a b/ü.json", 1, 2**40, "e", 5), ReadFile("lost.json", 0, None, None, 1)),
        accepted=(Acceptance("a", "e", 2), Acceptance("b", "f")),
        derived=True,
    ),
    RewriteReceipt(reason="redecode", rewritten=CELLS, disturbed=CELLS[1:], previous="before.json"),
    PositionsReceipt(
        positions=(TopicPositions(topic="clicks", id="x", next={0: (2**40, 0), 11: (3, 1)}),),
        accepted_up_to=(TopicPositions(topic="gone", id=None, next={}),),
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
    assert json.loads(receipt_text(receipt))["version"] == VERSION


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
            b'"events":4,"longest_reach":0}',
            BuildReceipt(
                name="x.json",
                table="sessions",
                built_from={"session_fragments": Input(snapshot=5, sequence=2)},
                fingerprint="f",
                reason="open",
                checked=CELLS,
                events=4,
                longest_reach=0,
            ),
        ),
    ],
    ids=["files", "accepted", "checkpoint", "rewrite", "positions", "build"],
)
def test_receipts_that_tell_neither_version_nor_kind_are_read(text: bytes, receipt: AnyReceipt) -> None:
    assert parse_receipt("events", "x.json", text) == receipt


def test_a_receipt_of_a_newer_version_is_refused_by_name(catalog: Catalog) -> None:
    write(catalog, "new.json", json.dumps({"version": VERSION + 1, "kind": "unheard of"}).encode())
    with pytest.raises(NewerVersionError, match=rf"new\.json is of version {VERSION + 1}") as refused:
        catalog.read_receipt("events", "new.json")
    assert exit_code(refused.value) == REFUSED


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b'{"files": 3}', b'{"kind": "unheard of"}', b"\xff"])
def test_a_damaged_receipt_counts_as_lost(text: bytes, catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    write(catalog, "damaged.json", text)
    with caplog.at_level(logging.WARNING):
        assert catalog.read_receipt("events", "damaged.json") is None
    assert "damaged.json is damaged and counts as lost" in caplog.text


def test_what_a_newer_version_adds_without_another_version_number_is_passed_over() -> None:
    text = receipt_text(EACH_KIND[0])
    assert parse_receipt("events", EACH_KIND[0].name, text[:-1] + b',"of_tomorrow":1}') == EACH_KIND[0]


def test_what_is_none_has_no_parts() -> None:
    assert parts_of(None) == parts_of(EACH_KIND[1]) == {}
    assert parts_of(EACH_KIND[0])["built"] == (Part(name="a.parquet", rows=2),)
