"""Compressed files give every byte before their damage, whatever the damage is."""

import gzip
import io
import random
import zlib

import cramjam
import pytest
import zstandard
from hypothesis import given, settings, strategies as st

from dedup_platform.sources import compression
from dedup_platform.sources.compression import DamageError, Packed, decompressed

TEXT = b"".join(b"%d,%d\n" % (number, random.Random(number).getrandbits(64)) for number in range(20_000))
GZIP = gzip.compress(TEXT)
SNAPPY = bytes(cramjam.snappy.compress(TEXT))
CHUNKS = [TEXT[start : start + 65_536] for start in range(0, len(TEXT), 65_536)]
"""What each chunk of a snappy file holds, in frames and in Hadoop's blocks."""
ZSTD = zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)


def hadoop(*blocks: list[bytes]) -> bytes:
    """A file as Hadoop writes it: the size of each block, then its chunks, each with its packed size."""
    content = b""
    for chunks in blocks:
        content += sum(map(len, chunks)).to_bytes(4)
        for chunk in chunks:
            packed = bytes(cramjam.snappy.compress_raw(chunk))
            content += len(packed).to_bytes(4) + packed
    return content


def read(content: bytes, name: str = "events.csv") -> tuple[bytes, DamageError | None]:
    chunks: list[bytes] = []
    try:
        for chunk in decompressed(io.BytesIO(content), name):
            chunks.append(chunk)
    except DamageError as damage:
        return b"".join(chunks), damage
    return b"".join(chunks), None


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (TEXT, "events.csv"),
        (GZIP, "events.csv.gz"),
        (GZIP, "events.csv"),
        (ZSTD, "events.csv.zst"),
        (ZSTD, "events.csv.gz"),
        (gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]), "events.csv.gz"),
        (gzip.compress(TEXT[:100]) + gzip.compress(b"") + gzip.compress(TEXT[100:]) + b"\0" * 5000, "events.csv.gz"),
        (zstandard.compress(TEXT[:100]) + zstandard.compress(TEXT[100:]), "events.csv.zst"),
        (SNAPPY, "events.csv.sz"),
        (SNAPPY, "events.csv.snappy"),
        (SNAPPY, "events.csv"),
        (bytes(cramjam.snappy.compress(TEXT[:100])) + bytes(cramjam.snappy.compress(TEXT[100:])), "events.csv.sz"),
        (SNAPPY + b"\xfe\x02\0\0ab", "events.csv.sz"),
        (hadoop(CHUNKS), "events.csv.snappy"),
        (hadoop(CHUNKS[:1], [], CHUNKS[1:]), "events.csv.SNAPPY"),
        (b"\x50\x2a\x4d\x18\x03\0\0\0abc" + ZSTD, "events.csv.zst"),
    ],
)
def test_the_first_bytes_decide(content: bytes, name: str) -> None:
    assert read(content, name) == (TEXT, None)


@pytest.mark.parametrize(
    ("name", "kind"), [("a.csv.gz", "gzip"), ("a.csv.GZ", "gzip"), ("a.csv.zst", "zstd"), ("a.sz", "snappy")]
)
@pytest.mark.parametrize("content", [b"", b"\x1f", b"id,at\n"])
def test_a_name_that_promises_compression_is_held_to_it(name: str, kind: str, content: bytes) -> None:
    given, damage = read(content, name)
    assert given == b""
    assert damage is not None
    assert damage.args == (f"its name promises {kind}, but its first bytes are not {kind}'s", 0)


def test_nothing_is_not_what_hadoop_writes() -> None:
    _, damage = read(b"", "a.snappy")
    assert damage is not None
    assert damage.args == ("its name promises snappy, but its first bytes are not snappy's", 0)


def test_an_empty_file_is_empty() -> None:
    assert read(b"") == (b"", None)


@pytest.mark.parametrize(
    ("content", "given", "reason", "offset"),
    [
        (GZIP[:-1], TEXT, "the compressed data ends too early", len(GZIP) - 1),
        (
            GZIP[:-8] + bytes(8),
            TEXT,
            "Error -3 while decompressing data: incorrect data check",
            len(GZIP) - 5,
        ),
        (GZIP + b"\x1f\x8b", TEXT, "the compressed data ends too early", len(GZIP) + 2),
        (
            GZIP + b"garbage",
            TEXT,
            "Error -3 while decompressing data: incorrect header check",
            len(GZIP) + 1,
        ),
        (ZSTD[:-1], TEXT, "the compressed data ends too early", len(ZSTD) - 1),
    ],
)
def test_damage_at_the_end(content: bytes, given: bytes, reason: str, offset: int) -> None:
    found, damage = read(content)
    assert found == given
    assert damage is not None
    assert damage.args == (reason, offset)


