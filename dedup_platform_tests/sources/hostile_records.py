"""Files of records as they come, and as they should not: of few shapes mostly, then damaged in their text and bytes.

Pure: a seed makes the same file.
"""

import json
from collections.abc import Sequence
from random import Random

TEXTS = [
    *("u1", "u2", "", " ", "null", "é", "\u2028", "\x7f", "x" * 300, "a,b", "{", "[", ":", "1", "-0", "1.50", "true"),
    *("2024-03-01T11:00:00Z", "2024-03-01T11:00:00.5Z", "2024-03-01T11:00:00.123Z", "2024-03-01T11:00:00.123456Z"),
    *("2024-03-01 11:00:00", "2024-02-30T11:00:00Z", "2024-03-01T24:00:00Z", "2024-03-01T11:00:60.123456Z"),
    *("2024-03-01T13:00:00+02:00", "1969-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999999Z", "0000-03-01T11:00:00Z"),
]
TIMES = ["2024-03-01T11:00:00Z", "2024-03-01T11:00:00.5Z", "2024-03-01T11:00:00.123Z", "2024-03-01T11:00:00.123456Z"]
ESCAPED = [
    r"\n",
    r"\"",
    r"\\",
    r"\/",
    r"\u00e9",
    r"\ud83d\ude00",
    r"\ud83d",
    r"\ude00",
    r"\ud83dx",
    r"\u0000",
    r"\x",
    "\\",
]
ESCAPED += [
    r"\ud83d\u0041",
    r"\uD83D\uDE00\ud83d",
    r"\u12",
    "\t",
    "\x01",
    "\x1f",
    "\0",
    r"\u2028",
    "€",
    "🙂",
    r"\b\f\r\t",
]
WORDS = ["0", "-0", "1.0", "1.50", "-12", "1e5", "1E+5", "1e-3", "true", "false", "null", "9" * 25, "0." + "3" * 40]
BROKEN = [
    "01",
    "1.",
    ".5",
    "+1",
    "-",
    "NaN",
    "Infinity",
    "-Infinity",
    "nul",
    "True",
    "",
    "1e",
    "0x1",
    "'a'",
    "\u0661",
    "1 2",
    '"a"b',
]
NESTED = [
    "[]",
    "{}",
    "[1, 2]",
    '["a","b"]',
    '[ "a" , null ]',
    '{"id":"7"}',
    '{"id":null,"x":[1]}',
    '[{"sku":"A"}]',
    "[[1]]",
]
NESTED += [
    '{"id":1,"id":2}',
    '[{"a":1,"a":1}]',
    "[1,]",
    "[,1]",
    "[1 2]",
    '{"a"}',
    '{"a":1,}',
    "[" * 99 + "]" * 99,
    "[" * 100 + "]" * 100,
]
NESTED += ['{"a":' * 99 + "1" + "}" * 99, '{"a":' * 100 + "1" + "}" * 100, "[" * 2000]
NAMES = ["user", "id", "at", "n", "page", "actor", "tags", "actor.id", "ключ", "a b", r"us\u0065r", r"i\n", "\x01"]
GAPS = ["", "", "", " ", "  ", "\t", "\v", "\u00a0"]
ENDS = [
    "\n",
    "\n",
    "\n",
    "\n",
    "\r\n",
    "\r",
    "\n\n",
    "\n \n",
    "\n\t\r\n",
    "\r\r\n",
    "\n\x0c\n",
    "\n\u2028\n",
    "\n\x85\n",
]


def json_file(random: Random, records: int, share_of_odd: float) -> bytes:
    """JSON lines, of which about such a share is not like the others."""
    shapes = [_shape(random) for _ in range(3)]
    lines = bytearray(random.choice([b"", b"", b"", b"\xef\xbb\xbf", b"\xef\xbb\xbf\xef\xbb\xbf"]))
    for _ in range(records):
        is_odd = random.random() < share_of_odd
        text = _odd_record(random, shapes) if is_odd else _record(random, random.choice(shapes))
        line = text.encode("utf-8", "surrogatepass")
        lines += mutated(random, line) if is_odd and random.random() < 0.2 else line
        lines += (random.choice(ENDS) if is_odd else "\n").encode()
    return bytes(lines if random.random() < 0.7 else lines.rstrip(b"\n"))


CSV_TEXTS = [*TEXTS, "a\tb", "a;b", "a,b", "two\nlines", "two\r\nlines", 'say "x"', '"', "#", "", "", "x"]
CSV_BROKEN = [
    '"',
    '""',
    'a"b',
    '"a"b',
    '"a" ',
    ' "a"',
    '"a',
    'a"',
    '"a""',
    '"a"",',
    "\0",
    '"\0"',
    "\ufeff",
    '"a\n',
    "a\rb",
]


