"""Bind databases that DuckDB attaches: SQLite, MySQL, DuckLake, and DuckDB files over the network.

A database is attached read-only. One statement copies the needed columns, and the database is detached: nothing is read
twice while it changes, and its address does not stay in the engine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.places.databases import choose_attachment, format_database, local_database, resolve_database
from sqlanon.policy import PopulationSection, SourceSection
from sqlanon.sources.extensions import load_extension
from sqlanon.sources.kinds import Binding, SourceKind, lower
from sqlanon.sources.queries import read_by_holder, refuse_guessed_csv, require_one_select
from sqlanon.sources.relation import bind_relation, describe_engine_error
from sqlanon.sources.source import Source, WorkNames
from sqlanon.sources.tabular import refuse_ambiguous_names
from sqlanon.support.expressions import col, create_table, ident, quote_name, select, table, template
from sqlanon.support.names import table_parts

_KNOWN_TABLES = template("""
    SELECT table_schema, table_name
    FROM information_schema.tables
    WHERE table_catalog = :database AND table_schema = :schema
    ORDER BY table_name
    LIMIT 10
""")


@dataclass(frozen=True)
class AttachedSource(Source):
    table_name: str | None = None  # with its schema, which is not `main` in MySQL

    def names(self, section: SourceSection) -> tuple[str | None, str | None]:
        return self.table_name, section.query


class _Attached(SourceKind):
    name = "attached"

    def bind(self, binding: Binding) -> tuple[DuckDBEngine, Source]:
        wanted = binding.needed_columns  # empty stands for all
        if wanted:
            wanted |= lower(*binding.policy.attributes_with_role("identifying"))
        return binding.engine, bind_attached(binding.engine, binding.section, binding.work_names, wanted)


KIND = _Attached()


def bind_attached(
    engine: DuckDBEngine, section: SourceSection | PopulationSection, work_names: WorkNames, wanted: Collection[str]
) -> Source:
    assert section.database is not None
    database = resolve_database(section.database)
    with _attach(engine, database, f"{work_names.name}_attach") as (holder, alias), _database_errors(database):
        if section.query is not None:
            query = require_one_select(holder, section.query)
            refuse_guessed_csv(holder, query)
            read_by_holder(holder, query, work_names)
            columns, name = {}, None
        else:
            relation = _find_table(holder, alias, section.table or "")
            columns, name = _copy_columns(holder, relation, work_names, wanted), quote_name(relation.db, relation.name)
    bound = bind_relation(engine, work_names.table, work_names, section.query is None, all_columns=columns)
    file = local_database(database)
    files = () if file is None else (file,)
    home = format_database(database)
    return AttachedSource(bound.relation, bound.columns, files, bound.in_place, database_id=home, table_name=name)


@contextmanager
def _attach(engine: DuckDBEngine, database: Path | str, alias: str) -> Iterator[tuple[DuckDBEngine, str]]:
    """Attach a database for the block; yield a connection that uses it, and its alias."""
    file = local_database(database)
    if file is not None and not file.is_file():  # DuckDB would create one, or fail later
        raise SourceError(f"there is no database at {file}")
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


def _find_table(holder: DuckDBEngine, alias: str, name: str) -> exp.Table:
    schema = holder.rows(template("SELECT system.main.current_schema()")())[0][0]
    parts = table_parts(name)
    candidates = [(name, schema)]
    if len(parts) == 1:
        candidates.append((parts[0], schema))
    elif len(parts) == 2:
        candidates.append((parts[1], parts[0]))
    for candidate_name, candidate_schema in candidates:
        with suppress(duckdb.CatalogException, duckdb.BinderException):
            holder.types(relation := table(candidate_name, candidate_schema, alias))
            return relation
    names = [table_name for _, table_name in holder.rows(_KNOWN_TABLES(database=alias, schema=schema))]
    alternatives = f"; there is: {', '.join(names)}" if names else ""
    raise SourceError(f"source.table: there is no table or view {name!r}{alternatives}")


def _copy_columns(
    holder: DuckDBEngine, relation: exp.Table, work_names: WorkNames, wanted: Collection[str]
) -> dict[str, str]:
    """Copy the wanted columns; return the types of all columns."""
    columns = holder.columns(relation)
    refuse_ambiguous_names(list(columns), "the source")
    names = [name for name in columns if name.lower() in wanted] or list(columns)
    output: list[exp.Expr] = [col(name) for name in names]
    query = select(output, relation.copy())
    holder.execute(
        create_table(work_names.table.copy(), query if work_names.reads_rows else query.limit(0, copy=False))
    )
    return columns


@contextmanager
def _database_errors(database: Path | str) -> Iterator[None]:
    """Turn errors of DuckDB into a `SourceError` without the secrets of an address, also in its chain."""
    try:
        yield
    except duckdb.TypeMismatchException:
        raise SourceError(
            f"source.database: {format_database(database)}: a value is not of the type that its column declares, which "
            "SQLite allows: make a view there that casts the column, and name it as table"
        ) from None
    except duckdb.Error as error:
        raise SourceError(
            f"source.database: {format_database(database)} cannot be read: {_describe_reason(error, database)}"
        ) from None


def _describe_reason(error: duckdb.Error, database: Path | str) -> str:
    """The message of the engine after the address, which it quotes completely."""
    attachment = choose_attachment(database)
    message = describe_engine_error(error).rpartition(attachment.address)[2].lstrip("\"': ")
    is_secret = any(secret in message for secret in attachment.secrets)
    return type(error).__name__ if is_secret or not message else message
