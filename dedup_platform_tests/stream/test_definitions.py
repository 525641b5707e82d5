"""What may stand in place of a field's name, and how each mistake in it is told."""

import pickle
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from dedup_platform.errors import StreamFileError
from dedup_platform.stream import Attribute, FieldHash, FieldId, FieldList, Stream, TimeField, ZoneField, load_stream
from dedup_platform.stream.definitions import (
    Constant,
    Definition,
    FilePath,
    FirstOf,
    Join,
    TextPattern,
    paths_in,
    told,
)

# The lines' numbers are in what the tests expect.
SHOP = dedent(
    """\
    name: shop
    source: {kind: files, path: "in/**/*.json", format: json}
    fields:
      entity_id: {first_of: [user.id, anonymous_id]}
      event_id: {join: [id, [items, 0, sku]], with: "/"}
      event_time:
        join: [date, time]
        with: " "
        format: ["%Y-%m-%d %H:%M:%S", iso8601, epoch_ns]
        timezone: {first_of: [zone, {constant: Europe/Paris}]}
      arrival_time: {pattern: "at=([0-9]+)", field: note, format: epoch_s}
      attributes:
        page: {pattern: "^[A-Z]+ ([^ ?]*)", field: request}
        region: {path: "region=([^/]+)"}
        origin: {constant: 7, type: long}
        seen: {field: {join: [a, b], with: T}, type: timestamp, timezone: {field: zone}}
        day: {field: day, type: date, format: ["%d.%m.%Y", iso8601]}
    partitions: {granularity: day, start: 2026-01-31}
    """
)


def shop(folder: Path, old: str = "", new: str = "") -> Stream:
    assert old in SHOP
    (folder / "shop.yaml").write_text(SHOP.replace(old, new, 1))
    return load_stream(folder / "shop.yaml")


def test_every_kind_of_definition(tmp_path: Path) -> None:
    stream = shop(tmp_path)
    fields = stream.fields
    assert fields.entity_id == FirstOf(first_of=("user.id", "anonymous_id"))
    assert fields.event_id == FieldId(field=Join(**{"join": ("id", ("items", 0, "sku")), "with": "/"}))
    assert fields.event_time == TimeField(
        field=Join(**{"join": ("date", "time"), "with": " "}),
        format=("%Y-%m-%d %H:%M:%S", "iso8601", "epoch_ns"),
        timezone=ZoneField(field=FirstOf(first_of=("zone", Constant(constant="Europe/Paris")))),
    )
    assert fields.arrival_time == TimeField(field=TextPattern(pattern="at=([0-9]+)", field="note"), format="epoch_s")
    assert stream.attributes == {
        "page": Attribute(field=TextPattern(pattern="^[A-Z]+ ([^ ?]*)", field="request")),
        "region": Attribute(field=FilePath(path="region=([^/]+)")),
        "origin": Attribute(field=Constant(constant="7"), type="long"),
        "seen": Attribute(
            field=Join(**{"join": ("a", "b"), "with": "T"}), type="timestamp", timezone=ZoneField(field="zone")
        ),
        "day": Attribute(field="day", type="date", format=("%d.%m.%Y", "iso8601")),
    }
    assert Stream.model_validate(stream.model_dump()) == stream
    assert Stream.model_validate_json(stream.model_dump_json()) == stream
    assert pickle.loads(pickle.dumps(stream)) == stream


