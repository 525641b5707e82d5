"""A commit as an event of OpenLineage: which datasets it read, which one it wrote, how much, and with which columns.

Pure: it looks at what is loaded already, and sends nothing. Loaded only where commits are told, as its library is.
"""

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.generated.base import DatasetFacet
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
from openlineage.client.generated.job_type_job import JobTypeJobFacet
from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet
from openlineage.client.generated.schema_dataset import SchemaDatasetFacet, SchemaDatasetFacetFields
from openlineage.client.generated.symlinks_dataset import Identifier, SymlinksDatasetFacet
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import NestedField, StructType

from dedup_platform import tables
from dedup_platform.lake.snapshots import SUMMARY, committed_at, rewrites_only, summary
from dedup_platform.settings import Settings
from dedup_platform.stream import KafkaSource, Stream

PRODUCER = f"urn:dedup-platform:{version('dedup_platform')}"
JOBS = {
    tables.RAW_EVENTS: "ingest",
    tables.DUPLICATE_EVENTS: "duplicates",
    tables.DEDUPLICATED_EVENTS: "deduplicate",
    tables.SESSION_FRAGMENTS: "fragments",
    tables.SESSIONS: "sessions",
    tables.EVENT_CHANGES: "publish_events",
    tables.SESSION_CHANGES: "publish_sessions",
    tables.SESSION_ALIASES: "publish_aliases",
}
"""Each table whose commits are told, and the job that writes it; its name has the stream's before it."""
REPLAY = "replay"
"""What writes `raw_events` anew: records that were decoded again, or dropped."""
_READ = {
    **tables.BUILT_FROM,
    **tables.FOLLOWED,
    tables.SESSION_ALIASES: tables.SESSION_CHANGES,
}

Name = tuple[str, str]
"""Of a dataset: its namespace, and its name in there."""


def is_told(snapshot: Snapshot) -> bool:
    """Whether a commit is one of ours that changed rows, and did not put the same ones into other files."""
    found = snapshot.summary.additional_properties if snapshot.summary else {}
    is_changed = any(_told(snapshot, f"{what}-data-files") for what in ("added", "deleted"))
    return is_changed and not rewrites_only(snapshot) and any(name.startswith(SUMMARY) for name in found)


def event(settings: Settings, stream: Stream, name: str, snapshot: Snapshot, loaded: Mapping[str, Table]) -> RunEvent:
    """What is told of a commit to a table of a stream, all of whose tables are loaded."""
    job_type = JobTypeJobFacet("BATCH", "DEDUP_PLATFORM", "COMMIT", producer=PRODUCER)
    job = _job(name, snapshot)
    is_ingest = job == JOBS[tables.RAW_EVENTS]
    return RunEvent(
        eventType=RunState.COMPLETE,
        eventTime=committed_at(snapshot).isoformat(),
        producer=PRODUCER,
        run=Run(run_id(loaded[name], snapshot)),
        job=Job(settings.lineage_namespace or "", f"{stream.name}.{job}", {"jobType": job_type}),
        inputs=[_source(stream)] if is_ingest else list(_inputs(settings, stream, name, snapshot, loaded)),
        outputs=[_output(settings, stream, name, snapshot, loaded[name])],
    )


def run_id(table: Table, snapshot: Snapshot) -> str:
    """The id of a commit's run: the same whoever tells of it, and whichever version."""
    return str(uuid5(NAMESPACE_URL, f"urn:dedup-platform/{table.metadata.table_uuid}/{snapshot.snapshot_id}"))


def dataset_of(location: str) -> Name:
    """A file or folder, here or in a store, as OpenLineage names it."""
    scheme, is_address, rest = location.partition("://")
    if not is_address:
        return "file", location
    if scheme == "file":
        return "file", f"/{rest.lstrip('/')}"
    host, _, path = rest.partition("/")
    return f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{host}", path.strip("/") or "/"


