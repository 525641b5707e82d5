"""What the first bytes of a file tell of how its records are written."""

import gzip
import json

import pytest

from dedup_platform.errors import InferenceError
from dedup_platform.infer import layout_of

EVENT = {"id": "1", "at": "2024-03-01T10:00:00Z", "user": "ada", "more": {"of": "it"}}
PADDED = EVENT | {"items": [{"sku": "A"}, {"sku": "B"}]}


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("a,b\n1,2024-03-01\n2,2024-03-02\n", {"format": "csv"}),
        ("a;b\n1,5;2\n3,5;4\n", {"format": "csv", "csv": {"delimiter": ";"}}),
        ("a\tb c\n1\tx y\n2\tz z\n", {"format": "csv", "csv": {"delimiter": "\t"}}),
        ('a,b\n1,"x\ny, z"\n2,"u"\n', {"format": "csv"}),
        ("1,2024-03-01\n2,2024-03-02\n", {"format": "csv", "csv": {"columns": ["column_1", "column_2"]}}),
        ("red,round\nred,square\nblue,round\n", {"format": "csv", "csv": {"columns": ["column_1", "column_2"]}}),
        ("colour,shape\nred,round\nblue,square\n", {"format": "csv"}),
        (
            "#Software: IIS\n#Fields: date time c-ip\n2024-03-01 00:00:02 203.0.113.7\n2024-03-01 00:00:03 ::1\n",
            {"format": "csv", "csv": {"delimiter": " ", "comment": "#", "columns": ["date", "time", "c-ip"]}},
        ),
        (json.dumps(EVENT) + "\n" + json.dumps(EVENT), {"format": "json"}),
        (json.dumps(PADDED) + "\n" + json.dumps(PADDED), {"format": "json"}),
        (json.dumps([EVENT, EVENT]), {"format": "json", "explode": "*"}),
        (json.dumps({"Records": [EVENT] * 9}), {"format": "json", "explode": "Records"}),
        (json.dumps({"detail": {"my.events": [EVENT] * 9}}), {"format": "json", "explode": "detail['my.events']"}),
        (json.dumps({"sent": 1, "Records": [EVENT] * 9}, indent=2), {"format": "json", "explode": "Records"}),
        (json.dumps({"Records": [EVENT] * 99})[:2000], {"format": "json", "explode": "Records"}),
    ],
)
def test_texts(text: str, source: dict[str, object]) -> None:
    assert layout_of("a", text.encode()).source == source
    assert layout_of("a", b"\xef\xbb\xbf" + text.encode()).source == source


QUOTED = "\n".join(["a,b", "'x, y',2024-03-01", "'z, u',2024-03-02", ""])


@pytest.mark.parametrize(
    ("content", "csv"),
    [
        (QUOTED.encode(), {"quote": "'"}),
        (b"a,b\ndon't,1\n'tis,2\nso,3\n", None),
        ("a,b\né,1\nü,2\n".encode(), None),
        ("a,b\né,1\nü,2\n".encode("latin-1"), {"encoding": "windows-1252"}),
        ("a;b\né;1\nü;2\n".encode("utf-16"), {"delimiter": ";", "encoding": "utf-16"}),
        ("a,b\nx,1\né,1\n".encode()[:-4], None),
    ],
)
def test_quotes_and_encodings(content: bytes, csv: dict[str, str] | None) -> None:
    assert layout_of("a", content).source == {"format": "csv"} | ({"csv": csv} if csv else {})


def test_others_by_their_magic() -> None:
    assert [layout_of("a", each).format for each in (b"PAR1\0\0", b"Obj\x01\0")] == ["parquet", "avro"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty, or cannot be unpacked"),
        ('{"a": 1}'.encode("utf-16"), "is JSON in UTF-16; convert it to UTF-8"),
        (gzip.compress(b"a,b", mtime=0), "is neither text nor Parquet nor Avro"),
        (b"some prose\nthat is, well, no csv\n", "is no csv: its lines do not have equally many fields"),
        (b"id,user,at,user,at\n1,u,2024-03-01,x,y\n2,v,2024-03-02,x,y\n", "names user, at more than once"),
        (b'{"a": "' + b"x" * 2**20, "begins by a line that does not end within 1,048,583 bytes"),
        (b"[1, 2, 3]", "begins by a list in which there are no objects"),
        (b'{"a":\n{"b": 1}\n}\n', "begins as JSON, but no line is an object"),
    ],
)
def test_what_cannot_be_read_is_told(content: bytes, told: str) -> None:
    with pytest.raises(InferenceError, match=told):
        layout_of("a", content)
