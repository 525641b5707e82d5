"""CSV over bytes: where records end, which bytes they are, what is malformed. Literal bytes in, literal records out."""

import csv
import io
import json
from collections.abc import Iterator

import pytest
from hypothesis import given, settings, strategies as st

from dedup_platform.sources.compression import DamageError
from dedup_platform.sources.records import AMBIGUOUS, DAMAGED_FILE, MALFORMED_RECORD, MAX_RECORD_BYTES, Record
from dedup_platform.sources.text.csv_lines import csv_batches
from dedup_platform.sources.text.csv_records import Dialect, csv_content, csv_records
from dedup_platform.sources.text.lines import Lines
from dedup_platform.stream.format import CsvFormat

BAD = MALFORMED_RECORD
MIB = 2**20


def read(content: bytes, size: int = 2**30) -> list[Record]:
    """The records of a file whose bytes come in chunks of `size`."""
    return list(csv_records(Lines(chunks(content, size))))


def chunks(content: bytes, size: int, damage: DamageError | None = None) -> Iterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]
    if damage:
        raise damage


def rows(content: bytes, size: int = 2**30) -> list[tuple[bytes, object]]:
    """(payload, values or reason) of each record."""
    return [
        (payload, values if isinstance(values, str) else list(values.values()))
        for payload, values, _ in read(content, size)
    ]