def _job(name: str, snapshot: Snapshot) -> str:
    # An ingest only adds files.
    is_replay = name == tables.RAW_EVENTS and _told(snapshot, "deleted-data-files") > 0
    return REPLAY if is_replay else JOBS[name]


def _source(stream: Stream) -> InputDataset:
    """All that the stream reads is one dataset: a topic, or the folder that its files are in."""
    source = stream.source
    if isinstance(source, KafkaSource):
        return InputDataset(f"kafka://{source.brokers.partition(',')[0]}", source.topic)
    where = f"s3://{source.s3.bucket}/{source.s3.root}" if source.s3 else str(source.root)
    return InputDataset(*dataset_of(where))


def _inputs(
    settings: Settings, stream: Stream, name: str, snapshot: Snapshot, loaded: Mapping[str, Table]
) -> Iterator[InputDataset]:
    """The table that a commit was built from, at the snapshot of it that was read."""
    read = _READ.get(name, name)
    if read in loaded:
        # Of a build `table@snapshot`; a feed says how far it has followed its table.
        at = (summary(snapshot, "built-from") or "").partition("@")[2]
        if name in tables.FOLLOWED:
            at = summary(snapshot, "up-to") or ""
        facets: dict[str, DatasetFacet] = {"symlinks": _symlinks(settings, stream, read)}
        if at:
            facets["version"] = DatasetVersionDatasetFacet(at, producer=PRODUCER)
        # Tables are named by where they lie, as Spark's own integration names those of Iceberg.
        yield InputDataset(*dataset_of(loaded[read].location()), facets=facets)


def _output(settings: Settings, stream: Stream, name: str, snapshot: Snapshot, table: Table) -> OutputDataset:
    told = (_told(snapshot, each) for each in ("added-records", "added-files-size", "added-data-files"))
    schema = table.schema() if snapshot.schema_id is None else table.schemas()[snapshot.schema_id]
    facets: dict[str, DatasetFacet] = {
        "schema": SchemaDatasetFacet(list(_fields(schema.fields)), producer=PRODUCER),
        "version": DatasetVersionDatasetFacet(str(snapshot.snapshot_id), producer=PRODUCER),
        "symlinks": _symlinks(settings, stream, name),
    }
    statistics = OutputStatisticsOutputDatasetFacet(*told, producer=PRODUCER)
    where = dataset_of(table.location())
    return OutputDataset(*where, facets=facets, outputFacets={"outputStatistics": statistics})


def _told(snapshot: Snapshot, what: str) -> int:
    """A number of Iceberg's own summary of a commit."""
    return int(snapshot.summary.additional_properties.get(what, 0)) if snapshot.summary else 0


def _fields(fields: tuple[NestedField, ...]) -> Iterator[SchemaDatasetFacetFields]:
    for number, field in enumerate(fields, 1):
        kind = field.field_type
        inner = list(_fields(kind.fields)) if isinstance(kind, StructType) else []
        shown = "struct" if inner else str(kind)
        yield SchemaDatasetFacetFields(field.name, shown, field.doc, number, inner)


def _symlinks(settings: Settings, stream: Stream, name: str) -> SymlinksDatasetFacet:
    """What the table is called in the catalog. The address of a database, which may hold a password, is not told."""
    named = f"{stream.name}.{name}"
    warehouse = settings.warehouse if settings.is_on_s3 else f"file://{settings.warehouse}"
    where = warehouse
    if settings.catalog_kind == "rest":
        uri = urlsplit(settings.catalog_uri)
        where = uri._replace(netloc=uri.netloc.rpartition("@")[2], query="", fragment="").geturl()
    elif settings.catalog_kind == "glue" and all(settings.glue):
        where, named = "arn:aws:glue:{}:{}".format(*settings.glue), f"table/{stream.name}/{name}"
    return SymlinksDatasetFacet([Identifier(where, named, "TABLE")], producer=PRODUCER)
