"""Tags that keep a snapshot of a table while somebody still reads it."""

from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.publishing import retry_commit
from dedup_platform.stream import Stream

__all__ = ["is_kept", "pin", "pins", "unpin", "unpin_dropped"]

_PREFIX = "sink_"


@retry_commit
def pin(catalog: Catalog, stream: Stream, table: str, snapshot_id: int, sink: str) -> None:
    """Keep a snapshot for a sink, in the place of any other that was kept for it."""
    loaded = catalog.load_table(stream.name, table)
    kept = pins(catalog, stream, table).get(sink)
    if kept == snapshot_id:
        return
    with loaded.manage_snapshots() as manage:
        if kept is not None:
            manage.remove_tag(_PREFIX + sink)
        manage.create_tag(snapshot_id, _PREFIX + sink)


@retry_commit
def unpin(catalog: Catalog, stream: Stream, table: str, sink: str) -> None:
    """Keep no snapshot for a sink any more."""
    if sink in pins(catalog, stream, table):
        catalog.load_table(stream.name, table).manage_snapshots().remove_tag(_PREFIX + sink).commit()


def unpin_dropped(catalog: Catalog, stream: Stream, table: str) -> None:
    """Keep no snapshot for sinks that the stream file does not name any more."""
    for sink in pins(catalog, stream, table).keys() - stream.publish.sinks.keys():
        unpin(catalog, stream, table, sink)


def pins(catalog: Catalog, stream: Stream, table: str) -> dict[str, int]:
    """Sink -> the snapshot of the table that is kept for it."""
    loaded = catalog.load(stream.name, table)
    refs = loaded.refs() if loaded else {}
    return {name.removeprefix(_PREFIX): ref.snapshot_id for name, ref in refs.items() if name.startswith(_PREFIX)}


def is_kept(catalog: Catalog, stream: Stream, table: str, snapshot_id: int) -> bool:
    """Whether a snapshot of the table is still there."""
    return catalog.load_table(stream.name, table).snapshot_by_id(snapshot_id) is not None
