"""What stands in a release file beside the released rows: the manifest, what tells about it, and our macros; nothing
else."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.queries.names import col, is_there, select, text, union_all
from sqlanon.release.manifest import Manifest
from sqlanon.release.presented import ABOUT, objects
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
_COMMENTED = (
    ("duckdb_tables", "table_name", text("")),
    ("duckdb_views", "view_name", text("")),
    ("duckdb_columns", "table_name", col("column_name")),
    ("duckdb_functions", "function_name", text("")),
)


def expected_objects(manifests: Sequence[Manifest]) -> set[str]:
    """What a release file should have.

    Parameters
    ----------
    manifests:
        Of the versions that are kept, the newest first.
    """
    own = {"table sqlanon.manifest", "schema sqlanon.sqlanon"}
    told = {f"table sqlanon.{name}" for name in ABOUT} if manifests[0].version is not None else set[str]()
    return objects(manifests) | own | told


def found_objects(engine: DuckDBEngine) -> set[str]:
    """What an open release file has: objects, and columns with defaults. Macros and comments are another matter."""
    parts = [_names(kind, function, name) for kind, function, name in _OBJECTS]
    parts.append(_constraints())
    worked_out = _names("default of column", "duckdb_columns", "column_name")
    parts.append(worked_out.where(is_there(col("column_default")), copy=False))
    found = {name for (name,) in engine.rows(exp.union(*parts, distinct=True))}
    return {name for name in found if name != "schema main.main"}


def _constraints() -> exp.Select:
    """What rows must meet, but for the manifest's own NOT NULL: a condition may have a value in it."""
    full = exp.Concat(
        expressions=[text("constraint of table "), col("schema_name"), text("."), col("table_name")], safe=True
    )
    query = _of(ATTACHED, [full], "duckdb_constraints")
    own = exp.EQ(this=col("schema_name"), expression=text("sqlanon"))
    plain = exp.EQ(this=col("constraint_type"), expression=text("NOT NULL"))
    return query.where(exp.Not(this=exp.Paren(this=exp.and_(own, plain, copy=False))), copy=False)


def _names(kind: str, function: str, name: str) -> exp.Select:
    full = exp.Concat(expressions=[text(f"{kind} "), col("schema_name"), text("."), col(name)], safe=True)
    return _of(ATTACHED, [full], function)


def found_comments(engine: DuckDBEngine) -> dict[tuple[str, str], str]:
    """The comments of an open release file by table or view, and column; the column of the whole is empty."""
    parts = [
        _of(ATTACHED, [col(name), column.copy(), col("comment")], function).where(is_there(col("comment")), copy=False)
        for function, name, column in _COMMENTED
    ]
    return {(name, column): told for name, column, told in engine.rows(union_all(*parts))}


def found_views(engine: DuckDBEngine, database: str = ATTACHED) -> dict[str, str]:
    """The statements of the views in an open release file, or another database, by name."""
    return dict(engine.rows(_of(database, [col("view_name"), col("sql")], "duckdb_views")))


def changed_macros(engine: DuckDBEngine) -> list[str]:
    """The macros of an open release file that are not ours, by name."""
    return sorted({name for name, _ in _definitions(engine, "memory") ^ _definitions(engine, ATTACHED)})


def _definitions(engine: DuckDBEngine, database: str) -> set[tuple[str, str]]:
    query = _of(database, [col("function_name"), col("macro_definition")], "duckdb_functions")
    return {(name, definition) for name, definition in engine.rows(query)}


def _of(database: str, columns: list[exp.Expr], function: str) -> exp.Select:
    source = exp.Table(this=exp.Anonymous(this=function, expressions=[]))
    query = select(columns, source).where(exp.EQ(this=col("database_name"), expression=text(database)), copy=False)
    if function in ("duckdb_sequences", "duckdb_indexes", "duckdb_constraints"):  # none of these is internal
        return query
    return query.where(exp.Not(this=col("internal")), copy=False)
