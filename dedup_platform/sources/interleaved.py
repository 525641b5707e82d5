"""Records that were read together in several parts, in the order in which they came."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from dedup_platform.sources.contents import Batch, Contents, JoinedContents, NamedField
from dedup_platform.sources.records import Content
from dedup_platform.sources.repeated import Repeated, Values
from dedup_platform.sources.texts import Texts

__all__ = ["InterleavedContents", "interleaved"]

_Part = tuple[Contents, npt.NDArray[np.int64]]


class InterleavedContents(Contents):
    """Those of several parts, each with the places of its records; every place is of one part."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self._parts = parts
        self._joined = JoinedContents([contents for contents, _ in parts])
        self._places = np.concatenate([places for _, places in parts])
        self._order = np.argsort(self._places)
        """The record of `_joined` that is at each place."""

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, place: int) -> Content:
        return self._joined[int(self._order[place])]

    def texts(self, fields: Sequence[NamedField]) -> Sequence[Texts]:
        order = pl.Series(self._order)
        return [
            Texts(
                each.values[order],
                None if each.in_doubt is None else each.in_doubt[order],
                None if each.moments is None else each.moments[order],
            )
            for each in self._joined.texts(fields)
        ]

    @property
    def names(self) -> Sequence[str] | None:
        told = [each.names for each, _ in self._parts if sum(1 for _ in each.rejected) < len(each)]
        return told[0] if told and all(names == told[0] for names in told) else None

    @property
    def rejected(self) -> Iterable[int]:
        return (int(self._places[place]) for place in self._joined.rejected)

    @property
    def kind(self) -> object:
        return InterleavedContents

    def joined(self, others: Sequence[Contents]) -> Contents:
        each = [self, *(other for other in others if isinstance(other, InterleavedContents))]
        begins = accumulate(map(len, each), initial=0)
        alike: dict[int, list[_Part]] = {}
        for begin, contents in zip(begins, each, strict=False):
            for part, places in contents._parts:
                alike.setdefault(id(part.kind), []).append((part, places + begin))
        return InterleavedContents([_joined(parts) for parts in alike.values()])


def interleaved(parts: Sequence[tuple[pl.Series, Batch]]) -> Batch:
    """The records of several batches, at least one, in the order of the places that stand before each batch."""
    if len(parts) == 1:
        return parts[0][1]
    places = [each.to_numpy().astype(np.int64) for each, _ in parts]
    order = pl.Series(np.argsort(np.concatenate(places)))
    payloads = pl.concat([_binary(payloads) for _, (payloads, _, _) in parts])[order]
    contexts = pl.concat([_texts(contexts) for _, (_, _, contexts) in parts])[order]
    contents = [contents for _, (_, contents, _) in parts]
    return payloads, InterleavedContents(list(zip(contents, places, strict=True))), contexts


def _joined(parts: Sequence[_Part]) -> _Part:
    (first, _), *others = parts
    contents = first.joined([part for part, _ in others]) if others else first
    return contents, np.concatenate([places for _, places in parts])


def _binary(payloads: Sequence[Any] | pl.Series) -> pl.Series:
    return payloads if isinstance(payloads, pl.Series) else pl.Series(payloads, dtype=pl.Binary)


def _texts(contexts: Values[str] | pl.Series) -> pl.Series:
    match contexts:
        case pl.Series():
            return contexts
        case Repeated(text, count):
            return pl.Series([text], dtype=pl.String).new_from_index(0, count)
        case _:
            return pl.Series(contexts, dtype=pl.String)
