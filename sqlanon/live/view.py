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
    Known,
    LiveDraft,
    definition,
    live_recipe,
    making,
    removing,
    status_name,
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
    """A view in the private database that shows a table generalized and suppressed by its policy, whenever it is read.

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
        above which another search is advised; where persons are counted, None.
    persons, suppressed_persons, limit_persons:
        Where persons are counted, otherwise None: the persons then, those with a suppressed row, and the number of
        these above which another search is advised.
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
        left_out = {"warnings", *(of_persons if self.persons is None else ["limit_rows"])}
        return {name: value for name, value in asdict(self).items() if name not in left_out}


_KNOWN = template("SELECT id, view_schema, view_name, tables FROM :definitions ORDER BY id")
_THERE = fragment("""
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
_DATABASE = template("SELECT path, tags FROM duckdb_databases() WHERE database_name = current_database()")
_STATUS_OF = template("""
    SELECT "rows", suppressed, "limit", persons, suppressed_persons
    FROM :status AS s
    WHERE "schema" = :schema AND "view" = :view
""")
_NO_VALUE = template("SELECT :column FROM :base LIMIT 0")
_TYPES = template("SELECT :types")


@dataclass(frozen=True)
class _Searched:
    prepared: SearchInput
    levels: Levels
    score: float
    optimal: bool
    base: exp.Table
    columns: dict[str, LiveColumn]


