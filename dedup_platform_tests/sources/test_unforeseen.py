"""An error that nobody foresaw costs the record, or the rest of the file, that raises it: faults are planted here."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dedup_platform.errors import SourceError
from dedup_platform.sources import batch_decoding, batches, decoding, files, messages
from dedup_platform.sources.contents import Batch, Contents, joined_contents
from dedup_platform.sources.event_ids import event_id_reader
from dedup_platform.sources.exploding import events_of
from dedup_platform.sources.records import MALFORMED_RECORD
from dedup_platform.sources.text.json_lines import json_batches
from dedup_platform_tests.sources.click_streams import click_stream, message_stream, taken_in

POISON = "boom"


def raise_at(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let each event id be looked at by somebody who cannot bear one of them."""

    def poisoned(*said: Any) -> Any:
        reader = event_id_reader(*said)

        def event_id(fields: Any, path: str) -> str:
            found = reader(fields, path)
            if found == POISON:
                raise error
            return found

        return event_id

    monkeypatch.setattr(decoding, "event_id_reader", poisoned)
    # Columns know nothing of single records: they fail together.
    monkeypatch.setattr(batch_decoding.BatchDecoder, "_events", failing(error))


def failing(error: BaseException) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


ERRORS = [MemoryError(), RecursionError(), ValueError("a secret"), pl.exceptions.PanicException("no")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_one_record_is_rejected_among_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException
) -> None:
    raise_at(monkeypatch, error)
    lines = [{"user": "u", "id": each, "at": "2024-03-01"} for each in ("a", POISON, "c")]
    (tmp_path / "x.json").write_text("\n".join(map(json.dumps, lines)))
    rows = taken_in(click_stream("json", tmp_path))
    assert [(row["event_id"], row["rejection_reason"]) for row in rows] == [
        ("a", None),
        (None, f"unprocessable:{type(error).__name__}"),
        ("c", None),
    ]
    assert json.loads(rows[1]["payload"])["id"] == POISON
    assert [row["source_offset"] for row in rows] == [0, 1, 2]
    assert "secret" not in str([row | {"payload": None} for row in rows])


def test_an_error_of_the_source_is_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    raise_at(monkeypatch, SourceError("registry", "does not answer"))
    (tmp_path / "x.json").write_text(json.dumps({"user": "u", "id": POISON, "at": "2024-03-01"}))
    with pytest.raises(SourceError, match="does not answer"):
        taken_in(click_stream("json", tmp_path))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_the_rest_of_a_file_is_damaged_and_other_files_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException
) -> None:
    def broken(lines: Any, shapes: Any) -> Iterator[Batch]:
        for batch in json_batches(lines, shapes):
            yield batch
            if b"bad" in b"".join(batch[0]):
                raise error

    monkeypatch.setattr(files, "json_batches", broken)
    for name in ("bad", "good"):
        lines = [{"user": name, "id": each, "at": "2024-03-01"} for each in "ab"]
        (tmp_path / f"{name}.json").write_text("\n".join(map(json.dumps, lines)))
    rows = taken_in(click_stream("json", tmp_path))
    assert [(row["source"], row["source_offset"], row["rejection_reason"]) for row in rows] == [
        ("bad.json", 0, None),
        ("bad.json", 1, None),
        ("bad.json", 2, "damaged_file"),
        ("good.json", 0, None),
        ("good.json", 1, None),
    ]
    context = json.loads(rows[2]["payload_context"])
    assert context == {"format": "json", "damage": {"reason": f"unprocessable:{type(error).__name__}", "offset": None}}


@pytest.mark.parametrize("is_alone_too", [False, True])
def test_what_cannot_be_in_a_frame_with_others_comes_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_alone_too: bool
) -> None:
    def poisoned(parts: Iterable[Contents]) -> Contents:
        contents = list(parts)
        found = [each[place] for each in contents for place in range(len(each))]
        if any(POISON in str(each) for each in found) and (is_alone_too or len(found) > 1):
            raise MemoryError
        return joined_contents(contents)

    monkeypatch.setattr(batches, "joined_contents", poisoned)
    lines = [{"user": "u", "id": each, "at": "2024-03-01"} for each in ("a", POISON, POISON, "b", "c")]
    (tmp_path / "x.json").write_text("\n".join(map(json.dumps, lines)))
    stream = click_stream("json", tmp_path)
    [file] = files.list_files(stream, datetime.max.replace(tzinfo=UTC)).ready
    rows = pl.concat(files.read_group(stream, [[(file, 0)]], 0))
    assert rows["source_offset"].to_list() == list(range(5))
    assert rows["event_id"].to_list() == ["a", *[None if is_alone_too else POISON] * 2, "b", "c"]
    reasons = [None, *["unprocessable:MemoryError" if is_alone_too else None] * 2, None, None]
    assert rows["rejection_reason"].to_list() == reasons


@pytest.mark.parametrize("before", [0, 2])
def test_the_rest_of_a_message_is_rejected(monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    def broken(*said: Any, **facts: Any) -> Iterator[Any]:
        for number, record in enumerate(events_of(*said, **facts)):
            if number == before:
                raise MemoryError
            yield record

    monkeypatch.setattr(messages, "events_of", broken)
    value = json.dumps({"events": [{"user": "u", "id": str(each)} for each in range(3)]}).encode()
    reader = messages.MessageReader(message_stream("json", json={"records": "events"}))
    *good, (payload, content, context) = reader.records(value)
    assert len(good) == before
    assert content == "unprocessable:MemoryError"
    assert payload == (b"" if before else value)
    # Decoded again, the message is judged anew, and what is left of one is nothing.
    monkeypatch.setattr(messages, "events_of", events_of)
    assert reader.content(payload, json.loads(context)) == MALFORMED_RECORD
