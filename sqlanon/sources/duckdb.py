"""Bind tables and queries of a DuckDB file, which is attached read-only, or of a live connection."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.places.databases import is_attached
from sqlanon.policy import PopulationSection, SourceSection
from sqlanon.sources.attached import bind_attached
from sqlanon.sources.files import bind_files
from sqlanon.sources.kinds import Binding, SourceKind
from sqlanon.sources.queries import (
    has_same_meaning,
    read_by_holder,
    refuse_guessed_csv,
    require_one_select,
    schemas_in_use,
)
from sqlanon.sources.relation import bind_relation, source_errors
from sqlanon.sources.source import Source, WorkNames
from sqlanon.sources.typed_columns import ColumnReading
from sqlanon.support.expressions import create_temporary_view, select_star, table, template
from sqlanon.support.names import table_parts


class _DuckDB(SourceKind):
    name = "database"
    opens_database = True

    def bind(self, binding: Binding) -> tuple[DuckDBEngine, Source]:
        return binding.engine, bind_source(
            binding.engine, binding.section, binding.work_names, database_id=binding.database_id
        )


KIND = _DuckDB()
_NO_READINGS: Mapping[str, ColumnReading] = {}

_CREATE_STATEMENT = template("""
    SELECT sql
    FROM duckdb_tables()
    WHERE lower(database_name) = lower(:database)
        AND lower(schema_name) = lower(:schema)
        AND lower(table_name) = lower(:name)
""")
_KNOWN_TABLES = template("""
    SELECT table_schema, table_name
    FROM information_schema.tables
    WHERE table_catalog = :database
    ORDER BY table_schema, table_name
    LIMIT 10
""")


def bind_source(
    engine: DuckDBEngine,
    section: SourceSection | PopulationSection,
    work_names: WorkNames,
    text_columns: Collection[str] = (),
    wanted: Collection[str] = (),
    database_id: str | None = None,
    readings: Mapping[str, ColumnReading] = _NO_READINGS,
) -> Source:
    if is_attached(section.database):
        return bind_attached(engine, section, work_names, wanted)
    if section.files:
        return bind_files(engine, section, work_names, text_columns, wanted, database_id, readings)
    with source_errors():
        if section.query is not None:
            relation = _bind_query(engine, section.query, work_names)
        else:
            relation = _bind_table(engine, section.table, work_names)
        return bind_relation(engine, relation, work_names, _is_table(engine, relation), database_id=database_id)


def _is_table(engine: DuckDBEngine, relation: exp.Table, plain: bool = False) -> bool:
    """Whether a relation is a table, not a view; a plain table has no generated columns."""
    statements = engine.rows(_CREATE_STATEMENT(database=relation.catalog, schema=relation.db, name=relation.name))
    return bool(statements) and not (plain and "GENERATED ALWAYS" in (statements[0][0] or "").upper())


def parse_table_name(name: str) -> exp.Table:
    """Parse a table name of a policy, for scripts; the table may not exist."""
    return table(*reversed(table_parts(name) or (name,)))


def find_table(engine: DuckDBEngine, name: str | None) -> exp.Table:
    """Find a table or view of the holder's connection: by the whole name, else by schema and name around a dot.

    The returned name is fully qualified, so that it stays valid if another database is used later.
    """
    if not name:
        raise SourceError(f"source: name a table: table = ..., query = ... or files = ...{_known_tables(engine)}")
    holder, database = engine.holder, engine.holder.database
    schemas = [("main", "temp"), *((schema_name, database) for schema_name in dict.fromkeys(schemas_in_use(holder)))]
    candidates = [(name, *schema) for schema in schemas]
    match table_parts(name):
        case (table_name,):
            candidates += [(table_name, *schema) for schema in schemas]
        case (first, table_name):
            candidates += [(table_name, first, database), (table_name, "main", first)]
        case (first, second, table_name):
            candidates.append((table_name, second, first))
    for candidate in candidates:
        try:
            holder.types(table(*candidate))
        except (duckdb.CatalogException, duckdb.BinderException):
            continue
        return table(*candidate)
    raise SourceError(f"source.table: there is no table or view {name!r}{_known_tables(engine)}")


def list_tables(engine: DuckDBEngine) -> list[str]:
    names = engine.rows(_KNOWN_TABLES(database=engine.holder.database))
    return [name if schema == "main" else f"{schema}.{name}" for schema, name in names]


def _known_tables(engine: DuckDBEngine) -> str:
    names = list_tables(engine)
    return f"; there is: {', '.join(names)}" if names else ""


def _bind_query(engine: DuckDBEngine, query: str, work_names: WorkNames) -> exp.Table:
    plain = require_one_select(engine, query)
    refuse_guessed_csv(engine.holder, plain)
    if not has_same_meaning(engine, plain):
        return read_by_holder(engine, plain, work_names)
    view = work_names.view("query")
    engine.execute(create_temporary_view(view, exp.Var(this=plain)))
    return view


def _bind_table(engine: DuckDBEngine, name: str | None, work_names: WorkNames) -> exp.Table:
    """Bind a table of the holder. Only the holder's connection sees temporary tables."""
    relation = find_table(engine, name)
    if not _is_table(engine, relation):
        refuse_guessed_csv(engine.holder, relation)
    is_temporary = relation.catalog == "temp" and engine.holder is not engine
    if not is_temporary and (_is_table(engine, relation, plain=True) or has_same_meaning(engine)):
        return relation
    return read_by_holder(engine, select_star(relation).sql(engine.dialect), work_names)
