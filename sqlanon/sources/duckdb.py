"""Bind tables and queries of a database that DuckDB reads, or of a live connection.

DuckDB files are attached read-only. Others are SQLite, MySQL, DuckLake, and DuckDB files over the network: one
statement copies the needed columns, and the database is detached. Nothing is read twice while it changes, and its
address does not stay in the engine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.places.databases import choose_attachment, format_database, is_attached, local_database, resolve_database
from sqlanon.policy import PopulationSection, SourceSection
from sqlanon.sources.columns import refuse_ambiguous_names
from sqlanon.sources.extensions import load_extension
from sqlanon.sources.files.binding import bind_files
from sqlanon.sources.files.typed_columns import ColumnReading
from sqlanon.sources.kinds import Binding, SourceKind, lower
from sqlanon.sources.queries import (
    has_same_meaning,
    read_by_holder,
    refuse_guessed_csv,
    require_one_select,
    schemas_in_use,
)
from sqlanon.sources.relation import bind_relation, describe_engine_error, source_errors
from sqlanon.sources.source import Source, WorkNames
from sqlanon.support.expressions import (
    col,
    create_table,
    create_temporary_view,
    ident,
    quote_name,
    select,
    select_star,
    table,
    template,
)
from sqlanon.support.names import table_parts


class _Database(SourceKind):
    name = "database"

    def bind(self, binding: Binding) -> tuple[DuckDBEngine, Source]:
        wanted = binding.needed_columns  # empty stands for all
        if wanted:
            wanted |= lower(*binding.policy.attributes_with_role("identifying"))
        source = bind_source(
            binding.engine, binding.section, binding.work_names, wanted=wanted, database_id=binding.database_id
        )
        return binding.engine, source


KIND = _Database()
_NO_READINGS: Mapping[str, ColumnReading] = {}


def bind_source(
    engine: DuckDBEngine,
    section: SourceSection | PopulationSection,
    work_names: WorkNames,
    text_columns: Collection[str] = (),
    wanted: Collection[str] = (),
    database_id: str | None = None,
    readings: Mapping[str, ColumnReading] = _NO_READINGS,
) -> Source:
    if section.database is not None and is_attached(section.database):
        return _bind_attached(engine, section, resolve_database(section.database), work_names, wanted)
    if section.files:
        return bind_files(engine, section, work_names, text_columns, wanted, database_id, readings)
    with source_errors():
        if section.query is not None:
            relation = _bind_query(engine, section.query, work_names)
        else:
            relation = _bind_table(engine, section.table, work_names)
        return bind_relation(engine, relation, work_names, _is_table(engine, relation), database_id=database_id)


# Tables and queries of the holder's connection


def parse_table_name(name: str) -> exp.Table:
    """Parse a table name of a policy, for scripts; the table may not exist."""
    return table(*reversed(table_parts(name) or (name,)))


def find_table(engine: DuckDBEngine, name: str | None) -> exp.Table:
    """Find a table or view of the holder's connection: by the whole name, else by schema and name around a dot.

    The returned name is fully qualified, so that it stays valid if another database is used later.
    """
    holder, database = engine.holder, engine.holder.database
    if not name:
        known_tables = _describe_known_tables(list_tables(engine))
        raise SourceError(f"source: name a table: table = ..., query = ... or files = ...{known_tables}")
    schemas = [("main", "temp"), *((schema_name, database) for schema_name in dict.fromkeys(schemas_in_use(holder)))]
    candidates = [(name, *schema) for schema in schemas]
    match table_parts(name):
        case (table_name,):
            candidates += [(table_name, *schema) for schema in schemas]
        case (first, table_name):
            candidates += [(table_name, first, database), (table_name, "main", first)]
        case (first, second, table_name):
            candidates.append((table_name, second, first))
    return _find_first(holder, candidates, name, database)


def list_tables(engine: DuckDBEngine, database: str | None = None, schema: str | None = None) -> list[str]:
    """The first tables of a database, by default the holder's, or of a schema in it."""
    query = template("""
        SELECT table_schema, table_name
        FROM information_schema.tables
        WHERE table_catalog = :database AND table_schema = coalesce(:schema, table_schema)
        ORDER BY table_schema, table_name
        LIMIT 10
    """)(database=database or engine.holder.database, schema=exp.null() if schema is None else schema)
    return [name if prefix in ("main", schema) else f"{prefix}.{name}" for prefix, name in engine.rows(query)]


def _describe_known_tables(names: Sequence[str]) -> str:
    return f"; the database has: {', '.join(names)}" if names else ""