def test_a_wrong_checksum_of_zstd_is_damage_after_the_last_byte() -> None:
    found, damage = read(ZSTD[:-1] + bytes([ZSTD[-1] ^ 1]))
    assert found == TEXT
    assert damage is not None


def test_a_frame_that_asks_for_too_much_memory_is_damage() -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=28, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    found, damage = read(compressor.compress(TEXT) + compressor.flush(), "a.zst")
    assert found == b""
    assert damage is not None
    assert "too much memory" in damage.reason


@given(st.integers(0, len(GZIP) - 1))
@settings(max_examples=60, deadline=None)
def test_a_truncated_gzip_gives_what_zlib_can_give_and_says_so(length: int) -> None:
    found, damage = read(GZIP[:length], "events.csv.gz")
    assert damage is not None
    assert TEXT.startswith(found)
    # Deflate looks back at most 32 KiB and holds back less than a block of Huffman codes.
    if length > 64 * 1024:
        assert len(found) > len(TEXT) * length // len(GZIP) - 64 * 1024


@given(st.integers(20, len(GZIP) - 1), st.integers(0, 7))
@settings(max_examples=60, deadline=None)
def test_a_flipped_bit_never_goes_unnoticed(place: int, bit: int) -> None:
    broken = bytearray(GZIP)
    broken[place] ^= 1 << bit
    found, damage = read(bytes(broken))
    assert damage is not None
    assert damage.offset is not None
    intact = _decoded_before(place)
    assert found[: len(intact)] == intact


def _decoded_before(place: int) -> bytes:
    return read(GZIP[:place])[0]


@pytest.mark.parametrize(
    "content", [SNAPPY, hadoop(CHUNKS), hadoop(CHUNKS[:2], CHUNKS[2:])], ids=["sz", "hadoop", "blocks"]
)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_truncated_snappy_gives_whole_chunks_and_says_so(content: bytes, data: st.DataObject) -> None:
    length = data.draw(st.integers(11, len(content) - 1))
    found, damage = read(content[:length], "a.snappy")
    assert found in {b"".join(CHUNKS[:count]) for count in range(len(CHUNKS))}
    # Between two chunks or blocks nothing tells that there was more.
    assert damage is not None or found
    assert len(found) > len(TEXT) * length // len(content) - 2 * 65_536
    if damage:
        assert damage.args == ("the compressed data ends too early", length)


@given(st.integers(14, len(SNAPPY) - 1), st.integers(0, 7))
@settings(max_examples=60, deadline=None)
def test_a_flipped_bit_of_snappy_s_frames_costs_no_chunk_before_it(place: int, bit: int) -> None:
    broken = bytearray(SNAPPY)
    broken[place] ^= 1 << bit
    found, damage = read(bytes(broken))
    assert damage is not None
    assert TEXT.startswith(found)
    assert found.startswith(read(SNAPPY[:place])[0])


@pytest.mark.parametrize(
    ("content", "given", "reason", "offset"),
    [
        (SNAPPY + b"\x02\x01\0\0a", TEXT, "snappy: corrupt input (unsupported chunk type: 2)", len(SNAPPY)),
        (SNAPPY[:14] + bytes(4) + SNAPPY[18:], b"", "snappy: corrupt input (bad checksum; expected: 0, got: ", 10),
        (SNAPPY + b"\x80\x01\0\0a", TEXT, "128 is no kind of chunk", len(SNAPPY)),
        (b"\0\0\0\2\0\0\0\2\2\4", b"", "snappy: corrupt input (", 4),
        (b"\0\0\0\1" + hadoop([b"ab"])[4:], b"", "a block holds more than it says", 4),
        (b"\0\0\0\2\xff\0\0\0", b"", "a chunk cannot have 4278190080 bytes", 4),
        (b"\0\0\0\2\0\0\0\5\xff\xff\xff\xff\x0f", b"", "a chunk holds too much", 4),
        (hadoop([b"ab"]) + b"\0\0", b"ab", "the compressed data ends too early", 14),
        (hadoop([b"ab"]) + b"\0\0\0\1", b"ab", "the compressed data ends too early", 16),
    ],
)
def test_damaged_snappy(content: bytes, given: bytes, reason: str, offset: int) -> None:
    found, damage = read(content, "a.snappy")
    assert found == given
    assert damage is not None
    assert damage.reason.startswith(reason)
    assert damage.offset == offset


