"""The least that any table of events costs: the same columns copied from `raw_events` through Iceberg's writer."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError

from benchmarks.contender import Output
from benchmarks.contenders.ours import STREAM, Ours
from dedup_platform import tables
from dedup_platform.catalog import Catalog
from dedup_platform.settings import CATALOG

_PLACE = ("floor", "events")


class Floor(Ours):
    """Reads the `raw_events` of the platform's home; its own table has the properties of `deduplicated_events`."""

    def clear(self) -> None:
        catalog = Catalog(self.settings)
        like = catalog.load_table(STREAM, tables.DEDUPLICATED_EVENTS)
        with suppress(NamespaceAlreadyExistsError):
            catalog.iceberg.create_namespace(_PLACE[0])
        with suppress(NoSuchTableError, FileNotFoundError):
            catalog.iceberg.drop_table(_PLACE)
            shutil.rmtree(Path(self.settings.warehouse, *_PLACE))
        catalog.iceberg.create_table(_PLACE, like.schema(), partition_spec=like.spec(), properties=like.properties)

    def rebuild(self) -> dict[str, Any]:
        columns = tables.column_names(self.stream, tables.DEDUPLICATED_EVENTS)
        raw = self._spark().read.table(f"{CATALOG}.{STREAM}.{tables.RAW_EVENTS}")
        raw.select(*columns).writeTo(f"{CATALOG}.{'.'.join(_PLACE)}").append()
        copied = Catalog(self.settings).load_table(*_PLACE).current_snapshot()
        assert copied is not None
        assert copied.summary is not None
        return {"events": int(copied.summary.additional_properties["total-records"]), "sessions": 0}

    def output(self) -> Output:
        files = Catalog(self.settings).load_table(*_PLACE).inspect.data_files()
        return Output([path.removeprefix("file:") for path in files["file_path"].to_pylist()], [])
