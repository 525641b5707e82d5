"""Changes as messages: keys, and values in Debezium's envelope or as plain rows, as JSON or encoded otherwise. Pure."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import polars as pl

from dedup_platform.rules.changes import DELETE, INSERT, POSTIMAGE, PREIMAGE
from dedup_platform.sinks.formats import plain
from dedup_platform.sinks.shapes import Envelope
from dedup_platform.sinks.sink import Target

_TEXT, _NAMES = pl.String(), pl.List(pl.String)


Message = tuple[str, str | bytes | None]
"""Key and value of one; without a value it says that its key is gone. A tuple, since a million of them are made."""


class Encoding(Protocol):
    """How the values of messages are written."""

    @property
    def target(self) -> Target:
        """What the messages are of."""

    def row(self, changes: pl.DataFrame) -> pl.Expr | pl.Series:
        """Each row by itself."""

    def values(self, rows: pl.DataFrame, begins: bool) -> pl.Expr | pl.Series:
        """What is told of changes: `_before` and `_after` are such rows, or null; null if nothing is."""


class Json:
    """Values as JSON."""

    def __init__(self, target: Target, envelope: Envelope) -> None:
        self.target, self._envelope = target, envelope

    def row(self, changes: pl.DataFrame) -> pl.Expr:
        """Each row by itself."""
        return pl.struct(plain(changes, column.name) for column in self.target.columns).struct.json_encode()

    def values(self, rows: pl.DataFrame, begins: bool) -> pl.Expr:
        """What is told of each change; without an envelope null of what is gone."""
        return _debezium(rows, self.target, begins) if self._envelope == "debezium" else _plain()


def messages(changes: pl.DataFrame, encoding: Encoding, begins: bool) -> list[Message]:
    """The messages of some changes, in their order; an update is one. What is gone is told last by a tombstone."""
    rows = _one_an_update(changes, encoding)
    values = encoding.values(rows, begins).alias("value")
    found = rows.select(_key(encoding.target), values, is_gone=pl.col("_change_type") == DELETE)
    if found["is_gone"].any() or found["value"].has_nulls():
        return list(_with_tombstones(found))
    return list(zip(found["key"].to_list(), found["value"].to_list(), strict=True))


def portions(changes: pl.DataFrame, rows: int) -> Iterator[pl.DataFrame]:
    """Changes in their order, about so many at once, images of an update together."""
    first = 0
    while first < len(changes):
        last = first + rows
        last += last < len(changes) and changes["_change_type"][last - 1] == PREIMAGE
        yield changes[first:last]
        first = last


def _with_tombstones(found: pl.DataFrame) -> Iterator[Message]:
    for key, value, is_gone in found.iter_rows():
        if value is not None:
            yield key, value
        if is_gone:
            yield key, None


def tombstones(keys: Sequence[str]) -> Iterator[Message]:
    """Messages that say that these keys are gone."""
    return ((key, None) for key in keys)


def _one_an_update(changes: pl.DataFrame, encoding: Encoding) -> pl.DataFrame:
    """A row for each change, with what was before it and what is after it encoded; of an update the later image."""
    kind = pl.col("_change_type")
    images = changes.with_columns(encoding.row(changes).alias("_row"))
    if (changes["_change_type"] == INSERT).all():  # as when a sink begins
        return images.with_columns(_before=pl.lit(None, images["_row"].dtype), _after="_row")
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
    milliseconds, version = pl.col("_commit_timestamp").dt.epoch("ms"), pl.col("_commit_version")
    changed = told(rows, target, "changed_columns")
    op = pl.format('{{"op":"{}","before":', pl.col("_change_type").replace_strict(kinds))
    source = pl.format(
        ',"source":{{"connector":"dedup_platform","name":"{}","table":"{}","snapshot":"{}","ts_ms":{},"version":{},'
        '"ordinal":',
        pl.lit(target.stream),
        pl.lit(target.table),
        pl.lit(str(begins).lower()),
        milliseconds,
        version,
    )
    reason = pl.format(
        ',"snapshot_id":{},"reason":{},"merged_into":{},"split_from":{},"changed_columns":{}}},"ts_ms":{},'
        '"transaction":{{"id":"{}","total_order":',
        pl.col("_commit_snapshot_id"),
        *(_quoted(told(rows, target, name)) for name in ("reason", "merged_into", "split_from")),
        pl.format("[{}]", changed.list.eval(_quoted(pl.element())).list.join(",")).fill_null("null"),
        milliseconds,
        version,
    )
    op, source, reason = (_once(rows, part) for part in (op, source, reason))
    before, after = (pl.col(name).fill_null("null") for name in ("_before", "_after"))
    ordinal = pl.col("_change_ordinal").cast(pl.String)
    return pl.concat_str(op, before, pl.lit(',"after":'), after, source, ordinal, reason, ordinal, pl.lit("}}"))


def _once(rows: pl.DataFrame, text: pl.Expr) -> pl.Expr:
    """A text that is the same in all rows, made once: of a table that begins it mostly is, and takes half the time."""
    names = text.meta.root_names()
    is_same = all(rows.select(pl.col(name).eq_missing(pl.col(name).first()).all() for name in names).row(0))
    return pl.lit(rows[:1].select(text).item()) if len(rows) and is_same else text


def told(rows: pl.DataFrame, target: Target, name: str) -> pl.Expr:
    """What a feed tells besides the row; where the table has a column of that name, ours has an underscore."""
    ours = f"_{name}" if name in {column.name for column in target.columns} else name
    return pl.col(ours) if ours in rows.columns else pl.lit(None, _NAMES if name == "changed_columns" else _TEXT)


def _quoted(text: pl.Expr) -> pl.Expr:
    """A text without anything that must be escaped, as JSON."""
    return pl.format('"{}"', text).fill_null("null")


def _plain() -> pl.Expr:
    """The row with its version; None for what is gone."""
    version = pl.format(',"_commit_version":{}}}', pl.col("_commit_version"))
    return pl.col("_after").str.strip_suffix("}") + version
