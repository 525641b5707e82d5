"""The tables of a sink in Postgres, and the statements that keep them right."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from psycopg2 import sql
from psycopg2.extensions import cursor as Cursor

from dedup_platform.sinks.sink import Target
from dedup_platform.stream import decimal_of

_TYPES = {
    "string": "text",
    "integer": "integer",
    "long": "bigint",
    "double": "double precision",
    "boolean": "boolean",
    "timestamp": "timestamp with time zone",
    "date": "date",
}
_OURS = {"_commit_version": "bigint", "retired_into": "text"}

TAKE_OVER = sql.SQL("""
    INSERT INTO {positions} AS p (target, stream, sink, follows, epoch) VALUES (%s, %s, %s, %s, 1)
    ON CONFLICT (target) DO UPDATE SET epoch = p.epoch + 1, sink = excluded.sink
    RETURNING stream, follows, epoch, feed, version, ordinal, snapshot_id
""")
MOVE = sql.SQL("""
    UPDATE {positions} SET feed = %s, version = %s, ordinal = %s, snapshot_id = %s, moved_at = now()
    WHERE target = %s AND epoch = %s AND feed IS NOT DISTINCT FROM %s AND version IS NOT DISTINCT FROM %s
        AND ordinal IS NOT DISTINCT FROM %s AND snapshot_id IS NOT DISTINCT FROM %s
""")
REFUSED = sql.SQL("SELECT key, version, ordinal, reason FROM {refused} WHERE target = %s")
REFUSE = sql.SQL("""
    INSERT INTO {refused} (target, key, version, ordinal, reason) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (target, key) DO UPDATE SET version = excluded.version, ordinal = excluded.ordinal,
        reason = excluded.reason, refused_at = now()
