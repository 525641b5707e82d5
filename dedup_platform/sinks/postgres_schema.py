"""The tables of a sink in Postgres, and the statements that keep them right."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from psycopg2 import sql
from psycopg2.extensions import cursor as Cursor

from dedup_platform.sinks.sink import Target, Totals
from dedup_platform.stream import decimal_of
from dedup_platform.tables import SESSIONS

_TYPES = {
    "string": "text",
    "integer": "integer",
    "long": "bigint",
    "double": "double precision",
    "boolean": "boolean",
    "timestamp": "timestamp with time zone",
    "date": "date",
}
VERSION = "_commit_version"
INTO, WHY, AT = "retired_into", "reason", "retired_at"
"""What is kept of a retirement: where it went, why, and when it was committed."""
INCOMING, GONE = "dedup_platform_incoming", "dedup_platform_gone"
"""Temporary tables, which come before all others of their names."""
TOTALS = tuple(each.name for each in fields(Totals))
_NOW = "timestamp with time zone NOT NULL DEFAULT now()"
_POSITIONS = {
    "target": "text",
    "stream": "text NOT NULL",
    "sink": "text NOT NULL",
    "follows": "text NOT NULL",
    "epoch": "bigint NOT NULL",
    "feed": "text",
    "version": "bigint",
    "ordinal": "bigint",
    "snapshot_id": "bigint",
    "moved_at": "timestamp with time zone",
    **dict.fromkeys(TOTALS, "bigint NOT NULL DEFAULT 0"),
}
_REFUSED_ROWS = {
    "target": "text",
    "key": "text",
    "version": "bigint NOT NULL",
    "ordinal": "bigint NOT NULL",
    "reason": "text NOT NULL",
    "refused_at": _NOW,
}

TAKE_OVER = sql.SQL("""
    INSERT INTO {positions} AS p (target, stream, sink, follows, epoch) VALUES (%s, %s, %s, %s, 1)
    ON CONFLICT (target) DO UPDATE SET epoch = p.epoch + 1, sink = excluded.sink
    RETURNING stream, follows, epoch, feed, version, ordinal, snapshot_id
""")
MOVE = sql.SQL("""
    UPDATE {positions} SET feed = %s, version = %s, ordinal = %s, snapshot_id = %s, moved_at = now(),
        sent = sent + %s, suppressed = suppressed + %s, known = known + %s, forced = forced + %s
    WHERE target = %s AND epoch = %s AND feed IS NOT DISTINCT FROM %s AND version IS NOT DISTINCT FROM %s
        AND ordinal IS NOT DISTINCT FROM %s AND snapshot_id IS NOT DISTINCT FROM %s
""")
KNEW = sql.SQL("UPDATE {positions} SET known = known + %s WHERE target = %s")
LOOK = sql.SQL("""
    SELECT feed, version, ordinal, snapshot_id, moved_at, sent, suppressed, known, forced FROM {positions}
    WHERE target = %s AND stream = %s AND follows = %s
""")
FORGET = sql.SQL(
    "UPDATE {positions} SET feed = NULL, version = NULL, ordinal = NULL, snapshot_id = NULL WHERE target = %s"
)
REFUSED = sql.SQL("SELECT key, version, ordinal, reason FROM {refused} WHERE target = %s")
REFUSE = sql.SQL("""
    INSERT INTO {refused} (target, key, version, ordinal, reason) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (target, key) DO UPDATE SET version = excluded.version, ordinal = excluded.ordinal,
        reason = excluded.reason, refused_at = now()
""")
ALIASES = sql.SQL("""
    CREATE OR REPLACE VIEW {aliases} AS
    SELECT r.session_id, CASE WHEN ends.is_there THEN ends.last_id END AS current_id, r.retired_at,
        CASE WHEN ends.is_there THEN 'merged' ELSE ends.reason END AS outcome, ends.last_id, ends.merges,
        r.retired_into AS merged_into, r.reason
    FROM {retired} r LEFT JOIN LATERAL (
        WITH RECURSIVE path (id) AS (
            SELECT r.session_id
            UNION
            SELECT each.retired_into FROM path JOIN {retired} each ON each.session_id = path.id
            WHERE each.retired_into IS NOT NULL
        )
        SELECT path.id AS last_id, (SELECT count(*) FROM path) - 1 AS merges, gone.session_id IS NULL AS is_there,
            gone.reason
        FROM path LEFT JOIN {retired} gone ON gone.session_id = path.id
        WHERE gone.retired_into IS NULL
    ) ends ON true
