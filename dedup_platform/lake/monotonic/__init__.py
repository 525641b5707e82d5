"""Catalogs in which the times of a table never go back, whatever the clocks of its writers say.

A snapshot bears the time of its writer, and a table's metadata tells when each snapshot became main's and when each
version of itself was written. Where one of these is more than a minute older than the one before, Iceberg's Java
library refuses even to read the table; PyIceberg writes what its clock says. So a commit here is made at the time that
the clock says, or at that of the newest entry if that is later. What was written out of order before, the next commit
puts in order.
"""

from pyiceberg.catalog import Catalog

from dedup_platform.uris import CatalogKind


def monotonic_catalog(kind: CatalogKind) -> type[Catalog]:
    """The class of a catalog of this kind."""
    # Only the one that is asked for is imported: each takes the libraries of its protocol.
    match kind:
        case "sqlite" | "postgresql":
            from dedup_platform.lake.monotonic.sql import MonotonicSqlCatalog

            return MonotonicSqlCatalog
        case "rest":
            from dedup_platform.lake.monotonic.rest import MonotonicRestCatalog

            return MonotonicRestCatalog
        case "glue":
            from dedup_platform.lake.monotonic.glue import MonotonicGlueCatalog

            return MonotonicGlueCatalog