CASES: dict[str, tuple[bytes, list[tuple[bytes, object]]]] = {
    "empty file": (b"", []),
    "only a byte order mark": (b"\xef\xbb\xbf", []),
    "only a header": (b"id,at\n", []),
    "only a header without its line end": (b"id,at", []),
    "plain": (b"id,at\n1,2\n3,4\n", [(b"1,2", ["1", "2"]), (b"3,4", ["3", "4"])]),
    "no last line end": (b"id,at\n1,2", [(b"1,2", ["1", "2"])]),
    "byte order mark": (b"\xef\xbb\xbfid,at\n1,2\n", [(b"1,2", ["1", "2"])]),
    "CRLF": (b"id,at\r\n1,2\r\n3,4\r\n", [(b"1,2", ["1", "2"]), (b"3,4", ["3", "4"])]),
    "CR": (b"id,at\r1,2\r3,4\r", [(b"1,2", ["1", "2"]), (b"3,4", ["3", "4"])]),
    "mixed line ends": (
        b"id,at\n1,2\r\n3,4\r5,6\n",
        [(b"1,2", ["1", "2"]), (b"3,4", ["3", "4"]), (b"5,6", ["5", "6"])],
    ),
    "blank lines": (b"\n\nid,at\n\n1,2\n\r\n\n3,4\n\n", [(b"1,2", ["1", "2"]), (b"3,4", ["3", "4"])]),
    "empty fields": (b"id,at\n,\n", [(b",", ["", ""])]),
    "one empty quoted field": (b'id\n""\n', [(b'""', [""])]),
    "quoted": (b'id,at\n"1,1","2"\n', [(b'"1,1","2"', ["1,1", "2"])]),
    "quoted quotes": (b'id,at\n"a ""b""",2\n', [(b'"a ""b""",2', ['a "b"', "2"])]),
    "quoted new lines": (
        b'id,at\n"a\nb\r\nc\rd",2\n3,4\n',
        [(b'"a\nb\r\nc\rd",2', ["a\nb\r\nc\rd", "2"]), (b"3,4", ["3", "4"])],
    ),
    "quoted header": (b'"id","a\nt"\n1,2\n', [(b"1,2", ["1", "2"])]),
    "a quote inside a field": (b'id,at\n5" pipe,2\n3,4\n', [(b'5" pipe,2', ['5" pipe', "2"]), (b"3,4", ["3", "4"])]),
    "a space before a quote": (b'id,at\n1, "2"\n', [(b'1, "2"', ["1", ' "2"'])]),
    "text after a closing quote": (b'id,at\n"1"x,2\n3,4\n', [(b'"1"x,2', BAD), (b"3,4", ["3", "4"])]),
    "a quote that never closes": (
        b'id,at\n1,"2\n3,4\n5,6\n',
        [(b'1,"2', BAD), (b"3,4", ["3", "4"]), (b"5,6", ["5", "6"])],
    ),
    "a quote that never closes, last": (b'id,at\n1,"2', [(b'1,"2', BAD)]),
    "a quote that closes too late": (
        b'id,at\n1,"2\n3,"4"\n5,6\n',
        [(b'1,"2', BAD), (b'3,"4"', ["3", "4"]), (b"5,6", ["5", "6"])],
    ),
    "short row": (b"id,at\n1\n3,4\n", [(b"1", BAD), (b"3,4", ["3", "4"])]),
    "long row": (b"id,at\n1,2,3\n3,4\n", [(b"1,2,3", BAD), (b"3,4", ["3", "4"])]),
    "header again": (b"id,at\n1,2\nid,at\n", [(b"1,2", ["1", "2"]), (b"id,at", ["id", "at"])]),
    "duplicate header": (b"id,at,id\n1,2,3\n", [(b"1,2,3", [AMBIGUOUS, "2"])]),
    "invalid UTF-8": (b"id,at\n1,\xff2\n3,4\n", [(b"1,\xff2", BAD), (b"3,4", ["3", "4"])]),
    "invalid UTF-8 across lines": (b'id,at\n"1\n\xc3",2\n3,4\n', [(b'"1\n\xc3",2', BAD), (b"3,4", ["3", "4"])]),
    "encoded surrogate": (b"id,at\n1,\xed\xa0\x80\n", [(b"1,\xed\xa0\x80", BAD)]),
    "invalid UTF-8 in the header": (b"id,prix \xa4\n1,2\n", [(b"1,2", ["1", "2"])]),
    "NUL byte": (b"id,at\n1,\x002\n3,4\n", [(b"1,\x002", BAD), (b"3,4", ["3", "4"])]),
    "a tail of NUL bytes": (b"id,at\n1,2\n\0\0\0\0", [(b"1,2", ["1", "2"]), (b"\0\0\0\0", BAD)]),
    "a header that is no record": (b'"id"x,at\n1,2\n3,4\n', [(b'"id"x,at', BAD), (b"1,2", BAD), (b"3,4", BAD)]),
    "a header that is too long": (
        b"id," + b"x" * 2**16 + b"\n1,2\n",
        [(b"id," + b"x" * 2**16, BAD), (b"1,2", BAD)],
    ),
    "a header that is no record and is alone": (b'"id"x,at', [(b'"id"x,at', BAD)]),
    "a header that is too long and is alone": (b"x" * (2**16 + 1), [(b"x" * (2**16 + 1), BAD)]),
    "other line separators": (
        "id,at\n1\u2028\x0b\x0c\x1c\x85,2\n".encode(),
        [("1\u2028\x0b\x0c\x1c\x85,2".encode(), ["1\u2028\x0b\x0c\x1c\x85", "2"])],
    ),
    "a long entity": (b"id,at\n" + b"x" * 10_000 + b",2\n", [(b"x" * 10_000 + b",2", ["x" * 10_000, "2"])]),
}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 2**30])
@pytest.mark.parametrize("case", CASES)
def test_records(case: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dedup_platform.sources.text.lines._BLOCK", 1)
    content, expected = CASES[case]
    assert rows(content, size) == expected


@pytest.mark.parametrize("case", CASES)
def test_payload_and_context_alone_decode_again(case: str) -> None:
    for payload, content, context in read(CASES[case][0]):
        assert csv_content(payload, json.loads(context)["header"]) == content


def test_the_context_holds_the_header_without_the_byte_order_mark() -> None:
    [(_, _, context)] = read('\ufeffid,"a ""t""",é\r\n1,2,3\r\n'.encode())
    assert context == '{"format":"csv","header":["id","a \\"t\\"","é"]}'


def test_named_columns_make_the_first_line_a_record() -> None:
    lines = Lines(chunks(b"\xef\xbb\xbfu,e\r\n\r\nv\r\n", 4))
    context = '{"format":"csv","header":["user","id"]}'
    assert list(csv_records(lines, CsvFormat(columns=("user", "id")))) == [
        (b"u,e", {"user": "u", "id": "e"}, context),
        (b"v", MALFORMED_RECORD, context),
    ]


def test_other_delimiters_and_comments() -> None:
    content = b'#Version: 1\nid at\n#x y z\n1 "2 3"\n\n# \'a "b\n4 #5\n'
    context = '{"format":"csv","delimiter":" ","header":["id","at"]}'
    records = list(csv_records(Lines(chunks(content, 3)), CsvFormat(delimiter=" ", comment="#")))
    assert records == [(b'1 "2 3"', {"id": "1", "at": "2 3"}, context), (b"4 #5", {"id": "4", "at": "#5"}, context)]
    assert csv_content(b'1 "2 3"', ["id", "at"], Dialect(" ")) == {"id": "1", "at": "2 3"}
    named = CsvFormat(delimiter="\t", columns=("id", "at"))
    assert [read for _, read, _ in csv_records(Lines(iter([b"1,2\t3\n"])), named)] == [{"id": "1,2", "at": "3"}]


def test_other_quotes_and_none() -> None:
    content = b"id,at\n'a,\n''b''',\"2\"\n'c,3\n"
    context = '{"format":"csv","quote":"\'","header":["id","at"]}'
    records = list(csv_records(Lines(chunks(content, 3)), CsvFormat(quote="'")))
    assert records == [
        (b"'a,\n''b''',\"2\"", {"id": "a,\n'b'", "at": '"2"'}, context),
        (b"'c,3", MALFORMED_RECORD, context),
    ]
    assert csv_content(records[0][0], ["id", "at"], Dialect(quote="'")) == records[0][1]
    plain = csv_records(Lines(iter([b'id,at\n"a,b"\n'])), CsvFormat(quote=""))
    assert [content for _, content, _ in plain] == [{"id": '"a', "at": 'b"'}]


@pytest.mark.parametrize("size", [1, 3, MIB])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "latin-1", "windows-1252", "shift_jis"])
def test_other_encodings(encoding: str, size: int) -> None:
    name = "ｱ" if encoding == "shift_jis" else "é"
    content = f"{name},at\r\n{name}1,2\n".encode(encoding)
    records = list(csv_records(Lines(chunks(content, size), encoding)))
    context = json.dumps({"format": "csv", "header": [name, "at"]}, separators=(",", ":"), ensure_ascii=False)
    assert records == [(f"{name}1,2".encode(), {name: f"{name}1", "at": "2"}, context)]