""")
HEAL = sql.SQL("DELETE FROM {refused} WHERE target = %s AND key = ANY (%s)")


@dataclass(frozen=True)
class Names:
    """The tables of a sink: its rows, and beside them what the platform keeps."""

    table: str
    rows: sql.Identifier
    retired: sql.Identifier
    """Keys that were in the table once, with the version that took them away, and for sessions what they became."""
    positions: sql.Identifier
    refused: sql.Identifier

    @classmethod
    def of(cls, table: str) -> "Names":
        """Those of `schema.table`, or of `table` in the schema that Postgres takes."""
        *schema, name = table.split(".")
        return cls(
            table,
            sql.Identifier(*schema, name),
            sql.Identifier(*schema, f"{name}_retired"),
            sql.Identifier(*schema, "dedup_platform_sinks"),
            sql.Identifier(*schema, "dedup_platform_refused"),
        )

    @staticmethod
    def said(name: sql.Identifier) -> str:
        """A name for people."""
        return ".".join(name.strings)


def prepare(cursor: Cursor, names: Names, target: Target) -> None:
    """Create what is missing, and add the columns that a table lacks; those of others are left alone."""
    # Two that create the same at once disturb each other, `IF NOT EXISTS` or not.
    cursor.execute("SELECT pg_advisory_xact_lock(hashtext('dedup_platform'))")
    if "." in names.table:
        _create_schema(cursor, names.table.partition(".")[0])
    types = {column.name: _type(str(column.type)) for column in target.columns}
    version = sql.SQL("{} bigint NOT NULL").format(sql.Identifier("_commit_version"))
    key = sql.SQL("PRIMARY KEY ({})").format(listed(target.key))
    parts = [_defined(name, type_) for name, type_ in types.items()]
    _create(cursor, names.rows, [*parts, version, key])
    for part in (*parts, sql.SQL("{} bigint NOT NULL DEFAULT 0").format(sql.Identifier("_commit_version"))):
        cursor.execute(sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {}").format(names.rows, part))
    retired = [_defined(name, types[name]) for name in target.key]
    others = sql.SQL("retired_into text, retired_at timestamp with time zone NOT NULL DEFAULT now()")
    _create(cursor, names.retired, [*retired, others, version, key])
    _create(
        cursor,
        names.positions,
        [
            sql.SQL(
                "target text PRIMARY KEY, stream text NOT NULL, sink text NOT NULL, follows text NOT NULL, "
                "epoch bigint NOT NULL, feed text, version bigint, ordinal bigint, snapshot_id bigint, "
                "moved_at timestamp with time zone"
            )
        ],
    )
    _create(
        cursor,
        names.refused,
        [
            sql.SQL(
                "target text, key text, version bigint NOT NULL, ordinal bigint NOT NULL, reason text NOT NULL, "
                "refused_at timestamp with time zone NOT NULL DEFAULT now(), PRIMARY KEY (target, key)"
            )
        ],
    )


def temporary(name: str, target: Target, columns: Sequence[str]) -> sql.Composed:
    """Create a table of these columns that is gone at the end of the transaction."""
    types = {column.name: _type(str(column.type)) for column in target.columns} | _OURS
    parts = sql.SQL(", ").join(_defined(column, types[column]) for column in columns)
    return sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP").format(sql.Identifier(name), parts)


def upsert(names: Names, target: Target, columns: Sequence[str]) -> Iterator[sql.Composed]:
    """Bring the rows of `incoming` into the table, unless it knows newer ones, or that they are gone."""
    version = sql.Identifier("_commit_version")
    updated = [sql.Identifier(name) for name in columns if name not in target.key]
    setting = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(name) for name in updated)
    yield sql.SQL(
        "INSERT INTO {rows} AS t ({columns}) SELECT {columns} FROM incoming i WHERE NOT EXISTS "
        "(SELECT 1 FROM {retired} r WHERE {same} AND r.{version} >= i.{version}) "
        "ON CONFLICT ({key}) DO UPDATE SET {setting} WHERE t.{version} < excluded.{version}"
    ).format(
        rows=names.rows,
        columns=listed(columns),
        retired=names.retired,
        same=_same(target.key, "r", "i"),
        key=listed(target.key),
        setting=setting,
        version=version,
    )
    yield sql.SQL("DELETE FROM {retired} r USING incoming i WHERE {same} AND r.{version} < i.{version}").format(
        retired=names.retired, same=_same(target.key, "r", "i"), version=version
    )


def retire(names: Names, target: Target) -> Iterator[sql.Composed]:
    """Take the rows of `gone` out of the table, unless it knows newer ones, and remember that they are gone."""
    version = sql.Identifier("_commit_version")
    yield sql.SQL("DELETE FROM {rows} t USING gone g WHERE {same} AND t.{version} < g.{version}").format(
        rows=names.rows, same=_same(target.key, "t", "g"), version=version
    )
    columns = listed([*target.key, "retired_into", "_commit_version"])
    yield sql.SQL(
        "INSERT INTO {retired} AS r ({columns}) SELECT {columns} FROM gone ON CONFLICT ({key}) DO UPDATE SET "
        "retired_into = excluded.retired_into, retired_at = now(), {version} = excluded.{version} "
        "WHERE r.{version} < excluded.{version}"
    ).format(retired=names.retired, columns=columns, key=listed(target.key), version=version)


def listed(names: Sequence[str]) -> sql.Composed:
    """Names of columns with commas between them."""
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _create_schema(cursor: Cursor, name: str) -> None:
    # Not `IF NOT EXISTS`: who may not create any fails with that even if it is there.
    cursor.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (name,))
    if cursor.fetchone() is None:
        cursor.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))


def _create(cursor: Cursor, table: sql.Identifier, parts: Sequence[sql.Composable]) -> None:
    cursor.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(table, sql.SQL(", ").join(parts)))


def _defined(name: str, type_: str) -> sql.Composed:
    return sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type_))


def _same(key: Sequence[str], one: str, other: str) -> sql.Composed:
    pairs = (
        sql.SQL("{}.{} = {}.{}").format(
            sql.Identifier(one), sql.Identifier(name), sql.Identifier(other), sql.Identifier(name)
        )
        for name in key
    )
    return sql.SQL(" AND ").join(pairs)


def _type(name: str) -> str:
    decimal = decimal_of(name)
    return f"numeric({decimal[0]},{decimal[1]})" if decimal else _TYPES[name]
