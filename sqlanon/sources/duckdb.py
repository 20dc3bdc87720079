"""DuckDB: tables and queries of a database file, which is attached read-only, or of a live connection."""

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
from sqlanon.support.expressions import create_temporary_view, star, table, template
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

_STATEMENT_OF = template("""
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
    place: WorkNames,
    text_columns: Collection[str] = (),
    wanted: Collection[str] = (),
    database_id: str | None = None,
    readings: Mapping[str, ColumnReading] = _NO_READINGS,
) -> Source:
    if is_attached(section.database):
        return bind_attached(engine, section, place, wanted)
    if section.files:
        return bind_files(engine, section, place, text_columns, wanted, database_id, readings)
    with source_errors():
        if section.query is not None:
            found = _from_query(engine, section.query, place)
        else:
            found = _from_table(engine, section.table, place)
        return bind_relation(engine, found, place, _is_table(engine, found), database_id=database_id)


def _is_table(engine: DuckDBEngine, found: exp.Table, plain: bool = False) -> bool:
    """Whether a relation is a table, and no view; a plain one has no columns that are worked out when it is read."""
    made = engine.rows(_STATEMENT_OF(database=found.catalog, schema=found.db, name=found.name))
    return bool(made) and not (plain and "GENERATED ALWAYS" in (made[0][0] or "").upper())


def parse_table_name(name: str) -> exp.Table:
    """A table by the name that a policy gives, for SQL that people read: whether it is there is not asked."""
    *place, own = table_parts(name) or (name,)
    return table(own, *reversed(place))


def find_table(engine: DuckDBEngine, name: str | None) -> exp.Table:
    """A table or view by the name that the policy gives, on the holder's connection: as it stands, else with its schema
    before a dot.

    The name that is found is full: it means the same table whatever database is in use later.
    """
    if not name:
        raise SourceError(f"source: name a table: table = ..., query = ... or files = ...{_known_tables(engine)}")
    holder, database = engine.holder, engine.holder.database
    here = [("main", "temp"), *((schema, database) for schema in dict.fromkeys(schemas_in_use(holder)))]
    candidates = [(name, *place) for place in here]
    match table_parts(name):
        case (own,):
            candidates += [(own, *place) for place in here]
        case (first, own):
            candidates += [(own, first, database), (own, "main", first)]
        case (first, second, own):
            candidates.append((own, second, first))
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
    shown = list_tables(engine)
    return f"; there is: {', '.join(shown)}" if shown else ""


def _from_query(engine: DuckDBEngine, query: str, place: WorkNames) -> exp.Table:
    plain = require_one_select(engine, query)
    refuse_guessed_csv(engine.holder, plain)
    if not has_same_meaning(engine, plain):
        return read_by_holder(engine, plain, place)
    view = place.view("query")
    engine.execute(create_temporary_view(view, exp.Var(this=plain)))
    return view


def _from_table(engine: DuckDBEngine, name: str | None, place: WorkNames) -> exp.Table:
    """A table of the holder's. A temporary one is known to the holder's connection alone."""
    found = find_table(engine, name)
    if not _is_table(engine, found):
        refuse_guessed_csv(engine.holder, found)
    if found.catalog == "temp" and engine.holder is not engine:
        return read_by_holder(engine, star(found).sql(engine.dialect), place)
    if _is_table(engine, found, plain=True) or has_same_meaning(engine):
        return found
    return read_by_holder(engine, star(found).sql(engine.dialect), place)
