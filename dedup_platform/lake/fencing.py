"""Who may publish to a table no more: whoever has a smaller token than the largest that the table has seen.

A token bars all smaller ones in two commits. From the first one on nobody with a smaller token begins to publish; the
second takes away what such writers had staged until then, without which nothing is published. Neither changes rows or
moves main, so nobody else loses a race by it.
"""

from collections.abc import Iterator

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotRefUpdate, SetPropertiesUpdate
from tenacity import retry_if_exception_type

from dedup_platform.errors import OutdatedTokenError
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.snapshots import SUMMARY, ancestry, summary
from dedup_platform.lake.staged import STAGING, Staged
from dedup_platform.retries import retry_commits

__all__ = ["bar", "check_token"]

_PROPERTY = f"{SUMMARY}token"
_retry = retry_commits(retry=retry_if_exception_type(CommitFailedException))


def bar(catalog: Catalog, stream: str, table: str, token: int) -> None:
    """Have a table refuse what was or will be staged under smaller tokens; what has none is let pass.

    Raises OutdatedTokenError if the table has seen a larger one.
    """
    if catalog.load(stream, table) is not None:
        _record(catalog, stream, table, token)
        _drop_staged(catalog, stream, table, token)


def check_token(table: Table, staged: Staged) -> None:
    """Raise OutdatedTokenError if a table, as it was loaded for publishing, has seen a larger token."""
    if staged.token is not None and _largest(table) > staged.token:
        raise OutdatedTokenError(staged.stream, staged.table, _largest(table))


@_retry
def _record(catalog: Catalog, stream: str, name: str, token: int) -> None:
    table = catalog.load_table(stream, name)
    if _largest(table) > token:
        raise OutdatedTokenError(stream, name, _largest(table))
    if _largest(table) < token:
        update = SetPropertiesUpdate(updates={_PROPERTY: str(token)})
        catalog.iceberg.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (update,))


@_retry
def _drop_staged(catalog: Catalog, stream: str, name: str, token: int) -> None:
    table = catalog.load_table(stream, name)
    drops = tuple(RemoveSnapshotRefUpdate(ref_name=branch) for branch in _staged_below(table, token))
    if drops:
        catalog.iceberg.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), drops)


def _staged_below(table: Table, token: int) -> Iterator[str]:
    # A branch that nothing was written to yet is a commit of main's: whoever writes to it will find the token.
    published = {snapshot.snapshot_id for snapshot in ancestry(table)}
    for branch, ref in table.refs().items():
        is_staged = branch.startswith(STAGING) and ref.snapshot_id not in published
        snapshot = table.snapshot_by_id(ref.snapshot_id) if is_staged else None
        if snapshot and int(summary(snapshot, "token") or token) < token:
            yield branch


def _largest(table: Table) -> int:
    return int(table.properties.get(_PROPERTY, "0"))