@pytest.mark.parametrize(
    ("encoding", "content"),
    [
        ("windows-1252", b"id,at\n1,2\n\x81,2\n3,4\n"),
        ("shift_jis", b"id,at\n1,2\n\x81,2\n3,4\n"),
        ("utf-16-le", "id,at\n1,2\n".encode("utf-16-le") + b"\x00\xdc" + ",2\n3,4\n".encode("utf-16-le")),
    ],
)
def test_what_is_not_in_the_encoding_costs_its_record(encoding: str, content: bytes) -> None:
    records = list(csv_records(Lines(chunks(content, 3), encoding)))
    assert [content for _, content, _ in records] == [{"id": "1", "at": "2"}, BAD, {"id": "3", "at": "4"}]


def test_a_name_in_another_encoding_costs_only_its_own_column() -> None:
    [(_, content, context)] = read(b"id,prix \xa4\n1,2\n")
    assert content == {"id": "1", "prix \\xa4": "2"}
    assert json.loads(context)["header"] == ["id", "prix \\xa4"]


def test_a_line_of_10_mb_is_a_record() -> None:
    line = b"x" * 10_000_000 + b",2"
    assert rows(b"id,at\n" + line + b"\n3,4\n", MIB) == [(line, ["x" * 10_000_000, "2"]), (b"3,4", ["3", "4"])]


@pytest.mark.parametrize("size", [MAX_RECORD_BYTES + 1, 3 * MAX_RECORD_BYTES])
def test_a_longer_line_is_rejected_and_its_beginning_kept(size: int) -> None:
    [first, second] = read(b"id,at\n" + b"x" * size + b"\n3,4\n", MIB)
    assert first == (b"x" * MAX_RECORD_BYTES, BAD, '{"format":"csv","header":["id","at"],"oversized":true}')
    assert second[:2] == (b"3,4", {"id": "3", "at": "4"})


@pytest.mark.parametrize("end", [b"", b'"\n'])
def test_a_quote_left_open_cannot_swallow_more_than_a_record_may_hold(end: bytes) -> None:
    many = 3 * MAX_RECORD_BYTES // 1000
    found = rows(b'id,at\n1,"2\n' + (b"3," + b"4" * 997 + b"\n") * many + end, MIB)
    assert found[0] == (b'1,"2', BAD)
    assert {payload[:3] for payload, _ in found[1 : many + 1]} == {b"3,4"}
    assert len(found) == 1 + many + len(end) // 2


def test_a_quote_left_open_does_not_hold_back_what_follows() -> None:
    read_bytes = 0

    def endless() -> Iterator[bytes]:
        nonlocal read_bytes
        yield b'id,at\n1,"2\n'
        while read_bytes < 10 * MAX_RECORD_BYTES:
            read_bytes += MIB
            yield (b"3," + b"4" * 1021 + b"\n") * 1024

    assert next(csv_records(Lines(endless())))[:2] == (b'1,"2', BAD)
    assert read_bytes < 4 * MAX_RECORD_BYTES