def live(space: Workspace, policy: Policy, name: str | None, progress: Progress) -> LiveView:
    _refuse(space, policy, name)
    with space.run(policy) as run:
        with source_errors():
            searched = _search(run, policy, space.database_file(policy), progress)
            warnings = warn_of_unprotected_columns(StatementRunner(run.engine), searched.prepared)
        warnings += tuple(warn_of_void_shields(searched.prepared.requirements.shields, policy.privacy.k))
        with space.writing(policy) as engine, _writable(), engine.using_qualified(searched.base.catalog):
            draft, before, others = _draft(engine, searched, name)
            secure, counted = can_be_secure(engine), sound(engine, others)
            with engine.transaction():
                for statement in making(draft, before, counted, secure):
                    engine.execute(statement)
            rows, suppressed, limit, persons, suppressed_persons = status_of(engine, draft.known)
        warnings += tuple(Notice(_broken(view)) for view in others if view not in counted)
    return LiveView(
        draft.known.name,
        draft.known.schema,
        searched.base.name,
        secure,
        before is not None,
        dict(zip(policy.generalized_attributes, searched.levels, strict=True)),
        {one.attribute: one.height for one in searched.prepared.policy_hierarchies},
        policy.search.measure,
        searched.score,
        searched.optimal,
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
    run = space.run(policy)  # it stays: the statements name its tables
    with source_errors():
        searched = _search(run, policy, space.database_file(policy), ignore_progress)
        with run.engine.using_qualified(searched.base.catalog):
            draft, before, others = _draft(run.engine, searched, name)
            secure, counted = can_be_secure(run.engine), sound(run.engine, others)
            return "\n\n".join(f"{run.engine.render(one)};" for one in making(draft, before, counted, secure))


def drop_live(space: Workspace, policy: Policy, name: str | None) -> str:
    space.database_file(policy)
    with space.writing(policy) as engine, _writable(), engine.using_qualified(engine.holder.database):
        known = known_views(engine)
        its = _wanted(engine, known, policy.source.table, name)
        refuse_others(engine, its, its.schema, its.name)
        others = [one for one in known if one is not its]
        counted = sound(engine, others)
        with engine.transaction():
            for statement in removing(its, others, counted):
                engine.execute(statement)
    return its.name


def _wanted(engine: DuckDBEngine, known: list[Known], table_name: str | None, name: str | None) -> Known:
    """The live view to remove. Its table may be gone."""
    try:
        base = _base(engine, table_name)
        places: list[tuple[str | None, str]] = [(base.db, base.name)]
    except SourceError:
        if not table_name:
            raise
        parts = table_parts(table_name)
        places = [(None, table_name), *([(parts[-2] if len(parts) > 1 else None, parts[-1])] if parts else [])]
    names = [(schema, name if name is not None else _usual_name(own)) for schema, own in places]
    wanted = {(schema and schema.lower(), own.lower()) for schema, own in names}
    found = [one for one in known if wanted & {(place, one.name.lower()) for place in (None, one.schema.lower())}]
    if not found:
        there = ", ".join(repr(one.name) for one in known)
        raise SourceError(f"there is no live view {names[-1][1]!r}" + (f"; there is: {there}" if there else ""))
    if len(found) > 1:
        schemas = ", ".join(repr(one.schema) for one in found)
        raise SourceError(
            f"there are live views {found[0].name!r} in schemas {schemas}: name the table with its schema"
        )
    return found[0]


def _broken(one: Known) -> str:
    return (
        f"the live view {one.name!r} in schema {one.schema!r} is broken: its table, or a column of it, is gone; "
        "create it again with its policy, or remove it with --drop"
    )


def _refuse(space: Workspace, policy: Policy, name: str | None) -> None:
    if found := list(find_conflicts(LIVE_VIEWS, collect_sections(dict(policy), connected=space.connected_section))):
        raise PolicyError(found)
    space.database_file(policy)
    if name is not None and not name.strip():
        raise SourceError("the name of the view is empty")
    if name is not None and name.lower() in (STATUS, DEFINITIONS):
        raise SourceError(
            f"the view cannot be called {name!r}, which is a name of the schema {SCHEMA}: use another name"
        )


def _search(run: Run, policy: Policy, home: Path | None, progress: Progress) -> _Searched:
    """Search for the best generalization, in a database file or the current database of a live connection."""
    engine = run.engine
    base = _base(engine, policy.source.table)
    _refuse_ambiguous(base, home)
    columns = _columns(engine, base)  # before all else: of what is altered meanwhile the view shows nothing
    prepared = prepare(StatementRunner(engine), policy, run.source, run.work)
    found = run_search(StatementRunner(engine), prepared, progress)
    assert found.levels is not None  # strategies below the full domain are refused
    return _Searched(prepared, found.levels, found.score, found.optimal, base, columns)


def _columns(engine: DuckDBEngine, base: exp.Table) -> dict[str, LiveColumn]:
    types = engine.types(base)
    none = [subquery(_NO_VALUE(column=col(name), base=base)) for name in types]
    texts = engine.rows(_TYPES(types=[type_text(one) for one in none]))[0]
    return {
        name: LiveColumn(name, type_text_, fixed_column(name, type_))
        for (name, type_), type_text_ in zip(types.items(), texts, strict=True)
    }


def _base(engine: DuckDBEngine, name: str | None) -> exp.Table:
    """The private table, which must be in the current database."""
    base = find_table(engine, name)
    database = engine.holder.database
    if base.catalog.lower() != database.lower():
        what = "a temporary table" if base.catalog == "temp" else f"in database {base.catalog!r}"
        raise SourceError(f"source.table: {base.name!r} is {what}: the view must be in {database!r}")
    return base


def _refuse_ambiguous(base: exp.Table, home: Path | None) -> None:
    """Refuse a database with the name of a schema in the statements."""
    called = base.catalog if home is None else home.stem
    schemas = {base.db.lower(), SCHEMA} - ({"main"} if home is not None else set())  # main.duckdb it calls main_db
    if called.lower() in schemas:
        remedy = "attach it under another name" if home is None else "rename the file"
        raise SourceError(
            f"the database is called {called!r}, like a schema in it, and DuckDB cannot distinguish them: {remedy}"
        )


def _usual_name(table_name: str) -> str:
    return f"{table_name}_live"


def _draft(engine: DuckDBEngine, searched: _Searched, name: str | None) -> tuple[LiveDraft, Known | None, list[Known]]:
    base, known = searched.base, known_views(engine)
    wanted = name if name is not None else _usual_name(base.name)
    before = named_so(known, base.db, wanted)
    refuse_others(engine, before, base.db, wanted)
    n = before.number if before is not None else max((one.number for one in known), default=0) + 1
    # Its own schema is where the names in a view are looked up first; an alias of the file may have a schema's name.
    recipe, tables, contents = live_recipe(searched.prepared, searched.levels, table(base.name), searched.columns, n)
    its = Known(n, base.db, wanted, tuple(tables))
    row = definition(searched.prepared, searched.levels, its, base, utc_now())
    return LiveDraft(its, recipe, tuple(contents), row), before, [one for one in known if one is not before]


@contextmanager
def _writable() -> Iterator[None]:
    """Convert errors of the engine to a `SourceError` without values."""
    try:
        yield
    except duckdb.Error as error:
        shown = (duckdb.CatalogException, duckdb.BinderException, duckdb.IOException, duckdb.TransactionException)
        message = str(error).split("\n", 1)[0] if isinstance(error, shown) else "the engine refused it"
        raise SourceError(f"the live view cannot be written ({type(error).__name__}): {message}") from error


def known_views(engine: DuckDBEngine) -> list[Known]:
    definitions = table(DEFINITIONS, SCHEMA)
    try:
        engine.types(definitions)
    except duckdb.CatalogException:
        return []
    found = engine.rows(_KNOWN(definitions=definitions))
    return [Known(n, schema, name, tuple(tables)) for n, schema, name, tables in found]


def named_so(known: Sequence[Known], schema: str, name: str) -> Known | None:
    wanted = (schema.lower(), name.lower())
    return next((one for one in known if (one.schema.lower(), one.name.lower()) == wanted), None)


def refuse_others(engine: DuckDBEngine, before: Known | None, schema: str, name: str) -> None:
    found = _there(engine, schema, name)
    if found is not None and (before is None or not _is_ours(found)):
        raise SourceError(f"there is a {found[0]} {name!r} that sqlanon live did not create: use another name")
    status = _there(engine, SCHEMA, STATUS)
    if status is not None and not _is_ours(status):
        raise SourceError(f"there is a {status[0]} {SCHEMA}.{STATUS} that sqlanon did not create: rename it")


def _is_ours(found: tuple[str, str | None]) -> bool:
    kind, comment = found
    return kind == "view" and (comment or "").startswith(MARK)


def _there(engine: DuckDBEngine, schema: str, name: str) -> tuple[str, str | None] | None:
    rows = engine.rows(_THERE(schema=schema, name=name))
    return rows[0] if rows else None


def can_be_secure(engine: DuckDBEngine) -> bool:
    """Whether the current database can have secure views, as DuckDB 2 can in memory and in files of its version."""
    if int(duckdb.__version__.partition(".")[0]) < 2:
        return False
    path, tags = engine.rows(_DATABASE())[0]
    version = tags.get("storage_version", "")
    return path is None or (version.startswith("v") and int(version[1:].partition(".")[0]) >= 2)


def status_of(engine: DuckDBEngine, known: Known) -> tuple[int, int, int, int | None, int | None]:
    """The current rows of the table, the suppressed ones, the limit, and where persons are counted the persons and the
    suppressed ones."""
    query = _STATUS_OF(status=status_query([known]), schema=known.schema, view=known.name)
    rows, suppressed, limit, persons, suppressed_persons = engine.rows(query)[0]
    return rows, suppressed, limit, persons, suppressed_persons


def sound(engine: DuckDBEngine, known: Sequence[Known]) -> list[Known]:
    """The live views that can be read: their table and its columns exist."""
    return [one for one in known if _can_be_read(engine, table(status_name(one), SCHEMA))]


def _can_be_read(engine: DuckDBEngine, view: exp.Table) -> bool:
    try:
        engine.types(view)
    except (duckdb.CatalogException, duckdb.BinderException):
        return False
    return True