@pytest.mark.parametrize(
    ("event_id", "expected"),
    [
        ("a.b", FieldId(field="a.b")),
        ("{field: [a, b]}", FieldId(field=("a", "b"))),
        ("[a, b.c]", FieldList(fields=("a", "b.c"))),
        ("[[a, b], {first_of: [c, d]}]", FieldList(fields=(("a", "b"), FirstOf(first_of=("c", "d"))))),
        ("{pattern: (x), field: a}", FieldId(field=TextPattern(pattern="(x)", field="a"))),
        ("{hash: [[a, b], c]}", FieldHash(hash=(("a", "b"), "c"))),
    ],
)
def test_spellings_of_ids(tmp_path: Path, event_id: str, expected: Any) -> None:
    stream = shop(tmp_path, '{join: [id, [items, 0, sku]], with: "/"}', event_id)
    assert stream.fields.event_id == expected
    assert Stream.model_validate_json(stream.model_dump_json()) == stream


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("{first_of: [user.id, anonymous_id]}", "{first: [a]}", "4: fields.entity_id: must be a field: a name, a path"),
        (
            "{first_of: [user.id, anonymous_id]}",
            "{first_of: []}",
            "4: fields.entity_id.first_of: must have at least 1 in it",
        ),
        (
            "{first_of: [user.id, anonymous_id]}",
            "{first_of: [a, 7]}",
            "4: fields.entity_id.first_of[1]: must be a fiel",
        ),
        (
            "{first_of: [user.id, anonymous_id]}",
            "{first_of: [a], of: b}",
            "4: fields.entity_id.of: unknown key; allowed",
        ),
        ("anonymous_id]", "{constant: ''}]", "4: fields.entity_id.first_of[1].constant: "),
        (
            "[items, 0, sku]",
            "[items, -1]",
            "5: fields.event_id.join[1]: -1 is no step; a step is a name, or a place in a",
        ),
        (', with: "/"}', "}", "5: fields.event_id.with: is missing"),
        ('    with: " "\n', "    between: x\n", "6: fields.event_time.with: is missing"),
        (
            "iso8601, epoch_ns",
            "iso8601, iso8601",
            "9: fields.event_time.format: must be a format, or a list of distinct",
        ),
        (
            "iso8601, epoch_ns",
            "'%H', iso8601",
            "9: fields.event_time.format: does not tell the year, the month and the",
        ),
        (
            "iso8601, epoch_ns",
            "7",
            "9: fields.event_time.format: is no format; write a text like %Y-%m-%d %H:%M:%S, or ",
        ),
        (
            "{constant: Europe/Paris}",
            "7",
            "10: fields.event_time.timezone.first_of[1]: must be a field: a name, a path l",
        ),
        (
            "([0-9]+)",
            "[0-9]+",
            "11: fields.arrival_time.pattern: must have exactly one group in ( ), which is what is w",
        ),
        ("([0-9]+)", "((?=a)", "11: fields.arrival_time.pattern: is no regular expression: "),
        ("([0-9]+)", "(a)\\\\1", "11: fields.arrival_time.pattern: is no regular expression: backreferences are not "),
        ("field: request}", "fields: request}", "13: fields.attributes.page.field: is missing"),
        ("region=([^/]+)", "region=", "14: fields.attributes.region.path: must have exactly one group in ( )"),
        (
            "{constant: 7, type: long}",
            "{constant: [7]}",
            "15: fields.attributes.origin.constant: must be a valid string",
        ),
        (
            "field: zone}}",
            "field: ''}}",
            "16: fields.attributes.seen.timezone.field: is empty; write the name of a field",
        ),
        (
            "type: timestamp, ",
            "",
            "16: fields.attributes.seen: the timezone of a field is for timestamp, not for string",
        ),
        (
            "iso8601]}",
            "epoch_s]}",
            "17: fields.attributes.day: a date has no epoch_s; make it a timestamp, or write a ",
        ),
    ],
)
def test_mistakes(tmp_path: Path, old: str, new: str, expected: str) -> None:
    with pytest.raises(StreamFileError) as refused:
        shop(tmp_path, old, new)
    assert refused.value.problems[0].removeprefix(f"{tmp_path}/shop.yaml:").startswith(expected), refused.value.problems


def test_a_topic_has_no_path(tmp_path: Path) -> None:
    with pytest.raises(StreamFileError) as refused:
        shop(
            tmp_path,
            '{kind: files, path: "in/**/*.json", format: json}',
            '{kind: kafka, brokers: "b:1", topic: t, format: json}',
        )
    assert [problem.split(".yaml:")[1] for problem in refused.value.problems] == [
        "14: fields.attributes.region: a topic has no files, and so no path"
    ]


@pytest.mark.parametrize(
    "pattern", [r"a(b)(?:c)", r"[(](x)[)]", r"\((a)\)", "[]()](a)", "[^]()](?P<n>a)", "[a[(]b]((?i)x)"]
)
def test_one_group(pattern: str) -> None:
    assert TypeAdapter(Definition).validate_python({"path": pattern}) == FilePath(path=pattern)


@pytest.mark.parametrize(("pattern", "groups"), [("a", 0), ("(?:a)", 0), ("(?i)a", 0), ("(a)(b)", 2), ("((a))", 2)])
def test_no_group_or_too_many(pattern: str, groups: int) -> None:
    with pytest.raises(ValidationError, match=f"it has {groups}"):
        TypeAdapter(Definition).validate_python({"path": pattern})


def test_definitions_in_words(tmp_path: Path) -> None:
    fields = shop(tmp_path).fields
    assert told(fields.entity_id) == "the first of user.id, anonymous_id"
    assert isinstance(fields.event_id, FieldId)
    assert told(fields.event_id.field) == "id, items[0].sku joined by '/'"
    assert [path.text for path in paths_in(fields.event_id.field)] == ["id", "items[0].sku"]
    words = {name: told(each.field) for name, each in fields.attributes.items()}
    assert words["page"] == "^[A-Z]+ ([^ ?]*) in request"
    assert words["region"] == "region=([^/]+) in the file's path"
    assert words["origin"] == "always 7"
    assert words["day"] == "day"