def test_a_quoted_field_longer_than_a_record_counts_as_left_open() -> None:
    lines = (b"x" * 1023 + b"\n") * (MAX_RECORD_BYTES // 1024)
    found = rows(b'id,at\n1,"2\n' + lines + b'"\n5,6\n')
    assert found[0] == (b'1,"2', BAD)
    assert found[-1] == (b"5,6", ["5", "6"])
    assert len(found) == lines.count(b"\n") + 3


@pytest.mark.parametrize("payload", [b"", b"1,2\n3,4", b'1,"2'])
def test_what_is_not_one_record_is_malformed(payload: bytes) -> None:
    assert csv_content(payload, ["id", "at"]) == BAD


@pytest.mark.parametrize(
    ("content", "complete", "rest"),
    [
        (b"id,at\n1,2\n3,4\n", [b"1,2", b"3,4"], b""),
        (b"id,at\n1,2\n3,", [b"1,2"], b"3,"),
        (b"id,at\n1,2\n3,4", [b"1,2"], b"3,4"),
        (b"id,at\r\n1,2\r", [b"1,2"], b""),
        (b'id,at\n1,2\n"3\n4', [b"1,2"], b'"3\n4'),
        (b"id,", [], b"id,"),
        (b"", [], b""),
    ],
)
def test_damage_keeps_what_is_complete_and_stands_as_one_record(
    content: bytes, complete: list[bytes], rest: bytes
) -> None:
    damaged = Lines(chunks(content, 4, DamageError("broken", 17)))
    *records, (payload, reason, context) = csv_records(damaged)
    assert [record[0] for record in records] == complete
    assert (payload, reason) == (rest, DAMAGED_FILE)
    header = {"header": ["id", "at"]} if b"\n" in content else {}
    assert json.loads(context) == {"format": "csv", **header, "damage": {"reason": "broken", "offset": 17}}


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12) | st.sampled_from(
    ['"', '""', ",", "\n", "\r\n", "\r", 'a"b', "\ufeff", "é\n\u2028"]
)


@given(
    st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(texts, min_size=width, max_size=width), max_size=8)),
    st.booleans(),
    st.integers(1, 40),
)
@settings(max_examples=300, deadline=None)
def test_what_csv_writes_comes_back(table: list[list[str]], quote_all: bool, size: int) -> None:
    width = len(table[0]) if table else 2
    header = [f"c{number}" for number in range(width)]
    texts: list[bytes] = []
    for row in [header, *table]:
        text = io.StringIO(newline="")
        csv.writer(text, quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL).writerow(row)
        texts.append(text.getvalue().encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dedup_platform.sources.text.lines._BLOCK", 1)
        records = read(b"".join(texts), size)
    assert [list(content.values()) for _, content, _ in records if not isinstance(content, str)] == table
    assert [payload + b"\r\n" for payload, _, _ in records] == texts[1:]
    assert [csv_content(payload, header) for payload, _, _ in records] == [content for _, content, _ in records]


@given(
    st.lists(st.sampled_from([b'"', b",", b"\n", b"\r", b"a", b"\xff", b"\0", b"\xc3\xa9"]), max_size=40),
    st.integers(1, 9),
)
@settings(max_examples=500, deadline=None)
def test_any_bytes_give_records_that_hold_them_all_in_order(pieces: list[bytes], size: int) -> None:
    content = b"id,at\n" + b"".join(pieces)
    whole = read(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dedup_platform.sources.text.lines._BLOCK", 1)
        assert read(content, size) == whole
    rest = content.removeprefix(b"id,at\n")
    for payload, values, context in whole:
        skipped, rest = rest[: rest.index(payload)], rest[rest.index(payload) + len(payload) :]
        assert skipped.strip(b"\r\n") == b""
        assert csv_content(payload, json.loads(context)["header"]) == values
    assert rest.strip(b"\r\n") == b""


def test_many_bad_lines_do_not_take_long() -> None:
    bad = b'"a"b,1\n' * 100_000
    assert len(read(b"id,at\n" + bad)) == 100_000


@pytest.mark.parametrize("lines", [b'1","2\n', b'1","2\n3,4\n', b'1","2\n3,4\n5""6"7\n'])
def test_many_quotes_left_open_do_not_take_long(lines: bytes) -> None:
    content = b"id,at\n" + lines * 50_000
    payloads = [payload for payload, _, _ in read(content)]
    assert payloads == content.splitlines()[1:]
    assert payloads == [payload for batch, _, _ in csv_batches(Lines(chunks(content, MIB))) for payload in batch]


def test_one_endless_line_is_one_record() -> None:
    content = b"x" * (MAX_RECORD_BYTES + 2**20)
    [(payload, reason, context)] = read(content)
    assert (len(payload), reason) == (MAX_RECORD_BYTES, BAD)
    assert context == '{"format":"csv","header":null,"oversized":true}'
    [batch] = csv_batches(Lines(iter([content])))
    assert list(zip(*batch, strict=True)) == [(payload, reason, context)]
