"""Tables beside those of cells: made with an empty first snapshot when they are first needed."""

from collections.abc import Mapping
from contextlib import suppress

from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table

from dedup_platform import schemas
from dedup_platform.comments import TABLE_COMMENTS
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.comments import COMMENT, add_missing_comments
from dedup_platform.lake.publishing import no_rows, retry_commit
from dedup_platform.lake.schema import missing_columns
from dedup_platform.lake.snapshots import head, live_files
from dedup_platform.lake.table_files import TableFiles
from dedup_platform.stream import Stream


class TableBeside:
    """One of a stream's tables whose rows lie in no cells."""

    def __init__(self, catalog: Catalog, stream: Stream, name: str) -> None:
        self.catalog = catalog
        self.stream = stream
        self.name = name

    def load(self) -> Table:
        """The table as it is now."""
        return self.catalog.load_table(self.stream.name, self.name)

    def files(self) -> TableFiles:
        """What it takes to read and write its files."""
        loaded = self.load()
        return TableFiles.of(loaded, self.catalog.file_properties(loaded))

    def live(self) -> list[DataFile]:
        """Its files as they are now."""
        loaded = self.load()
        return live_files(loaded, head(loaded))


def create_beside(
    catalog: Catalog, stream: Stream, name: str, spec: PartitionSpec, properties: Mapping[str, str] | None = None
) -> None:
    """Create a table if it is not there, with the properties that every table has and some of its own."""
    measured = {f"write.metadata.metrics.column.{column}": "full" for column in schemas.MEASURED[name]}
    with suppress(TableAlreadyExistsError):
        catalog.iceberg.create_table(
            (stream.name, name),
            schemas.table_schema(stream, name),
            partition_spec=spec,
            properties=schemas.PROPERTIES | measured | {COMMENT: TABLE_COMMENTS[name]} | dict(properties or {}),
        )
    _add_first_snapshot(catalog, stream, name)


@retry_commit
def _add_first_snapshot(catalog: Catalog, stream: Stream, name: str) -> None:
    if catalog.load(stream.name, name) is None:
        created = catalog.load_table(stream.name, name)
        created.append(no_rows(created))


@retry_commit
def add_missing_columns(catalog: Catalog, stream: Stream, name: str) -> None:
    """Give a table the columns that it lacks."""
    table = catalog.load_table(stream.name, name)
    if missing := missing_columns(stream, name, table):
        with table.update_schema() as update:
            for path, column in missing:
                update.add_column(path, schemas.iceberg_schema((column,)).fields[0].field_type)
    add_missing_comments(catalog, stream, name, table)
