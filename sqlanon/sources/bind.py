"""Where the private table comes from: bound to one relation of the engine that the queries can name.

A DuckDB file is attached read-only; Parquet is scanned in place; CSV and Arrow streams are read once, into the
run's private work database; a live connection is used as it is. The relation is free of what would make two
values that a reader can tell apart look equal, or carry more than the values that it shows: ENUM
dictionaries, collations, the sign of a floating-point zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.policy import SourceSection
from sqlanon.queries.names import (
    col,
    create_table,
    create_view,
    ident,
    named,
    select,
    star,
    table,
    text,
)
from sqlanon.sources.csv import create_from_csv
from sqlanon.sources.parquet import parquet_columns
from sqlanon.sources.plain import plain_column, plain_type, refuse_ambiguous

CSV_SUFFIXES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".csv.zst")


@dataclass(frozen=True)
class Source:
    """The private table, bound.

    Attributes
    ----------
    relation:
        What queries select from.
    columns:
        Name and type text of each column, in order.
    kind:
        ``table``, ``query`` or ``files``: all that a manifest may say of it.
    """

    relation: exp.Table
    columns: Mapping[str, str]
    kind: str


def bind_source(
    engine: DuckDBEngine,
    section: SourceSection,
    work: exp.Table,
    copied: exp.Table | None = None,
    text_columns: frozenset[str] = frozenset(),
) -> Source:
    """Bind the policy's source.

    Parameters
    ----------
    engine:
        Where it is; a database file of the policy is attached already, and in use.
    section:
        The policy's ``[source]``.
    work:
        The name of the relation to make, in the work database; ``NAME_read`` is what it reads from.
    copied:
        An Arrow table or stream that was copied by `copy_arrow`, instead.
    text_columns:
        Columns that a CSV file must not turn into numbers, in lower case.

    Raises
    ------
    SourceError
        It cannot be found or read, or names of columns differ in case only.
    """
    try:
        if copied is not None:
            kind, found = "table", copied
        elif section.files:
            kind, found = "files", _from_files(engine, section.files, _beside(work, "read"), text_columns)
        elif section.query is not None:
            kind, found = "query", _from_query(engine, section.query, _beside(work, "read"))
        else:
            kind, found = "table", find_table(engine, section.table)
        return _plain(engine, found, work, kind)
    except duckdb.Error as error:
        raise SourceError(f"the source cannot be read ({type(error).__name__}): {_first_line(error)}") from error


def find_table(engine: DuckDBEngine, name: str | None) -> exp.Table:
    """A table or view by the name that the policy gives: as it stands, else with its schema before a dot."""
    if not name:
        raise SourceError("source: say which table: table = ..., query = ... or files = ...")
    candidates = [table(name)]
    try:
        parsed = exp.to_table(name, dialect=engine.dialect)
        candidates.append(table(parsed.name, parsed.db or None, parsed.catalog or None))
    except SqlglotError:
        pass
    for candidate in candidates:
        try:
            engine.types(candidate)
        except (duckdb.CatalogException, duckdb.BinderException):
            continue
        return candidate
    raise SourceError(f"source.table: there is no table or view {name!r}{_known_tables(engine)}")


def _known_tables(engine: DuckDBEngine) -> str:
    names = engine.rows(
        exp.select(ident("table_name"))
        .from_(table("tables", "information_schema"))
        .where(exp.EQ(this=col("table_catalog"), expression=exp.func("current_database")))
        .order_by(ident("table_name"))
        .limit(10)
    )
    return f"; there is: {', '.join(name for (name,) in names)}" if names else ""


def copy_arrow(engine: DuckDBEngine, arrow: Any, target: exp.Table) -> exp.Table:
    """Copy an Arrow table or stream into a private table: a stream can be read only once.

    Raises
    ------
    SourceError
        It is neither, or names of columns differ in case only.
    """
    if not hasattr(arrow, "schema"):
        raise SourceError(
            f"a {type(arrow).__name__} is no source: give a path, a duckdb connection, an Arrow table or stream"
        )
    refuse_ambiguous(arrow.schema.names, "the Arrow source")
    name = f"sqlanon_arrow_{id(arrow)}"
    try:
        engine.connection.register(name, arrow)
        engine.execute(create_table(target, star(table(name))))
        engine.connection.unregister(name)
    except duckdb.Error as error:
        raise SourceError(f"the Arrow source cannot be read ({type(error).__name__})") from error
    return target


def _from_query(engine: DuckDBEngine, query: str, view: exp.Table) -> exp.Table:
    """A view over the holder's query, which must be a single SELECT: the engine's own parser says so."""
    try:
        statements = engine.connection.extract_statements(query)
    except duckdb.ParserException as error:
        raise SourceError(f"source.query: {_first_line(error)}") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise SourceError("source.query: must be one SELECT statement")
    # The holder's SQL stays as it is: parsing and printing it again could change what it says.
    engine.execute(create_view(view, exp.Var(this=query.strip().rstrip(";"))))
    return view


def _from_files(
    engine: DuckDBEngine, files: tuple[str, ...], target: exp.Table, text_columns: frozenset[str]
) -> exp.Table:
    paths = [path for (path,) in engine.rows(_glob(files))] if files else []
    if not paths:
        raise SourceError(f"source.files: no file matches {', '.join(files)}")
    suffixes = {_kind(path) for path in paths}
    if len(suffixes) != 1:
        raise SourceError("source.files: give files of one kind: Parquet or CSV")
    if suffixes == {"csv"}:
        return create_from_csv(engine, paths, target, text_columns)
    for path in paths:
        refuse_ambiguous(parquet_columns(engine, path), Path(path).name)
    scan = exp.Anonymous(this="read_parquet", expressions=[exp.Array(expressions=[text(path) for path in paths])])
    engine.execute(create_view(target, star(exp.Table(this=scan))))
    return target


def _glob(files: tuple[str, ...]) -> exp.Query:
    """All paths that match, sorted, each once."""
    parts = [
        select([col("file")], exp.Table(this=exp.Anonymous(this="glob", expressions=[text(pattern)])))
        for pattern in files
    ]
    query = parts[0] if len(parts) == 1 else exp.union(*parts, distinct=True)
    return exp.select(col("file")).distinct().from_(query.subquery("g")).order_by(col("file"))


def _kind(path: str) -> str:
    lower = path.lower()
    if lower.endswith((".parquet", ".pq")):
        return "parquet"
    if lower.endswith(CSV_SUFFIXES):
        return "csv"
    raise SourceError(f"source.files: {Path(path).name}: neither Parquet nor CSV by its name")


def _plain(engine: DuckDBEngine, found: exp.Table, work: exp.Table, kind: str) -> Source:
    """A view over what was found, with every column plain."""
    types = engine.types(found)
    refuse_ambiguous(list(types), "the source")
    output: list[exp.Expr] = [named(plain_column(name, type_), name) for name, type_ in types.items()]
    engine.execute(create_view(work, select(output, found.copy())))
    return Source(work, {name: plain_type(type_) for name, type_ in types.items()}, kind)


def _beside(work: exp.Table, suffix: str) -> exp.Table:
    return table(f"{work.name}_{suffix}", work.db, work.catalog)


def _first_line(error: duckdb.Error) -> str:
    """What the engine says, without what it quotes from the data."""
    if isinstance(error, (duckdb.ConversionException, duckdb.InvalidInputException)):
        return "a value does not have the type of its column"
    return str(error).split("\n", 1)[0]
