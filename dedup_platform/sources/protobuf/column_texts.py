"""The texts of encoded values, many at a time: what `Converters` and `text_of` make of each."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import polars as pl
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from dedup_platform.sources.binary_columns import EncodedBytes, Numbers, zigzags
from dedup_platform.sources.protobuf.encoded_fields import FieldRun
from dedup_platform.sources.text.blocks import as_texts
from dedup_platform.sources.text.typed_texts import base64_texts, float_texts

__all__ = ["texts_of_values"]

_NumbersToSeries = Callable[[Numbers], pl.Series]

_OF_NUMBERS: dict[int, _NumbersToSeries] = {
    FieldDescriptor.TYPE_INT32: lambda numbers: pl.Series(_low_32(numbers).view(np.int32)),
    FieldDescriptor.TYPE_INT64: lambda numbers: pl.Series(numbers.view(np.int64)),
    FieldDescriptor.TYPE_UINT32: lambda numbers: pl.Series(_low_32(numbers)),
    FieldDescriptor.TYPE_UINT64: pl.Series,
    FieldDescriptor.TYPE_SINT32: lambda numbers: pl.Series(zigzags(numbers & np.uint64(2**32 - 1))),
    FieldDescriptor.TYPE_SINT64: lambda numbers: pl.Series(zigzags(numbers)),
    FieldDescriptor.TYPE_BOOL: lambda numbers: pl.Series(numbers != 0),
}
_FLOATS: dict[int, type[np.floating]] = {
    FieldDescriptor.TYPE_FLOAT: np.float32,
    FieldDescriptor.TYPE_DOUBLE: np.float64,
}
_FIXED: dict[int, type[np.integer]] = {
    FieldDescriptor.TYPE_FIXED32: np.uint32,
    FieldDescriptor.TYPE_FIXED64: np.uint64,
    FieldDescriptor.TYPE_SFIXED32: np.int32,
    FieldDescriptor.TYPE_SFIXED64: np.int64,
}
_OF_SLICES = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def texts_of_values(data: EncodedBytes, field: FieldDescriptor, run: FieldRun) -> pl.Series:
    """The texts of a field's values; null where one is no UTF-8, or a number that its enum has no name for."""
    if field.type in _OF_SLICES:
        values = data.slices(run.places, run.sizes)
        return base64_texts(values) if field.type == FieldDescriptor.TYPE_BYTES else as_texts(values)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return _names(field.enum_type, run.numbers)
    if of_numbers := _OF_NUMBERS.get(field.type):
        return of_numbers(run.numbers).cast(pl.String)
    if kind := _FLOATS.get(field.type):
        return float_texts(data.fixed(run.places, kind).astype(kind, copy=False))
    return pl.Series(data.fixed(run.places, _FIXED[field.type])).cast(pl.String)


def _low_32(numbers: Numbers) -> npt.NDArray[np.uint32]:
    return numbers.astype(np.uint32)


def _names(enum: EnumDescriptor, numbers: Numbers) -> pl.Series:
    names = {value.number: value.name for value in reversed(enum.values)}
    values = pl.Series(_low_32(numbers).view(np.int32))
    return values.replace_strict(list(names), list(names.values()), default=None, return_dtype=pl.String)
