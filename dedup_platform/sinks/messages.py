"""Changes as messages: keys, and values in Debezium's envelope or as plain rows. Pure."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import polars as pl

from dedup_platform.rules.changes import DELETE, INSERT, POSTIMAGE, PREIMAGE
from dedup_platform.sinks.formats import plain
from dedup_platform.sinks.sink import Target

Envelope = Literal["debezium", "row"]

_TEXT, _NAMES = pl.String(), pl.List(pl.String)


class Message(NamedTuple):
    """One message; without a value it says that its key is gone."""

    key: str
    value: str | None


def messages(changes: pl.DataFrame, target: Target, envelope: Envelope, begins: bool) -> Iterator[Message]:
    """The messages of some changes, in their order; an update is one. What is gone is told last by a tombstone."""
    rows = _one_an_update(changes, target)
    value = _debezium(rows, target, begins) if envelope == "debezium" else _plain()
    told = rows.select(_key(target), value.alias("value"), is_gone=pl.col("_change_type") == DELETE)
    if told["is_gone"].any() or told["value"].has_nulls():
        return _with_tombstones(told)
    return map(Message._make, zip(told["key"].to_list(), told["value"].to_list(), strict=True))


def portions(changes: pl.DataFrame, rows: int) -> Iterator[pl.DataFrame]:
    """Changes in their order, about so many at once, images of an update together."""
    first = 0
    while first < len(changes):
        last = first + rows
        last += last < len(changes) and changes["_change_type"][last - 1] == PREIMAGE
        yield changes[first:last]
        first = last


def _with_tombstones(told: pl.DataFrame) -> Iterator[Message]:
    for key, text, is_gone in told.iter_rows():
        if text is not None:
            yield Message(key, text)
        if is_gone:
            yield Message(key, None)


def tombstones(keys: Sequence[str]) -> Iterator[Message]:
    """Messages that say that these keys are gone."""
    return (Message(key, None) for key in keys)


def _one_an_update(changes: pl.DataFrame, target: Target) -> pl.DataFrame:
    """A row for each change, with what was before it and what is after it as JSON; of an update the later image."""
    names = [column.name for column in target.columns]
    row = pl.struct(plain(changes, name) for name in names).struct.json_encode()
    kind = pl.col("_change_type")
    images = changes.with_columns(_row=row)
    before = pl.when(kind == POSTIMAGE).then(pl.col("_row").shift(1)).when(kind == DELETE).then(pl.col("_row"))
    after = pl.when(kind != DELETE).then(pl.col("_row"))
    # In one piece: what `shift` leaves in two, Polars 2.1 cannot format.
    return images.with_columns(_before=before, _after=after).filter(kind != PREIMAGE).rechunk()


def _key(target: Target) -> pl.Expr:
    """The id of a session as it is; the coordinates of an event's record as JSON."""
    if len(target.key) == 1:
        return pl.col(target.key[0]).alias("key")
    return pl.struct(*target.key).struct.json_encode().alias("key")


def _debezium(rows: pl.DataFrame, target: Target, begins: bool) -> pl.Expr:
    kinds = {INSERT: "r" if begins else "c", POSTIMAGE: "u", DELETE: "d"}
    milliseconds = pl.col("_commit_timestamp").dt.epoch("ms")
    version = pl.col("_commit_version")
    changed = _told(rows, target, "changed_columns", _NAMES)
    source = pl.format(
        '{{"connector":"dedup_platform","name":"{}","table":"{}","snapshot":"{}","ts_ms":{},"version":{},"ordinal":{},'
        '"snapshot_id":{},"reason":{},"merged_into":{},"split_from":{},"changed_columns":{}}}',
        pl.lit(target.stream),
        pl.lit(target.table),
        pl.lit(str(begins).lower()),
        milliseconds,
        version,
        pl.col("_change_ordinal"),
        pl.col("_commit_snapshot_id"),
        *(_quoted(_told(rows, target, name)) for name in ("reason", "merged_into", "split_from")),
        pl.format("[{}]", changed.list.eval(_quoted(pl.element())).list.join(",")).fill_null("null"),
    )
    return pl.format(
        '{{"op":"{}","before":{},"after":{},"source":{},"ts_ms":{},"transaction":{{"id":"{}","total_order":{}}}}}',
        pl.col("_change_type").replace_strict(kinds),
        pl.col("_before").fill_null("null"),
        pl.col("_after").fill_null("null"),
        source,
        milliseconds,
        version,
        pl.col("_change_ordinal"),
    )


def _told(rows: pl.DataFrame, target: Target, name: str, type_: pl.DataType = _TEXT) -> pl.Expr:
    """What a feed tells besides the row; where the table has a column of that name, ours has an underscore."""
    ours = f"_{name}" if name in {column.name for column in target.columns} else name
    return pl.col(ours) if ours in rows.columns else pl.lit(None, type_)


def _quoted(text: pl.Expr) -> pl.Expr:
    """A text without anything that must be escaped, as JSON."""
    return pl.format('"{}"', text).fill_null("null")


def _plain() -> pl.Expr:
    """The row with its version; None for what is gone."""
    version = pl.format(',"_commit_version":{}}}', pl.col("_commit_version"))
    return pl.col("_after").str.strip_suffix("}") + version
