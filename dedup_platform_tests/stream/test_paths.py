"""Texts and lists of steps, as the paths that they spell."""

import hashlib
from pathlib import Path

import pytest
from pydantic import ValidationError

from dedup_platform.stream import load_streams
from dedup_platform.stream.paths import FieldSpelling, Step, field_path
from dedup_platform_tests.conftest import PROJECT
from dedup_platform_tests.sources.click_streams import click_stream

DEFINITIONS = {
    "clicks": ("0df0ab821339745b", "3dffea81283fecf1"),
    "cloudtrail": ("36cc21be3ef0d92a", "f28528bb202183a8"),
    "online_retail": ("e4907291dbd0ab93", "e5f522a13e5f69ca"),
    "orders": ("ab693a1f45a8c74a", "e51bbd444f6968f8"),
}
"""Digests of the fields and of the source of each stream file, from before there were paths."""


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("user", ("user",)),
        ("actor.id", ("actor", "id")),
        ("items[0].sku", ("items", 0, "sku")),
        ("matrix[1][23]", ("matrix", 1, 23)),
        ("['user.name']", ("user.name",)),
        ("['user.name'].first", ("user.name", "first")),
        ("user['first.name'][\"it's\"]", ("user", "first.name", "it's")),
        ("x-forwarded for.@id", ("x-forwarded for", "@id")),
        ("a.0", ("a", "0")),
    ],
)
def test_texts_are_paths(text: str, steps: tuple[Step, ...]) -> None:
    assert field_path(text).steps == steps
    assert field_path(text).name == text
    assert field_path(steps).steps == field_path(field_path(steps).text).steps == steps
    assert field_path(steps).name is None


@pytest.mark.parametrize(
    ("text", "not_a_step"),
    [
        ("a..b", "..b"),
        (".a", ".a"),
        ("a.", "."),
        ("[0]", "[0]"),
        ("a[", "["),
        ("a[b]", "[b]"),
        ("a[-1].b", "[-1].b"),
        ("a[0]b", "b"),
        ("['a", "['a"),
        ("cs(User]", "]"),
        ("a[٣]", "[٣]"),
    ],
)
def test_a_text_that_spells_no_path_is_a_name(text: str, not_a_step: str) -> None:
    assert field_path(text).steps == ()
    assert field_path(text).plain == text
    assert field_path(text).not_a_step == not_a_step


@pytest.mark.parametrize("spelling", ["a", "a b", "a.b", "['a.b']", ("a..b",)])
def test_paths_and_plain_names_are_not_told_to_be_none(spelling: FieldSpelling) -> None:
    assert field_path(spelling).not_a_step is None


@pytest.mark.parametrize(
    ("spelling", "plain"), [("a", "a"), (("a",), "a"), (("a.b",), "a.b"), ("a.b", None), (("a", "b"), None)]
)
def test_plain_names(spelling: FieldSpelling, plain: str | None) -> None:
    assert field_path(spelling).plain == plain


def test_fields_are_named_twice_in_one_id() -> None:
    for event_id in (["a.b", "a.b"], {"hash": ["a.b", ["a", "b"]]}):
        with pytest.raises(ValidationError, match=r"twice|distinct"):
            click_stream("json", fields={"event_id": event_id})


def test_what_streams_say_stays_what_it_is() -> None:
    """What failed for a stream file that did not change would be tried again, and other rows be expected of it."""
    streams = load_streams(Path(PROJECT, "streams"))
    told = {name: (stream.fields, stream.source) for name, stream in streams.items()}
    assert {
        name: tuple(hashlib.sha256(part.model_dump_json().encode()).hexdigest()[:16] for part in parts)
        for name, parts in told.items()
    } == DEFINITIONS
