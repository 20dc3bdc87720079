"""Check queries and views of the data holder, whose names must mean the same as on the holder's own connection.

An engine looks names up among the system's first (`DuckDBEngine.follow_search_path`). So the holder's queries and views
mean the same there, unless the holder's connection has names of the system, temporary tables or settings of its own.
Then the holder's connection reads them once, by a statement that calls no function, into a table of the work database.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import duckdb
from sqlglot import exp, parse_one
from sqlglot.dialects import DuckDB
from sqlglot.errors import SqlglotError, TokenError

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.sources.relation import describe_engine_error
from sqlanon.sources.source import WorkNames
from sqlanon.support.expressions import create_table, ident, select_star, table, template

_SHADOWING_SCHEMAS = template("""
    WITH named AS (
        SELECT database_name, schema_name, internal, 'function' AS kind, lower(function_name) AS name
        FROM duckdb_functions()
        UNION ALL SELECT database_name, schema_name, internal, 'type', lower(type_name) FROM duckdb_types()
        UNION ALL SELECT database_name, schema_name, internal, 'relation', lower(table_name) FROM duckdb_tables()
        UNION ALL SELECT database_name, schema_name, internal, 'relation', lower(view_name) FROM duckdb_views()
    ), system AS (SELECT kind, name FROM named WHERE database_name = 'system')
    SELECT DISTINCT schema_name
    FROM named AS candidate SEMI JOIN system ON system.kind = candidate.kind AND system.name = candidate.name
    WHERE NOT candidate.internal
""")
"""The schemas with a function, type or relation that has the name of one of the system's."""

_SESSION_STATE = re.compile(r"current_(database|catalog|schema|setting)|search_path", re.IGNORECASE)


def refuse_unless_select(query: str, dialect: str, where: str) -> None:
    """Refuse a query that is not one SELECT, if it can be parsed."""
    try:
        is_one = isinstance(parse_one(query, dialect=dialect), exp.Query)
    except SqlglotError:
        raise SourceError(
            f"source.query: cannot be parsed as one SELECT statement; make a view of it in {where}"
        ) from None
    if not is_one:
        raise SourceError("source.query: must be one SELECT statement")


def require_one_select(engine: DuckDBEngine, query: str) -> str:
    """Require a query to be a single SELECT for the engine's own parser.

    The query is returned unchanged: parsing and printing it again could change its meaning.
    """
    try:
        statements = engine.connection.extract_statements(query)
    except duckdb.ParserException as error:
        raise SourceError(f"source.query: {describe_engine_error(error)}") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise SourceError("source.query: must be one SELECT statement")
    return query.strip().rstrip(";")


def verbatim_query(query: str) -> exp.Subquery:
    """A query verbatim: parsing and printing it again could change its meaning. It may end with a comment."""
    statement = exp.Var(this=f"{query.strip().rstrip(';')}\n")
    return exp.Subquery(this=statement, alias=exp.TableAlias(this=ident("query")))


def has_same_meaning(engine: DuckDBEngine, query: str = "") -> bool:
    """Whether queries and views of the holder mean the same to an engine as on the holder's connection."""
    if engine.holder is engine:
        return True
    has_other_settings = engine.holder.settings() != engine.settings()
    if has_other_settings or _SESSION_STATE.search(query) or list_temporary_objects(engine.holder):
        return False
    return set(schemas_in_use(engine.holder)).isdisjoint(schema for (schema,) in engine.rows(_SHADOWING_SCHEMAS()))


def schemas_in_use(holder: DuckDBEngine) -> list[str]:
    """The search path of a connection."""
    return list(holder.rows(template("SELECT system.main.current_schemas(TRUE)")())[0][0])


def list_temporary_objects(holder: DuckDBEngine) -> set[str]:
    """The names of temporary objects of a connection, in lower case."""
    query = template("""
        WITH named AS (
            SELECT database_name, internal, table_name AS name FROM system.main.duckdb_tables()
            UNION ALL SELECT database_name, internal, view_name FROM system.main.duckdb_views()
            UNION ALL SELECT database_name, internal, function_name FROM system.main.duckdb_functions()
            UNION ALL SELECT database_name, internal, type_name FROM system.main.duckdb_types()
        )
        SELECT name FROM named WHERE database_name = 'temp' AND NOT internal
    """)
    return {name.lower() for (name,) in holder.rows(query())}


def read_by_holder(engine: DuckDBEngine, query: str, work_names: WorkNames) -> exp.Table:
    """Copy a query, or only its columns, on the holder's connection."""
    rows = select_star(verbatim_query(query))
    rows = rows if work_names.reads_rows else rows.limit(0, copy=False)
    holder = engine.holder
    with holder.setting("python_enable_replacements", False), holder.setting("default_collation", ""):
        holder.execute(create_table(work_names.table.copy(), rows))
    return work_names.table