def member(text: bytes, flags: int, size: int) -> bytes:
    """A member of gzip whose header has the parts of these flags, each of about so many bytes."""
    header = b"\x1f\x8b\x08" + bytes([flags]) + b"\0\0\0\0\0\xff"
    header += (size.to_bytes(2, "little") + b"x" * size) * bool(flags & 4)
    header += (b"name" * (size // 4) + b"\0") * bool(flags & 8) + (b"said" * (size // 4) + b"\0") * bool(flags & 16)
    checksum = (zlib.crc32(header) & 0xFFFF).to_bytes(2, "little") if flags & 2 else b""
    return header + checksum + gzip.compress(text, mtime=0)[10:]


@pytest.mark.parametrize("size", [0, 8, 1024, 2048, 5000, 10_000])
@pytest.mark.parametrize("flags", [0, 2, 4, 8, 16, 8 | 16, 4 | 16, 2 | 4 | 8 | 16])
def test_gzip_headers_of_all_lengths(flags: int, size: int) -> None:
    content = b"".join(member(text, flags, size) for text in CHUNKS[:3])
    assert read(content) == (b"".join(CHUNKS[:3]), None)
    found, damage = read(member(b"first", 0, 0) + member(b"second", flags | 32, size))
    assert found == b"first"
    assert damage is not None
    assert "unknown header flags set" in damage.reason


def test_damage_is_what_zlib_says_of_it(monkeypatch: pytest.MonkeyPatch, thorough: bool) -> None:
    """Of bytes that zlib takes for damage the quicker decoder may give a few more before it notices."""
    cases = [_damaged(random.Random(seed)) for seed in range(5000 if thorough else 150)]
    found = [read(each) for each in cases]
    monkeypatch.setattr(compression, "_Igzip", compression._zlib)
    for case, (content, damage) in zip(cases, found, strict=True):
        expected, exact_damage = read(case)
        assert repr(damage) == repr(exact_damage)
        assert content[: len(expected)] == expected
        assert damage or content == expected


def _damaged(source: random.Random) -> bytes:
    start = source.randrange(len(TEXT) - 20_000)
    text = TEXT[start : start + source.choice([10, 1000, 20_000])]
    packed = bytearray(
        gzip.compress(text, source.choice([0, 1, 6, 9])) + gzip.compress(text[:50]) * source.randrange(2)
    )
    for _ in range(source.choice([0, 1, 1, 1, 2])):
        at = source.randrange(4, max(5, len(packed)))
        match source.randrange(4):
            case 0:
                packed[at : at + 1] = source.randbytes(1)
            case 1:
                del packed[at : at + source.randint(1, 4)]
            case 2:
                del packed[at:]
            case _:
                packed[at:at] = source.randbytes(source.randint(1, 3))
    return bytes(packed)


ZEROS = bytes(2**26)


def unpacked(content: bytes, name: str, most: int) -> tuple[int, str | None]:
    """How many bytes come out, and why no more."""
    size = 0
    try:
        for chunk in Packed(io.BytesIO(content), name, most).unpacked():
            size += len(chunk)
    except DamageError as damage:
        return size, damage.reason
    return size, None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.gz", gzip.compress(ZEROS)),
        ("x.zst", zstandard.ZstdCompressor().compress(ZEROS)),
        ("x.sz", bytes(cramjam.snappy.compress(ZEROS))),
    ],
)
def test_a_file_may_unpack_to_so_many_times_its_size(name: str, content: bytes) -> None:
    ratio = len(ZEROS) // len(content)
    assert unpacked(content, name, ratio + 1) == (len(ZEROS), None)
    size, reason = unpacked(content, name, ratio // 2)
    assert reason == f"it unpacks to more than {ratio // 2} times its size, which is source.max_unpacked_ratio"
    assert 2**22 <= size <= max(2**22, ratio // 2 * len(content))


def test_a_small_file_may_unpack_to_any_number_of_times_its_size() -> None:
    assert unpacked(gzip.compress(bytes(2**22)), "x.gz", 1) == (2**22, None)
    assert unpacked(gzip.compress(bytes(2**22 + 1)), "x.gz", 1)[0] == 2**22


def test_a_plain_file_is_as_large_as_it_is() -> None:
    assert unpacked(bytes(2**23), "x", 1) == (2**23, None)
