"""What names and queries of the data holder mean: the same to an engine of ours as on the holder's own connection.

An engine looks names up among the system's first (`DuckDBEngine.follow_search_path`). So the holder's queries and views
mean the same there, unless the holder's connection has names of the system, temporary tables or settings of its own.
Then the holder's connection reads them once, by a statement that calls no function, to a private table.
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
from sqlanon.support.expressions import anonymous, col, create_table, ident, star, table, template

_SHADOWS = template("""
    WITH named AS (
        SELECT database_name, schema_name, internal, 'function' AS kind, lower(function_name) AS name
        FROM duckdb_functions()
        UNION ALL SELECT database_name, schema_name, internal, 'type', lower(type_name) FROM duckdb_types()
        UNION ALL SELECT database_name, schema_name, internal, 'relation', lower(table_name) FROM duckdb_tables()
        UNION ALL SELECT database_name, schema_name, internal, 'relation', lower(view_name) FROM duckdb_views()
    ), system AS (SELECT kind, name FROM named WHERE database_name = 'system')
    SELECT DISTINCT schema_name
    FROM named AS own SEMI JOIN system ON system.kind = own.kind AND system.name = own.name
    WHERE NOT own.internal
""")
"""The schemas that have a function, type or relation of a name that the system has, too."""

_SCHEMAS_IN_USE = template("SELECT system.main.current_schemas(TRUE)")
_TEMPORARY_OBJECTS = template("SELECT :name FROM :objects WHERE database_name = 'temp' AND NOT internal")
_LOADED_EXTENSIONS = template("SELECT extension_name FROM duckdb_extensions() WHERE loaded")
_SYSTEM_FUNCTIONS = template("""
    SELECT function_name, parameter_types FROM duckdb_functions() WHERE database_name = 'system'
""")

_OF_THE_SESSION = re.compile(r"current_(database|catalog|schema|setting)|search_path", re.IGNORECASE)

_TEMPORARY = {"duckdb_tables": "table", "duckdb_views": "view", "duckdb_functions": "function", "duckdb_types": "type"}


def refuse_unless_select(query: str, dialect: str, where: str) -> None:
    """Refuse a holder's query that is not one SELECT, as far as it can be read here."""
    try:
        is_one = isinstance(parse_one(query, dialect=dialect), exp.Query)
    except SqlglotError:
        raise SourceError(
            f"source.query: cannot be parsed as one SELECT statement; make a view of it in {where}"
        ) from None
    if not is_one:
        raise SourceError("source.query: must be one SELECT statement")


def require_one_select(engine: DuckDBEngine, query: str) -> str:
    """The holder's query, which must be a single SELECT: the engine's own parser says so.

    It stays as it is: parsing and printing it again could change what it says.
    """
    try:
        statements = engine.connection.extract_statements(query)
    except duckdb.ParserException as error:
        raise SourceError(f"source.query: {describe_engine_error(error)}") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise SourceError("source.query: must be one SELECT statement")
    return query.strip().rstrip(";")


def verbatim_query(query: str) -> exp.Subquery:
    """The holder's own SQL: reading and writing it again could change what it says. A comment may end it."""
    statement = exp.Var(this=f"{query.strip().rstrip(';')}\n")
    return exp.Subquery(this=statement, alias=exp.TableAlias(this=ident("query")))


def has_same_meaning(engine: DuckDBEngine, query: str = "") -> bool:
    """Whether the holder's queries and views mean the same to an engine as on the holder's connection."""
    if engine.holder is engine:
        return True
    if (
        _OF_THE_SESSION.search(query)
        or engine.holder.settings() != engine.settings()
        or list_temporary_objects(engine.holder)
    ):
        return False
    return set(schemas_in_use(engine.holder)).isdisjoint(schema for (schema,) in engine.rows(_SHADOWS()))


def schemas_in_use(holder: DuckDBEngine) -> list[str]:
    """The schemas in which a connection looks names up, in order."""
    return list(holder.rows(_SCHEMAS_IN_USE())[0][0])


def list_temporary_objects(holder: DuckDBEngine) -> set[str]:
    """The temporary objects of a connection, by name in lower case."""
    found = set()
    for function, kind in _TEMPORARY.items():
        objects = exp.Table(this=anonymous(f"system.main.{function}"))
        found |= {own.lower() for (own,) in holder.rows(_TEMPORARY_OBJECTS(name=col(f"{kind}_name"), objects=objects))}
    return found


