"""`live`: search like `anonymize`, then create a view that recodes and suppresses whenever it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
from sqlglot import exp

from sqlanon.disclosure.unprotected_columns import warn_of_unprotected_columns
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import PolicyError, SourceError
from sqlanon.live.queries import LiveColumn, type_text
from sqlanon.live.statements import (
    DEFINITIONS,
    MARK,
    SCHEMA,
    STATUS,
    LiveDraft,
    ViewRecord,
    build_recipe,
    create_statements,
    definition_row,
    drop_statements,
    status_query,
)
from sqlanon.pipeline import prepare
from sqlanon.policy import Policy
from sqlanon.policy.compatibility import LIVE_VIEWS, collect_sections, find_conflicts
from sqlanon.release.manifest import utc_now
from sqlanon.requirements import warn_of_void_shields
from sqlanon.sources import find_table, fixed_column, source_errors
from sqlanon.sources.run import Run
from sqlanon.sources.workspace import Workspace
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.lattice import Progress, ignore_progress
from sqlanon.strategies.stage import run_search
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import col, fragment, subquery, table, template
from sqlanon.support.names import table_parts
from sqlanon.support.notices import Notice, sort_messages


@dataclass(frozen=True)
class LiveView:
    """A view in the source database that shows a table generalized and suppressed by its policy whenever it is read.

    Attributes
    ----------
    view, schema, table:
        The name of the view, its schema, and its table.
    secure:
        Whether it is a secure view, which the engine protects.
    replaced:
        Whether it replaced a live view of that name.
    generalization, heights:
        The level of each quasi-identifier, and the top level of its hierarchy.
    measure, score, optimal:
        The measure, its score, and whether it is proven to be the best, for the table at that time.
    rows, suppressed_rows, limit_rows:
        The rows of the table when the view was created, the rows suppressed then, and the number of suppressed rows
        above which another search is advised; None if persons are counted.
    persons, suppressed_persons, limit_persons:
        The persons then, those with a suppressed row, and the number of these above which another search is advised;
        None if rows are counted.
    warnings:
        Messages for the data holder.
    """

    view: str
    schema: str
    table: str
    secure: bool
    replaced: bool
    generalization: dict[str, int]
    heights: dict[str, int]
    measure: str
    score: float
    optimal: bool
    rows: int
    suppressed_rows: int
    limit_rows: int | None
    warnings: tuple[str, ...]
    persons: int | None = None
    suppressed_persons: int | None = None
    limit_persons: int | None = None

    def to_dict(self) -> dict[str, Any]:
        of_persons = ("persons", "suppressed_persons", "limit_persons")
        omitted = {"warnings", *(of_persons if self.persons is None else ["limit_rows"])}
        return {name: value for name, value in asdict(self).items() if name not in omitted}


_RELATION = fragment("""
    SELECT 'table' AS kind, comment
    FROM duckdb_tables()
    WHERE database_name = current_database()
        AND lower(schema_name) = lower(:schema)
        AND lower(table_name) = lower(:name)
    UNION ALL
    SELECT 'view' AS kind, comment
    FROM duckdb_views()
    WHERE database_name = current_database()
        AND lower(schema_name) = lower(:schema)
        AND lower(view_name) = lower(:name)
