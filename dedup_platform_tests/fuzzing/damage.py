"""What befalls bytes: some are changed, lost, said twice, taken from elsewhere, or count what is not there."""

import struct
from random import Random

from dedup_platform_tests.sources.schemas import varint

MOST_BYTES = 16 * 1024
"""Of one input, so that thousands are read in a second."""
_NUMBERS = [0, 1, 2, 127, 128, 255, *(2**bits - less for bits in (15, 16, 24, 31, 32, 40, 62, 63) for less in (0, 1))]
_COUNTS = [varint(number) for number in _NUMBERS]
_COUNTS += [
    struct.pack(f"{order}{size}", number & mask)
    for number in _NUMBERS
    for order in "<>"
    for size, mask in (("H", 0xFFFF), ("I", 0xFFFFFFFF), ("Q", 2**64 - 1))
]
_OFTEN = b'\0\0\n\r"",[\\]{}\xff'
_BYTES = [bytes([number]) for number in (*range(256), *_OFTEN)]
_TEXTS = [b"1e999999999", b"-0", b"9" * 40, b"NaN", b"1e-400", b"\\ud800", b"\xed\xa0\x80", b"\xef\xbb\xbf"]
_TEXTS += [b"0001-01-01T00:00:00Z", b"9999-12-31T23:59:59.999999999Z", b"[" * 60, b'{"a":' * 60]
_TEXTS += [b'"' * 9, b"\r\n\r", b"\0" * 9, b'a","b']


def damaged(random: Random, content: bytes, other: bytes) -> bytes:
    """The content after one to four of these; `other` is what it may be mixed with."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        content = _once(random, content, other)
    return content[:MOST_BYTES]


def _once(random: Random, content: bytes, other: bytes) -> bytes:
    at = int(random.random() * (len(content) + 1))
    some = random.choice((1, 1, 2, 4, 8, 40, 400))
    match int(random.random() * 10):
        case 0:
            return content[:at] + random.choice(_BYTES) + content[at + 1 :]
        case 1:
            bit = content[at : at + 1]
            return content[:at] + (bytes([bit[0] ^ 1 << int(random.random() * 8)]) if bit else b"") + content[at + 1 :]
        case 2:
            return content[:at] + content[at + some :]
        case 3:
            return content[:at] + content[at : at + some] * random.choice((2, 2, 3, 50)) + content[at + some :]
        case 4:
            return content[:at] + random.choice(_BYTES) + content[at:]
        case 5:
            return content[:at]
        case 6:
            there = int(random.random() * (len(other) + 1))
            return content[:at] + other[there : there + some] + content[at:]
        case 7:
            return content[:at] + other[int(random.random() * (len(other) + 1)) :]
        case 8:
            number = random.choice(_COUNTS)
            return content[:at] + number + content[at + random.choice((0, 1, len(number))) :]
        case _:
            return content[:at] + random.choice(_TEXTS) + content[at:]