def read_by_holder(engine: DuckDBEngine, query: str, place: WorkNames) -> exp.Table:
    """Have the holder's connection read a query, or of its columns alone, to the place's table."""
    rows = star(verbatim_query(query)) if place.reads_rows else star(verbatim_query(query)).limit(0, copy=False)
    holder = engine.holder
    with holder.setting("python_enable_replacements", False), holder.setting("default_collation", ""):
        holder.execute(create_table(place.table.copy(), rows))
    return place.table


def bring_temporary(engine: DuckDBEngine, names: list[str], schema: str, database: str) -> None:
    """Copy temporary tables and views of the holder's connection to a schema of ours, which comes first in the path."""
    there = list_temporary_objects(engine.holder) if names else set[str]()
    for name in names:
        if name.lower() in there:
            engine.holder.execute(create_table(table(name, schema, database), star(table(name, "main", "temp"))))


def refuse_functions(engine: DuckDBEngine) -> None:
    """Refuse functions that a user registered under a name of the system's: they are the system's own from then on."""
    extensions, known = _functions_of_a_new_engine()
    own_extensions, own = _functions(engine)
    if own_extensions - extensions:  # theirs cannot be told from the user's
        return
    names = {name for name, _ in known}
    if found := sorted({name for name, _ in own - known if name in names}):
        raise SourceError(
            f"the connection has functions with the names of DuckDB's own: {', '.join(found)}; register them under "
            "other names, or connect to the database file"
        )


@cache
def _functions_of_a_new_engine() -> tuple[set[str], set[tuple[str, str]]]:
    with duckdb.connect(":memory:") as connection:
        return _functions(DuckDBEngine(connection))


def _functions(engine: DuckDBEngine) -> tuple[set[str], set[tuple[str, str]]]:
    """The extensions that are loaded, and the system's functions: name and types of parameters."""
    return (
        {name for (name,) in engine.rows(_LOADED_EXTENSIONS())},
        {(name, str(types)) for name, types in engine.rows(_SYSTEM_FUNCTIONS())},
    )


_READERS = ("read_csv", "read_csv_auto")
_SCANS = (*_READERS, "sniff_csv")
_ASSIGNS = ("EQ", "COLON_EQ", "FARROW")


def refuse_guessed_csv(engine: DuckDBEngine, found: str | exp.Table) -> None:
    """Refuse a query, or a table or view, that has DuckDB guess how a CSV file is written."""
    scans = [node["name"].strip().lower() for node in _nodes(_plan(engine, found)) if "name" in node]
    told = _count_told_readers(found) if isinstance(found, str) else 0
    if sum(name in _SCANS for name in scans) > told:
        key = "query" if isinstance(found, str) else "table"
        raise SourceError(
            f"source.{key}: reads a CSV file, and DuckDB would guess how it is written: "
            "one wrong line, and all columns may become one. Give the file as files = ... under [source], or load it "
            "into a table; or say in a query how it is written: read_csv(..., auto_detect = false, delim = ..., "
            "columns = {...})"
        )


def _plan(engine: DuckDBEngine, found: str | exp.Table) -> Any:
    query = found if isinstance(found, str) else engine.sql(star(found))
    statement = exp.Command(this="EXPLAIN", expression=f"(FORMAT JSON) {query}")
    return json.loads(engine.rows(statement)[0][1])


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _nodes(part)


def _count_told_readers(query: str) -> int:
    """How many readers of CSV files in a query are told how the files are written; 0 where one is not.

    >>> _count_told_readers("FROM read_csv('a', auto_detect = false), read_csv('b', AUTO_DETECT := FALSE)")
    2
    >>> _count_told_readers("FROM read_csv('a', auto_detect = false), read_csv('b')")
    0
    """
    try:
        tokens = DuckDB().tokenize(query)
    except TokenError:  # DuckDB knows spellings that sqlglot does not: then no reader is known to be told
        return 0
    texts = [token.text.lower() for token in tokens]
    told = []
    for i, text in enumerate(texts):
        if text in _READERS and texts[i + 1 : i + 2] == ["("]:
            call = range(i + 2, _end_of_call(texts, i + 1))
            told.append(
                any(
                    texts[j] == "auto_detect" and tokens[j + 1].token_type.name in _ASSIGNS and texts[j + 2] == "false"
                    for j in call[:-2]
                )
            )
    return len(told) if all(told) else 0


def _end_of_call(texts: list[str], start: int) -> int:
    """Where the parenthesis that opens at a token is closed."""
    depth = 0
    for i in range(start, len(texts)):
        depth += (texts[i] == "(") - (texts[i] == ")")
        if depth == 0:
            return i
    return len(texts)