def _find_first(
    engine: DuckDBEngine,
    candidates: Sequence[tuple[str, str, str]],
    name: str,
    database: str,
    schema: str | None = None,
) -> exp.Table:
    """Find the first of some relations that exists."""
    for candidate in candidates:
        with suppress(duckdb.CatalogException, duckdb.BinderException):
            engine.types(table(*candidate))
            return table(*candidate)
    known_tables = _describe_known_tables(list_tables(engine, database, schema))
    raise SourceError(f"source.table: no table or view is named {name!r}{known_tables}")


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


def _is_table(engine: DuckDBEngine, relation: exp.Table, plain: bool = False) -> bool:
    """Whether a relation is a table, not a view; a plain table has no generated columns."""
    query = template("""
        SELECT sql
        FROM duckdb_tables()
        WHERE lower(database_name) = lower(:database)
            AND lower(schema_name) = lower(:schema)
            AND lower(table_name) = lower(:name)
    """)
    statements = engine.rows(query(database=relation.catalog, schema=relation.db, name=relation.name))
    return bool(statements) and not (plain and "GENERATED ALWAYS" in (statements[0][0] or "").upper())


# Databases that DuckDB attaches through an extension


def _bind_attached(
    engine: DuckDBEngine,
    section: SourceSection | PopulationSection,
    database: Path | str,
    work_names: WorkNames,
    wanted: Collection[str],
) -> Source:
    columns, table_name = dict[str, str](), None
    with _attach(engine, database, f"{work_names.name}_attach") as (holder, alias), _database_errors(database):
        if section.query is not None:
            query = require_one_select(holder, section.query)
            refuse_guessed_csv(holder, query)
            read_by_holder(holder, query, work_names)
        else:
            relation = _find_attached_table(holder, alias, section.table or "")
            columns = _copy_columns(holder, relation, work_names, wanted)
            table_name = quote_name(relation.db, relation.name)  # its schema is not `main` in MySQL
    home, file = format_database(database), local_database(database)
    files = () if file is None else (file,)
    is_table = section.query is None
    bound = bind_relation(engine, work_names.table, work_names, is_table, files, columns, home)
    return replace(bound, table_name=table_name)


@contextmanager
def _attach(engine: DuckDBEngine, database: Path | str, alias: str) -> Iterator[tuple[DuckDBEngine, str]]:
    """Attach a database for the block; yield a connection that uses it, and its alias."""
    file = local_database(database)
    if file is not None and not file.is_file():  # DuckDB would create one, or fail later
        raise SourceError(f"{file}: the database does not exist")
    attachment = choose_attachment(database)
    for extension in attachment.extensions:
        load_extension(engine, extension, "source.database", attachment.kind)
    holder, options = engine.connect_beside(), {"type": attachment.type} if attachment.type else {}
    try:
        with _database_errors(database):
            engine.attach(attachment.address, alias, read_only=True, **options)
            holder.use_utc().execute(exp.Use(this=ident(alias)))
        yield holder, alias
    finally:
        holder.close()  # a database that is in use cannot be detached
        engine.detach(alias)


def _find_attached_table(holder: DuckDBEngine, alias: str, name: str) -> exp.Table:
    schema = holder.rows(template("SELECT system.main.current_schema()")())[0][0]
    candidates = [(name, schema, alias)]
    match table_parts(name):
        case (table_name,):
            candidates.append((table_name, schema, alias))
        case (given_schema, table_name):
            candidates.append((table_name, given_schema, alias))
    return _find_first(holder, candidates, name, alias, schema)


def _copy_columns(
    holder: DuckDBEngine, relation: exp.Table, work_names: WorkNames, wanted: Collection[str]
) -> dict[str, str]:
    """Copy the wanted columns; return the types of all columns."""
    columns = holder.columns(relation)
    refuse_ambiguous_names(list(columns), "the source")
    names = [name for name in columns if name.lower() in wanted] or list(columns)
    query = select([col(name) for name in names], relation.copy())
    query = query if work_names.reads_rows else query.limit(0, copy=False)
    holder.execute(create_table(work_names.table.copy(), query))
    return columns


@contextmanager
def _database_errors(database: Path | str) -> Iterator[None]:
    """Turn errors of DuckDB into a `SourceError` without the secrets of an address, also in its chain."""
    subject = f"source.database: {format_database(database)}"
    try:
        yield
    except duckdb.TypeMismatchException:
        raise SourceError(
            f"{subject}: a value is not of the type that its column declares, which SQLite allows: make a view there "
            "that casts the column, and name it as table"
        ) from None
    except duckdb.Error as error:
        # The engine quotes the address completely.
        attachment = choose_attachment(database)
        message = describe_engine_error(error).rpartition(attachment.address)[2].lstrip("\"': ")
        is_secret = any(secret in message for secret in attachment.secrets)
        reason = type(error).__name__ if is_secret or not message else message
        raise SourceError(f"{subject} cannot be read: {reason}") from None
