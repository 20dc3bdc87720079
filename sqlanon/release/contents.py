"""What stands in a release file beside the released rows: nothing but the manifest and our macros."""

from __future__ import annotations

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.queries.names import col, is_there, select, text
from sqlanon.release.manifest import Manifest
from sqlanon.release.reader import ATTACHED

STORAGE_VERSION = "v1.0.0"
"""Files of this version can be read by DuckDB 1.x and by the BI drivers of today."""

_OBJECTS = (
    ("table", "duckdb_tables", "table_name"),
    ("view", "duckdb_views", "view_name"),
    ("type", "duckdb_types", "type_name"),
    ("sequence", "duckdb_sequences", "sequence_name"),
    ("index", "duckdb_indexes", "index_name"),
    ("schema", "duckdb_schemas", "schema_name"),
)
_NOTES = (
    ("comment on table", "duckdb_tables", "table_name", "comment"),
    ("comment on column", "duckdb_columns", "column_name", "comment"),
    ("default of column", "duckdb_columns", "column_name", "column_default"),
)


def expected_objects(manifest: Manifest) -> set[str]:
    """What a release file should have."""
    return {f"table main.{manifest.table_name}", "table sqlanon.manifest", "schema sqlanon.sqlanon"}


def found_objects(engine: DuckDBEngine) -> set[str]:
    """What an open release file has: objects, comments, defaults. Macros are another matter."""
    parts = [_names(kind, function, name) for kind, function, name in _OBJECTS]
    for kind, function, name, note in _NOTES:
        there = is_there(col(note))
        parts.append(_names(kind, function, name).where(there, copy=False))
    found = {name for (name,) in engine.rows(exp.union(*parts, distinct=True))}
    return {name for name in found if name != "schema main.main"}


def _names(kind: str, function: str, name: str) -> exp.Select:
    full = exp.Concat(expressions=[text(f"{kind} "), col("schema_name"), text("."), col(name)], safe=True)
    return _of(ATTACHED, [full], function)


def changed_macros(engine: DuckDBEngine) -> list[str]:
    """The macros of an open release file that are not ours, by name."""
    return sorted({name for name, _ in _definitions(engine, "memory") ^ _definitions(engine, ATTACHED)})


def _definitions(engine: DuckDBEngine, database: str) -> set[tuple[str, str]]:
    query = _of(database, [col("function_name"), col("macro_definition")], "duckdb_functions")
    return {(name, definition) for name, definition in engine.rows(query)}


def _of(database: str, columns: list[exp.Expr], function: str) -> exp.Select:
    source = exp.Table(this=exp.Anonymous(this=function, expressions=[]))
    query = select(columns, source).where(exp.EQ(this=col("database_name"), expression=text(database)), copy=False)
    if function in ("duckdb_sequences", "duckdb_indexes"):  # none of these is internal
        return query
    return query.where(exp.Not(this=col("internal")), copy=False)
