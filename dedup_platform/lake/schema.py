"""What a stream file and the existing tables must agree on, and which columns the tables still lack."""

from collections.abc import Iterable, Iterator

from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform
from pyiceberg.types import ListType, NestedField, StructType

from dedup_platform import schemas, tables
from dedup_platform.comments import column_comments
from dedup_platform.errors import IncompatibleChangeError
from dedup_platform.lake.snapshots import bucket_count, cell_of, head
from dedup_platform.stream import Stream


def missing_columns(stream: Stream, name: str, table: Table) -> list[tuple[tuple[str, ...], tables.Column]]:
    """The columns to add, each with the names that lead to it: more than one of a field of a struct.

    IncompatibleChangeError if one would have to go or to change its type.
    """
    return list(_missing(stream, f"{stream.name}.{name}", (), tables.columns(stream, name), table.schema().fields))


def _missing(
    stream: Stream, place: str, path: tuple[str, ...], wanted: tuple[tables.Column, ...], there: Iterable[NestedField]
) -> Iterator[tuple[tuple[str, ...], tables.Column]]:
    fields = {field.name: field for field in there}
    if gone := fields.keys() - {column.name for column in wanted}:
        raise IncompatibleChangeError(
            f"{stream.origin}: {place} has the columns {sorted(gone)}, which the stream file no longer "
            "names. Columns cannot be taken away: name them again, or give the stream another name."
        )
    for column, field in zip(wanted, schemas.iceberg_schema(wanted).fields, strict=True):
        existing = fields.get(column.name)
        if existing is None:
            yield (*path, column.name), column
        elif isinstance(existing.field_type, StructType) and not isinstance(column.type, str):
            inner = existing.field_type.fields
            yield from _missing(stream, f"{place}.{column.name}", (*path, column.name), column.type, inner)
        elif _type_of(existing) != _type_of(field):
            raise IncompatibleChangeError(
                f"{stream.origin}: {place}.{column.name} is {existing.field_type} in the table and "
                f"{field.field_type} in the stream file. A type cannot change: use another name for the new one."
            )


def missing_comments(stream: Stream, name: str, table: Table) -> dict[str, str]:
    """The comments of columns, by their paths, that a table lacks. Whatever somebody else says of a column stays."""
    schema = table.schema()
    comments = column_comments(stream, name)
    return {
        path: text for path, text in comments.items() if path in schema.column_names and not schema.find_field(path).doc
    }


def shows_every_column(table: Table) -> bool:
    """Whether readers of the newest snapshot see all columns; comments that came since matter to none."""
    schema = table.schemas().get(head(table).schema_id or 0)
    return schema is not None and schema.highest_field_id == table.schema().highest_field_id


def _type_of(field: NestedField) -> object:
    # Each list's elements have an id of their own.
    kind = field.field_type
    return (ListType, kind.element_type) if isinstance(kind, ListType) else kind


def check_told(stream: Stream, feed: str, table: Table) -> None:
    """Raise IncompatibleChangeError if a column of the stream has the name of one that its feed has had for itself.

    What the feed said in it of earlier changes would be taken for the column's values.
    """
    there = {field.name for field in table.schema().fields}
    taken = (name for name, ours in tables.told_names(stream, feed).items() if ours not in there and name in there)
    if name := next(taken, None):
        raise IncompatibleChangeError(
            f"{stream.origin}: {stream.name}.{feed} has told of changes in a column {name!r} since it began, so no "
            "attribute or aggregate that is new can have this name: choose another one."
        )


def field_numbers(table: Table | None) -> dict[str, int] | None:
    """Column -> the id of its field, which it keeps for ever; None of a table that is not there."""
    return {field.name: field.field_id for field in table.schema().fields} if table else None


def check_partitioning(stream: Stream, table: Table) -> None:
    """Raise IncompatibleChangeError if the stream file asks for other partitions than the table has."""
    by_time = table.spec().fields[0]
    granularity = "day" if isinstance(by_time.transform, DayTransform) else "hour"
    if granularity != stream.partitions.granularity:
        raise IncompatibleChangeError(
            f"{stream.origin}: partitions.granularity is {stream.partitions.granularity}, but the tables of "
            f"{stream.name} are partitioned by {granularity}. It cannot change: give the stream another name."
        )
    if stream.buckets and stream.buckets != bucket_count(table):
        raise IncompatibleChangeError(
            f"{stream.origin}: buckets is {stream.buckets}, but the tables of {stream.name} have "
            f"{bucket_count(table)}. `dedup-platform buckets {stream.name}` changes them; leave `buckets` out to keep "
            "what they have."
        )


def check_buckets(stream: Stream, found: Iterable[Table]) -> None:
    """Raise IncompatibleChangeError if a change of the number of buckets was begun and not finished."""
    numbers = sorted({bucket_count(table) for table in found})
    if len(numbers) > 1:
        raise IncompatibleChangeError(
            f"{stream.name}: some of its tables have {numbers[0]} buckets and others {numbers[1]}. A change of the "
            f"number was not finished: `dedup-platform buckets {stream.name} N`, the new one of the two, finishes it."
        )


def check_numbering(stream: Stream, raw: Table) -> None:
    """Raise IncompatibleChangeError if events lie in other buckets than the table says: somebody took it back.

    Whoever takes main back to before a change of the number of buckets leaves the table's new number as it is.
    """
    if len(raw.metadata.partition_specs) > 1 and any(_in_other_buckets(raw)):
        number = bucket_count(raw)
        raise IncompatibleChangeError(
            f"{stream.name}: `raw_events` has {number} buckets, but some of its events lie in those of another number: "
            "it was taken back to before the number was changed. "
            f"`dedup-platform buckets {stream.name} {number * 2}` writes all of it anew; then it can be changed back."
        )


def _in_other_buckets(table: Table) -> Iterator[bool]:
    now = table.spec().spec_id
    for manifest in head(table).manifests(table.io):
        # Files of rejected records lie in no bucket, and stay as they are when the number changes.
        if manifest.partition_spec_id != now and manifest.partitions and manifest.partitions[0].lower_bound:
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            yield any(cell_of(entry.data_file) for entry in entries)
