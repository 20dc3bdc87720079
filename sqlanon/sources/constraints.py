"""The tables of a DuckDB database, with their declared keys and references."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.support.expressions import quote_name, template

_TABLES = template("""
    SELECT schema_name, table_name
    FROM duckdb_tables()
    WHERE database_name = :database AND NOT internal AND NOT temporary AND schema_name <> 'sqlanon'
    ORDER BY schema_name, table_name
""")
_CONSTRAINTS = template("""
    SELECT
        schema_name, table_name, constraint_type, constraint_column_names, referenced_table, referenced_column_names
    FROM duckdb_constraints()
    WHERE database_name = :database AND constraint_type IN ('PRIMARY KEY', 'UNIQUE', 'FOREIGN KEY')
    ORDER BY schema_name, table_name, constraint_type, constraint_index
""")


@dataclass(frozen=True)
class ForeignKey:
    """Columns whose values name a row of a table by its key."""

    columns: tuple[str, ...]
    table: str
    key: tuple[str, ...]


@dataclass(frozen=True)
class Constraints:
    """The declared constraints of a table: its keys, the primary key first, and its references."""

    keys: tuple[tuple[str, ...], ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()


def list_constraints(engine: DuckDBEngine) -> Mapping[str, Constraints]:
    """The tables of the database that an engine uses, with their constraints; views are not among them."""
    database = engine.holder.database
    constraints = {_full_name(*names): Constraints() for names in engine.rows(_TABLES(database=database))}
    for schema, table_name, kind, columns, target, target_columns in engine.rows(_CONSTRAINTS(database=database)):
        name = _full_name(schema, table_name)
        if name not in constraints:
            continue
        declared = constraints[name]
        if kind == "FOREIGN KEY":
            # DuckDB has no references to other schemas.
            foreign_key = ForeignKey(tuple(columns), _full_name(schema, target), tuple(target_columns))
            constraints[name] = Constraints(declared.keys, (*declared.foreign_keys, foreign_key))
        else:
            constraints[name] = Constraints((*declared.keys, tuple(columns)), declared.foreign_keys)
    return constraints


def _full_name(schema: str, name: str) -> str:
    """The name of a table in a policy."""
    is_plain = name.isidentifier()
    if schema == "main":
        return name if is_plain else quote_name(name)
    return f"{schema}.{name}" if is_plain and schema.isidentifier() else quote_name(schema, name)
