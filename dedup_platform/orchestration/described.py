"""What assets say of themselves before anything runs: whom to ask, where the table is, how to read it, what it is from.

Where a stream's records come from is an asset, too: nothing materializes it, and `raw_events` is made of it.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import dagster as dg

from dedup_platform import tables
from dedup_platform.escapes import one_line
from dedup_platform.orchestration import runs
from dedup_platform.orchestration.metadata import asset_key, report_command
from dedup_platform.settings import CATALOG, Settings
from dedup_platform.stream import FilesSource, KafkaSource, Stream

_LONGEST_TAG: Final = 63
_AT_WAREHOUSE: Final = ("sqlite", "postgresql")
"""The catalogs that lay a table out below the warehouse; others decide for themselves."""


def described(
    stream: Stream, settings: Settings, assets: Iterable[dg.AssetsDefinition | dg.AssetSpec]
) -> Sequence[dg.AssetsDefinition | dg.AssetSpec]:
    """The stream's assets, each of which says what all of a stream's assets say."""

    def describe(spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.merge_attributes(
            owners=[stream.owner] if stream.owner else [],
            tags={runs.STREAM: stream.name[:_LONGEST_TAG]},
            metadata={
                **report_command(stream),
                "stream_file": dg.MetadataValue.path(stream.origin),
                **_address(stream, settings, spec.key.path[-1]),
            },
        )

    return dg.map_asset_specs(describe, assets)


def source_asset(stream: Stream) -> dg.AssetSpec:
    """The files or the topic that the stream reads."""
    where, what = _place(stream.source)
    return dg.AssetSpec(
        asset_key(stream, tables.SOURCE),
        description=f"{what} that {tables.RAW_EVENTS} is made of. Nothing writes them here.",
        metadata={"dagster/uri": one_line(where)},
        group_name=stream.name,
        kinds={_kind(stream.source), stream.source.format},
    )


def _place(source: FilesSource | KafkaSource) -> tuple[str, str]:
    if isinstance(source, FilesSource):
        return (source.place if source.s3 else f"file://{source.place}"), "The files"
    return f"kafka://{source.brokers}/{source.topic}", "The messages"


def _kind(source: FilesSource | KafkaSource) -> str:
    if isinstance(source, FilesSource):
        return "s3" if source.s3 else "file"
    return "kafka"


def _address(stream: Stream, settings: Settings, table: str) -> dict[str, str]:
    """What a reader opens; nothing of an asset that is no table."""
    named = f"{stream.name}.{table}"
    if table == tables.REJECTED_EVENTS:
        return {"read": f"dedup-platform rejected list {stream.name}"}
    if table not in tables.EXPORTED:
        return {}
    told = {"dagster/table_name": f"{CATALOG}.{named}", "read": f'dedup-platform sql "SELECT * FROM {named} LIMIT 10"'}
    if settings.catalog_kind in _AT_WAREHOUSE:
        told["dagster/uri"] = f"{settings.warehouse}/{stream.name}/{table}"
    return told