def bring_temporary(engine: DuckDBEngine, names: list[str], schema: str, database: str) -> None:
    """Copy temporary tables and views of the holder's connection to a schema that comes first in the search path."""
    temporary = list_temporary_objects(engine.holder) if names else set[str]()
    for name in names:
        if name.lower() in temporary:
            engine.holder.execute(create_table(table(name, schema, database), select_star(table(name, "main", "temp"))))


def refuse_functions(engine: DuckDBEngine) -> None:
    """Refuse functions that a user registered under names of the system: they replace the system's functions."""
    extensions, system_functions = _list_functions_of_new_engine()
    user_extensions, functions = _list_functions(engine)
    if user_extensions - extensions:  # their functions cannot be distinguished from the user's
        return
    names = {name for name, _ in system_functions}
    if replaced := sorted({name for name, _ in functions - system_functions if name in names}):
        raise SourceError(
            f"the connection has functions with the names of DuckDB's own: {', '.join(replaced)}; register them under "
            "other names, or connect to the database file"
        )


@cache
def _list_functions_of_new_engine() -> tuple[set[str], set[tuple[str, str]]]:
    with duckdb.connect(":memory:") as connection:
        return _list_functions(DuckDBEngine(connection))


def _list_functions(engine: DuckDBEngine) -> tuple[set[str], set[tuple[str, str]]]:
    """The loaded extensions, and the system's functions with the types of their parameters."""
    extensions = template("SELECT extension_name FROM duckdb_extensions() WHERE loaded")
    functions = template("""
        SELECT function_name, parameter_types FROM duckdb_functions() WHERE database_name = 'system'
    """)
    return (
        {name for (name,) in engine.rows(extensions())},
        {(name, str(types)) for name, types in engine.rows(functions())},
    )


_READERS = ("read_csv", "read_csv_auto")
_SCANS = (*_READERS, "sniff_csv")
_ASSIGNS = ("EQ", "COLON_EQ", "FARROW")


def refuse_guessed_csv(engine: DuckDBEngine, relation: str | exp.Table) -> None:
    """Refuse a query, table or view that makes DuckDB guess how a CSV file is written.

    DuckDB may read all columns as one if a line has another number of fields. A reader with explicit options
    refuses such lines itself.
    """
    query = relation if isinstance(relation, str) else engine.sql(select_star(relation))
    plan = engine.rows(exp.Command(this="EXPLAIN", expression=f"(FORMAT JSON) {query}"))[0][1]
    scans = [node["name"].strip().lower() for node in _walk_nodes(json.loads(plan)) if "name" in node]
    explicit = _count_explicit_readers(relation) if isinstance(relation, str) else 0
    if sum(name in _SCANS for name in scans) > explicit:
        key = "query" if isinstance(relation, str) else "table"
        raise SourceError(
            f"source.{key}: reads a CSV file, and DuckDB would guess how it is written: "
            "one wrong line, and all columns may become one. Give the file as files = ... under [source], or load it "
            "into a table; or say in a query how it is written: read_csv(..., auto_detect = false, delim = ..., "
            "columns = {...})"
        )


def _walk_nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        tree = [*tree.values()]
    for part in tree if isinstance(tree, list) else ():
        yield from _walk_nodes(part)


def _count_explicit_readers(query: str) -> int:
    """Count the CSV readers with explicit options in a query; 0 if any reader lacks them.

    >>> _count_explicit_readers("FROM read_csv('a', auto_detect = false), read_csv('b', AUTO_DETECT := FALSE)")
    2
    >>> _count_explicit_readers("FROM read_csv('a', auto_detect = false), read_csv('b')")
    0
    """
    try:
        tokens = DuckDB().tokenize(query)
    except TokenError:  # DuckDB accepts some spellings that sqlglot does not
        return 0
    texts = [token.text.lower() for token in tokens]
    explicit = []
    for i, text in enumerate(texts):
        if text in _READERS and texts[i + 1 : i + 2] == ["("]:
            call = range(i + 2, _find_call_end(texts, i + 1))
            explicit.append(
                any(
                    texts[j] == "auto_detect" and tokens[j + 1].token_type.name in _ASSIGNS and texts[j + 2] == "false"
                    for j in call[:-2]
                )
            )
    return len(explicit) if all(explicit) else 0


def _find_call_end(texts: list[str], start: int) -> int:
    """The token that closes the parenthesis opened at ``start``."""
    depth = 0
    for i in range(start, len(texts)):
        depth += (texts[i] == "(") - (texts[i] == ")")
        if depth == 0:
            return i
    return len(texts)