def csv_file(random: Random, records: int, share_of_odd: float, delimiter: str, header: Sequence[str] | None) -> bytes:
    """Rows of six columns, of which about such a share is not like the others; behind a header, if there is one."""
    ends = random.choice([["\n"], ["\r\n"], ENDS])
    written = bytearray(random.choice([b"", b"", b"\xef\xbb\xbf", b"# said before\n", b"\n"]))
    if header:
        quoted = [f'"{name}"' if random.random() < 0.1 else name for name in header]
        written += (delimiter.join(quoted) + random.choice(ends)).encode()
    quotes_all = random.random() < 0.3
    for number in range(records):
        fields = ["u1", f"e{number}", random.choice(TIMES), *random.choices(["", "1", "1.50", "a b", "é"], k=3)]
        is_odd = random.random() < share_of_odd
        row = [f'"{field}"' if quotes_all else field for field in fields]
        if is_odd:
            row = _odd_row(random, row)
        line = delimiter.join(row).encode()
        written += mutated(random, line) if is_odd and random.random() < 0.2 else line
        written += (random.choice(ENDS) if is_odd else random.choice(ends)).encode()
    return bytes(written if random.random() < 0.7 else written.rstrip(b"\n"))


def _odd_row(random: Random, row: list[str]) -> list[str]:
    changed = list(row)
    at = random.randrange(len(row))
    match random.randrange(6):
        case 0 | 1:
            changed[at] = '"' + random.choice(CSV_TEXTS).replace('"', '""') + '"'
        case 2:
            changed[at] = random.choice(CSV_TEXTS)
        case 3:
            changed[at] = random.choice(CSV_BROKEN)
        case 4:
            del changed[at]
        case _:
            changed.insert(at, random.choice(["#", "", "x"]))
    return changed


def mutated(random: Random, line: bytes) -> bytes:
    """A line with some bytes changed, lost, put in or said twice."""
    changed = bytearray(line)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(changed) + 1)
        byte = random.choice(
            [0, 1, 0x0D, 0x0A, 0x22, 0x2C, 0x5C, 0x7B, 0x7D, 0x80, 0xC3, 0xED, 0xEF, 0xFF, random.randrange(256)]
        )
        match random.randrange(4):
            case 0:
                changed[at : at + 1] = bytes([byte])
            case 1:
                del changed[at : at + random.randint(1, 4)]
            case 2:
                changed[at:at] = bytes([byte])
            case _:
                changed[at:at] = changed[at : at + random.randint(1, 12)]
    return bytes(changed)


def _shape(random: Random) -> list[str]:
    names = [
        "user",
        "id",
        "at",
        *random.sample(["n", "page", "actor", "tags", "x y", "ключ", "big"], random.randint(0, 5)),
    ]
    random.shuffle(names)
    return names


def _record(random: Random, names: Sequence[str]) -> str:
    fields = {name: _value(random, name) for name in names}
    return json.dumps(fields, ensure_ascii=random.random() < 0.5)


def _value(random: Random, name: str) -> object:
    match name:
        case "at":
            return random.choice(TIMES)
        case "id":
            return f"e{random.randrange(10**6)}"
        case "n":
            return random.choice([1, 2.5, None, "7", True])
        case "actor":
            return {"id": random.choice(["a", 5, None]), "name": "é🙂" if random.random() < 0.2 else "x"}
        case "tags":
            return random.choices(["a", 1, None, 'q"'], k=random.randrange(4))
        case _:
            return random.choice([*TEXTS, None, 'say "x"', "line\nend", "\\"])


def _odd_record(random: Random, shapes: Sequence[Sequence[str]]) -> str:
    """One that is like the others but for a little, or like none."""
    if random.random() < 0.7:
        names = random.choice(shapes)
        odd = random.choice(names)
        pairs = [f'"{name}": {_odd_value(random, name) if name == odd else _usual(random, name)}' for name in names]
        end = "}" if random.random() < 0.9 else random.choice(["}x", "} ", "}}", "},", "", "]"])
        return "{" + ", ".join(pairs) + end
    return _unlike(random, list(random.choice(shapes)))


def _usual(random: Random, name: str) -> str:
    return json.dumps(_value(random, name), ensure_ascii=False)


def _unlike(random: Random, names: list[str]) -> str:
    if random.random() < 0.4:
        names.insert(random.randrange(len(names) + 1), random.choice(NAMES))
    if random.random() < 0.1:
        names.remove(random.choice(names))
    open_, close = (
        ("{", "}")
        if random.random() < 0.95
        else random.choice([("[", "]"), ("", ""), ("{", ""), ("{", "}}"), ("{{", "}")])
    )
    comma = random.choice([", ", ", ", ",", ",,", " ,"])
    pairs = [f'{_gap(random)}"{name}"{_gap(random)}:{_gap(random)}{_odd_value(random, name)}' for name in names]
    return (
        random.choice(["", "", "", " ", "\ufeff", "x"])
        + open_
        + comma.join(pairs)
        + close
        + random.choice(["", "", " ", "x", ","])
    )


def _gap(random: Random) -> str:
    return random.choice(GAPS) if random.random() < 0.2 else ""


def _odd_value(random: Random, name: str) -> str:
    luck = random.random()
    if luck < 0.3:
        return json.dumps(_value(random, name))
    if luck < 0.5:
        return '"' + "".join(random.choices([*ESCAPED, "a", "b"], k=random.randint(1, 4))) + '"'
    if luck < 0.65:
        return random.choice(WORDS)
    if luck < 0.8:
        return random.choice(BROKEN)
    return random.choice(NESTED) if luck < 0.95 else json.dumps(random.choice(TEXTS), ensure_ascii=False)