""")


@dataclass(frozen=True)
class _Search:
    """The result of the search, the table in the current database, and its columns before the search."""

    search_input: SearchInput
    levels: Levels
    score: float
    optimal: bool
    base: exp.Table
    columns: dict[str, LiveColumn]


def live(space: Workspace, policy: Policy, name: str | None, progress: Progress) -> LiveView:
    _refuse(space, policy, name)
    with space.run(policy) as run:
        with source_errors():
            search = _run_search(run, policy, space.database_file(policy), progress)
            warnings = warn_of_unprotected_columns(StatementRunner(run.engine), search.search_input)
        warnings += tuple(warn_of_void_shields(search.search_input.requirements.shields, policy.privacy.k))
        with space.writing(policy) as engine, _refuse_unwritable(), engine.using_qualified(search.base.catalog):
            draft, replaced, other_views = _draft(engine, search, name)
            secure, readable = can_be_secure(engine), readable_views(engine, other_views)
            with engine.transaction():
                for statement in create_statements(draft, replaced, readable, secure):
                    engine.execute(statement)
            record = draft.record
            query = template("""
                SELECT "rows", suppressed, "limit", persons, suppressed_persons
                FROM :status AS s
                WHERE "schema" = :schema AND "view" = :view
            """)(status=status_query([record]), schema=record.schema, view=record.name)
            rows, suppressed, limit, persons, suppressed_persons = engine.rows(query)[0]
        warnings += tuple(
            Notice(
                f"the live view {view.name!r} in schema {view.schema!r} is broken: its table, or a column of it, is "
                "gone; create it again with its policy, or remove it with --drop"
            )
            for view in other_views
            if view not in readable
        )
    return LiveView(
        record.name,
        record.schema,
        search.base.name,
        secure,
        replaced is not None,
        dict(zip(policy.generalized_attributes, search.levels, strict=True)),
        {hierarchy.attribute: hierarchy.height for hierarchy in search.search_input.policy_hierarchies},
        policy.search.measure,
        search.score,
        search.optimal,
        rows,
        suppressed,
        limit if persons is None else None,
        sort_messages(warnings),
        persons,
        suppressed_persons,
        None if persons is None else limit,
    )


def live_statements(space: Workspace, policy: Policy, name: str | None) -> str:
    _refuse(space, policy, name)
    run = space.run(policy)  # left open: the statements name its tables
    with source_errors():
        search = _run_search(run, policy, space.database_file(policy), ignore_progress)
        with run.engine.using_qualified(search.base.catalog):
            draft, replaced, other_views = _draft(run.engine, search, name)
            secure, readable = can_be_secure(run.engine), readable_views(run.engine, other_views)
            statements = create_statements(draft, replaced, readable, secure)
            return "\n\n".join(f"{run.engine.render(statement)};" for statement in statements)


def drop_live(space: Workspace, policy: Policy, name: str | None) -> str:
    space.database_file(policy)
    with space.writing(policy) as engine, _refuse_unwritable(), engine.using_qualified(engine.holder.database):
        records = read_records(engine)
        record = _find_record(engine, records, policy.source.table, name)
        refuse_foreign_relations(engine, record, record.schema, record.name)
        remaining = [view for view in records if view is not record]
        readable = readable_views(engine, remaining)
        with engine.transaction():
            for statement in drop_statements(record, remaining, readable):
                engine.execute(statement)
    return record.name


def _find_record(
    engine: DuckDBEngine, records: list[ViewRecord], table_name: str | None, name: str | None
) -> ViewRecord:
    """The live view to remove. Its table may no longer exist."""
    try:
        base = _find_base(engine, table_name)
        tables: list[tuple[str | None, str]] = [(base.db, base.name)]
    except SourceError:
        if not table_name:
            raise
        parts = table_parts(table_name)
        tables = [(None, table_name), *([(parts[-2] if len(parts) > 1 else None, parts[-1])] if parts else [])]
    views = [(schema, _view_name(table, name)) for schema, table in tables]
    wanted = {(schema and schema.lower(), view.lower()) for schema, view in views}
    matching_views = [
        record
        for record in records
        if wanted & {(None, record.name.lower()), (record.schema.lower(), record.name.lower())}
    ]
    if not matching_views:
        existing = ", ".join(repr(record.name) for record in records)
        listing = f"; the live views are {existing}" if existing else ""
        raise SourceError(f"live view {views[-1][1]!r}: does not exist{listing}")
    if len(matching_views) > 1:
        schemas = ", ".join(repr(record.schema) for record in matching_views)
        raise SourceError(
            f"live views {matching_views[0].name!r} exist in schemas {schemas}; name the table with its schema"
        )
    return matching_views[0]


def _view_name(table_name: str, name: str | None) -> str:
    return name if name is not None else f"{table_name}_live"


def _refuse(space: Workspace, policy: Policy, name: str | None) -> None:
    if conflicts := list(find_conflicts(LIVE_VIEWS, collect_sections(dict(policy), connected=space.connected_section))):
        raise PolicyError(conflicts)
    space.database_file(policy)
    if name is not None and not name.strip():
        raise SourceError("the name of the view is empty; give one")
    if name is not None and name.lower() in (STATUS, DEFINITIONS):
        raise SourceError(
            f"the view cannot be called {name!r}, which is a name of the schema {SCHEMA}: use another name"
        )


def _run_search(run: Run, policy: Policy, home: Path | None, progress: Progress) -> _Search:
    """Search for the best generalization, in a database file or the current database of a live connection."""
    engine = run.engine
    base = _find_base(engine, policy.source.table)
    _refuse_ambiguous(base, home)
    columns = _read_columns(engine, base)  # first: the view shows no rows if columns are altered meanwhile
    search_input = prepare(StatementRunner(engine), policy, run.source, run.work)
    search_result = run_search(StatementRunner(engine), search_input, progress)
    assert search_result.levels is not None  # local strategies are refused
    return _Search(search_input, search_result.levels, search_result.score, search_result.optimal, base, columns)


def _read_columns(engine: DuckDBEngine, base: exp.Table) -> dict[str, LiveColumn]:
    types = engine.types(base)
    no_value = template("SELECT :column FROM :base LIMIT 0")
    values = [subquery(no_value(column=col(name), base=base)) for name in types]
    texts = engine.rows(template("SELECT :types")(types=[type_text(value) for value in values]))[0]
    return {
        name: LiveColumn(name, text, fixed_column(name, type_))
        for (name, type_), text in zip(types.items(), texts, strict=True)
    }


def _find_base(engine: DuckDBEngine, name: str | None) -> exp.Table:
    """The source table, which must be in the current database."""
    base = find_table(engine, name)
    database = engine.holder.database
    if base.catalog.lower() != database.lower():
        location = "a temporary table" if base.catalog == "temp" else f"in database {base.catalog!r}"
        raise SourceError(f"source.table: {base.name!r} is {location}: the view must be in {database!r}")
    return base


def _refuse_ambiguous(base: exp.Table, home: Path | None) -> None:
    """Refuse a database with the name of a schema in the statements."""
    database = base.catalog if home is None else home.stem
    schemas = {base.db.lower(), SCHEMA} - ({"main"} if home is not None else set())  # DuckDB calls main.duckdb main_db
    if database.lower() in schemas:
        remedy = "attach it under another name" if home is None else "rename the file"
        raise SourceError(
            f"the database is called {database!r}, like a schema in it, and DuckDB cannot distinguish them: {remedy}"
        )


def _draft(
    engine: DuckDBEngine, search: _Search, name: str | None
) -> tuple[LiveDraft, ViewRecord | None, list[ViewRecord]]:
    """The live view to create, the one that it replaces, and the other views."""
    base, records = search.base, read_records(engine)
    view_name = _view_name(base.name, name)
    replaced = find_by_name(records, base.db, view_name)
    refuse_foreign_relations(engine, replaced, base.db, view_name)
    n = replaced.number if replaced is not None else max((record.number for record in records), default=0) + 1
    # Names in a view are looked up in its own schema first; an alias of the file may have a schema's name.
    recipe, tables, contents = build_recipe(search.search_input, search.levels, table(base.name), search.columns, n)
    record = ViewRecord(n, base.db, view_name, tuple(tables))
    row = definition_row(search.search_input, search.levels, record, base, utc_now())
    other_views = [view for view in records if view is not replaced]
    return LiveDraft(record, recipe, tuple(contents), row), replaced, other_views


@contextmanager
def _refuse_unwritable() -> Iterator[None]:
    """Convert errors of the engine to a `SourceError` without values."""
    try:
        yield
    except duckdb.Error as error:
        harmless = (duckdb.CatalogException, duckdb.BinderException, duckdb.IOException, duckdb.TransactionException)
        message = str(error).split("\n", 1)[0] if isinstance(error, harmless) else "the engine refused it"
        raise SourceError(f"the live view cannot be written ({type(error).__name__}): {message}") from error


def read_records(engine: DuckDBEngine) -> list[ViewRecord]:
    definitions = table(DEFINITIONS, SCHEMA)
    try:
        engine.types(definitions)
    except duckdb.CatalogException:
        return []
    records = template("SELECT id, view_schema, view_name, tables FROM :definitions ORDER BY id")
    rows = engine.rows(records(definitions=definitions))
    return [ViewRecord(n, schema, name, tuple(tables)) for n, schema, name, tables in rows]


def find_by_name(records: Sequence[ViewRecord], schema: str, name: str) -> ViewRecord | None:
    wanted = (schema.lower(), name.lower())
    return next((record for record in records if (record.schema.lower(), record.name.lower()) == wanted), None)


def refuse_foreign_relations(engine: DuckDBEngine, record: ViewRecord | None, schema: str, name: str) -> None:
    """Refuse names of tables and views that `live` did not create; ``record`` is the live view of this name."""
    for relation_schema, relation_name, may_exist in ((schema, name, record is not None), (SCHEMA, STATUS, True)):
        for kind, comment in engine.rows(_RELATION(schema=relation_schema, name=relation_name))[:1]:
            if kind == "view" and may_exist and (comment or "").startswith(MARK):
                continue
            if relation_name == STATUS:
                raise SourceError(f"there is a {kind} {SCHEMA}.{STATUS} that sqlanon did not create: rename it")
            raise SourceError(f"there is a {kind} {name!r} that sqlanon live did not create: use another name")


def can_be_secure(engine: DuckDBEngine) -> bool:
    """Whether the current database supports secure views, as DuckDB 2 does in memory and in files of its version."""
    if int(duckdb.__version__.partition(".")[0]) < 2:
        return False
    query = template("SELECT path, tags FROM duckdb_databases() WHERE database_name = current_database()")()
    path, tags = engine.rows(query)[0]
    version = tags.get("storage_version", "")
    return path is None or (version.startswith("v") and int(version[1:].partition(".")[0]) >= 2)


def readable_views(engine: DuckDBEngine, records: Sequence[ViewRecord]) -> list[ViewRecord]:
    """The live views whose table and columns exist."""

    def is_readable(record: ViewRecord) -> bool:
        try:
            engine.types(record.status_view)
        except (duckdb.CatalogException, duckdb.BinderException):
            return False
        return True

    return [record for record in records if is_readable(record)]