""")
"""Each `session_id` that is no more, and where its events are now, over all merges since: `session_aliases` in a sink.

Of merges that lead back to where they began, which other writers may have left, there is no end: then it is null."""
_ALIAS_COLUMNS = {"session_id", "current_id", "retired_at", "outcome", "last_id", "merges", "merged_into", "reason"}
HEAL = sql.SQL("DELETE FROM {refused} WHERE target = %s AND key = ANY (%s)")


@dataclass(frozen=True)
class Names:
    """The tables of a sink: its rows, and beside them what the platform keeps."""

    table: str
    rows: sql.Identifier
    retired: sql.Identifier
    """Keys that were in the table once, with the version that took them away, and for sessions what they became."""
    aliases: sql.Identifier
    positions: sql.Identifier
    refused: sql.Identifier

    @classmethod
    def of(cls, table: str) -> "Names":
        """Those of `schema.table`."""
        schema, name = table.split(".")
        return cls(
            table,
            sql.Identifier(schema, name),
            sql.Identifier(schema, f"{name}_retired"),
            sql.Identifier(schema, f"{name}_aliases"),
            sql.Identifier(schema, "dedup_platform_sinks"),
            sql.Identifier(schema, "dedup_platform_refused"),
        )

    @property
    def needed(self) -> tuple[sql.Identifier, ...]:
        """The tables without any of which nobody knows what the sink has got."""
        return self.rows, self.retired, self.positions, self.refused

    @staticmethod
    def said(name: sql.Identifier) -> str:
        """A name for people."""
        return ".".join(name.strings)


def prepare(cursor: Cursor, names: Names, target: Target) -> bool:
    """Create what is missing, and add the columns that a table lacks; those of others are left alone.

    Where nothing is missing nothing is locked, and no right to change tables is needed. Returns whether a whole table
    was missing: then the sink has lost what it had got.
    """
    wanted = _definitions(names, target)
    if _has_aliases(cursor, names, target) and all(set(parts) <= _columns(cursor, table) for table, parts, _ in wanted):
        return False
    # Two that create the same at once disturb each other, `IF NOT EXISTS` or not.
    cursor.execute("SELECT pg_advisory_xact_lock(hashtext('dedup_platform'))")
    _create_schema(cursor, names.table.partition(".")[0])
    is_lost = not are_there(cursor, names.needed)
    for table, parts, key in wanted:
        primary = sql.SQL("PRIMARY KEY ({})").format(listed(key))
        columns = [_defined(name, type_) for name, type_ in parts.items()]
        create = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})")
        cursor.execute(create.format(table, sql.SQL(", ").join([*columns, primary])))
        there = _columns(cursor, table)
        for name, column in zip(parts, columns, strict=True):
            if name not in there:
                cursor.execute(sql.SQL("ALTER TABLE {} ADD COLUMN {}").format(table, column))
    if not _has_aliases(cursor, names, target):
        cursor.execute(ALIASES.format(aliases=names.aliases, retired=names.retired))
    return is_lost


def _definitions(names: Names, target: Target) -> list[tuple[sql.Identifier, dict[str, str], Sequence[str]]]:
    """Each table, its columns with their types, and its key."""
    types = {column.name: _type(str(column.type)) for column in target.columns}
    version = {VERSION: "bigint NOT NULL DEFAULT 0"}
    key = {name: types[name] for name in target.key}
    return [
        (names.rows, types | version, target.key),
        (names.retired, key | {INTO: "text", WHY: "text", AT: _NOW} | version, target.key),
        (names.positions, _POSITIONS, ["target"]),
        (names.refused, _REFUSED_ROWS, ["target", "key"]),
    ]


def _columns(cursor: Cursor, table: sql.Identifier) -> set[str]:
    """The columns of a table; none if it is not there."""
    question = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
    cursor.execute(question, (table.as_string(cursor),))
    return {name for (name,) in cursor.fetchall()}


def are_there(cursor: Cursor, tables: Sequence[sql.Identifier]) -> bool:
    """Whether there is a table, or a view, of each of these names."""
    texts = [table.as_string(cursor) for table in tables]
    cursor.execute("SELECT bool_and(to_regclass(name) IS NOT NULL) FROM unnest(%s) AS names (name)", (texts,))
    return bool(cursor.fetchone() == (True,))


def _has_aliases(cursor: Cursor, names: Names, target: Target) -> bool:
    return target.table != SESSIONS or _columns(cursor, names.aliases) >= _ALIAS_COLUMNS


def is_fresh(cursor: Cursor, names: Names, target: Target) -> bool:
    """Whether the table is empty, has the types that we give it, and no row is known to be gone."""
    question = "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = to_regclass(%s)"
    cursor.execute(question, (names.rows.as_string(cursor),))
    types = dict(cursor.fetchall())
    if any(types.get(column.name) != _type(str(column.type)) for column in target.columns):
        return False
    there = sql.SQL("SELECT NOT EXISTS (SELECT 1 FROM {}) AND NOT EXISTS (SELECT 1 FROM {})")
    cursor.execute(there.format(names.rows, names.retired))
    return bool(cursor.fetchone() == (True,))


def temporary(name: str, target: Target, columns: Sequence[str]) -> sql.Composed:
    """Create a table of these columns that is gone at the end of the transaction."""
    types = {column.name: _type(str(column.type)) for column in target.columns} | {VERSION: "bigint"}
    if name == GONE:
        types |= {INTO: "text", WHY: "text", AT: "timestamp with time zone"}
    parts = sql.SQL(", ").join(_defined(column, types[column]) for column in columns)
    return sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP").format(sql.Identifier(name), parts)


def upsert(names: Names, target: Target, columns: Sequence[str], forced: bool) -> Iterator[sql.Composed]:
    """Bring the rows of `INCOMING` into the table, unless it knows newer ones, or that they are gone.

    What is `forced` is brought in whatever the table knows.
    """
    version = sql.Identifier(VERSION)
    updated = [sql.Identifier(name) for name in columns if name not in target.key]
    setting = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(name) for name in updated)
    yield sql.SQL(
        "INSERT INTO {rows} AS t ({columns}) SELECT {columns} FROM dedup_platform_incoming i WHERE NOT EXISTS "
        "(SELECT 1 FROM {retired} r WHERE {same} AND r.{version} > i.{version} AND NOT {forced}) "
        "ON CONFLICT ({key}) DO UPDATE SET {setting} WHERE t.{version} < excluded.{version} OR {forced}"
    ).format(
        rows=names.rows,
        columns=listed(columns),
        retired=names.retired,
        same=_same(target.key, "r", "i"),
        key=listed(target.key),
        setting=setting,
        version=version,
        forced=sql.Literal(forced),
    )
    yield sql.SQL(
        "DELETE FROM {retired} r USING dedup_platform_incoming i "
        "WHERE {same} AND (r.{version} <= i.{version} OR {forced})"
    ).format(retired=names.retired, same=_same(target.key, "r", "i"), version=version, forced=sql.Literal(forced))


def retire(names: Names, target: Target, forced: bool) -> Iterator[sql.Composed]:
    """Take the rows of `GONE` out of the table, unless it knows newer ones, and remember that they are gone."""
    version = sql.Identifier(VERSION)
    yield sql.SQL(
        "DELETE FROM {rows} t USING dedup_platform_gone g WHERE {same} AND (t.{version} < g.{version} OR {forced})"
    ).format(rows=names.rows, same=_same(target.key, "t", "g"), version=version, forced=sql.Literal(forced))
    columns = listed([*target.key, INTO, WHY, AT, VERSION])
    # What is forced tells only that rows are gone, and not what became of them.
    yield sql.SQL(
        "INSERT INTO {retired} AS r ({columns}) SELECT {columns} FROM dedup_platform_gone "
        "ON CONFLICT ({key}) DO UPDATE SET retired_into = excluded.retired_into, reason = excluded.reason, "
        "retired_at = excluded.retired_at, {version} = excluded.{version} "
        "WHERE r.{version} < excluded.{version} AND NOT {forced}"
    ).format(
        retired=names.retired, columns=columns, key=listed(target.key), version=version, forced=sql.Literal(forced)
    )
    yield sql.SQL("DROP TABLE dedup_platform_gone")


def revive(names: Names, target: Target) -> sql.Composed:
    """Forget that rows are gone which are there."""
    return sql.SQL("DELETE FROM {retired} r USING {rows} t WHERE {same}").format(
        retired=names.retired, rows=names.rows, same=_same(target.key, "r", "t")
    )


def listed(names: Sequence[str]) -> sql.Composed:
    """Names of columns with commas between them."""
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _create_schema(cursor: Cursor, name: str) -> None:
    # Not `IF NOT EXISTS`: who may not create any fails with that even if it is there.
    cursor.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (name,))
    if cursor.fetchone() is None:
        cursor.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))


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
