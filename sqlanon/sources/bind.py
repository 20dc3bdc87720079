"""Where the private table comes from: bound to one relation of the engine that the queries can name.

A DuckDB file is attached read-only; Parquet is scanned in place; CSV and Arrow streams are read once, into the
private work database; a live connection is used as it is. Values that the engine takes for equal have one form in the
relation (`sources.plain`), and it carries nothing but its values: no dictionaries of ENUMs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.expressions import (
    anonymous,
    col,
    create_temporary_view,
    drop_view,
    ident,
    named,
    read_parquet,
    select,
    star,
    table,
    text,
)
from sqlanon.policy import PopulationSection, SourceSection, table_parts
from sqlanon.sources.bound import Place, Source
from sqlanon.sources.csv import copy_csv, scan_csv
from sqlanon.sources.parquet import parquet_columns
from sqlanon.sources.plain import plain_column, refuse_ambiguous
from sqlanon.sources.scope import is_read_alike, read_by_holder

_ENDINGS = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz", ".csv.zst"),
}


def bind_source(
    engine: DuckDBEngine,
    section: SourceSection | PopulationSection,
    place: Place,
    copied: exp.Table | None = None,
    text_columns: Collection[str] = (),
    wanted: Collection[str] = (),
) -> Source:
    """Bind the policy's source."""
    if section.query is not None and (copied is not None or section.files):
        raise SourceError("source.query: is for a database, and this source is files or Arrow: leave it out")
    with readable():
        paths: list[str] = []
        more: Mapping[str, str] = {}
        if copied is not None:
            found = copied
        elif section.files:
            paths = _paths(engine, section.files)
            found, more = _from_files(engine, paths, place, text_columns, wanted)
        elif section.query is not None:
            found = _from_query(engine, section.query, place)
        else:
            found = _from_table(engine, section.table, place)
        view, columns = _plain(engine, found, place.view("source"))
        columns = {name: columns.get(name, type_) for name, type_ in more.items()} or columns
        in_place = copied is not None or bool(paths) or _is_table(engine, found)
        return Source(view, columns, tuple(Path(path) for path in paths), in_place)


def _is_table(engine: DuckDBEngine, found: exp.Table, plain: bool = False) -> bool:
    """Whether a relation is a table, and no view; a plain one has no columns that are worked out when it is read."""
    names = {"database_name": found.catalog, "schema_name": found.db, "table_name": found.name}
    named_so = [exp.Lower(this=col(column)).eq(exp.Lower(this=text(name))) for column, name in names.items()]
    tables = exp.Table(this=exp.Anonymous(this="duckdb_tables", expressions=[]))
    made = engine.rows(select([col("sql")], tables).where(*named_so, copy=False))
    return bool(made) and not (plain and "GENERATED ALWAYS" in (made[0][0] or "").upper())


@contextmanager
def readable() -> Iterator[None]:
    """Errors of the engine become a `SourceError` that quotes nothing of the data."""
    try:
        yield
    except duckdb.Error as error:
        raise SourceError(f"the source cannot be read ({type(error).__name__}): {_without_values(error)}") from error


def unbind_source(engine: DuckDBEngine, place: Place) -> None:
    """Drop the views of a source."""
    for suffix in ("recoded", "rows", "source", "query", "files"):
        engine.execute(drop_view(place.view(suffix)))


def file_kind(path: str) -> str | None:
    """``parquet`` or ``csv`` by a file's ending, else None.

    >>> file_kind("a.CSV.gz"), file_kind("hospital.duckdb")
    ('csv', None)
    """
    return next((kind for kind, endings in _ENDINGS.items() if path.lower().endswith(endings)), None)


def find_table(engine: DuckDBEngine, name: str | None) -> exp.Table:
    """A table or view by the name that the policy gives, on the holder's connection: as it stands, else with its schema
    before a dot.

    The name that is found is full: it means the same table whatever database is in use later.
    """
    if not name:
        raise SourceError(f"source: say which table: table = ..., query = ... or files = ...{_known_tables(engine)}")
    holder, database = engine.holder, engine.holder.database
    schemas = holder.rows(exp.Select(expressions=[anonymous("system.main.current_schemas", exp.true())]))[0][0]
    here = [("main", "temp"), *((schema, database) for schema in dict.fromkeys(schemas))]
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


def _known_tables(engine: DuckDBEngine) -> str:
    names = engine.rows(
        exp.select(col("table_schema"), col("table_name"))
        .from_(table("tables", "information_schema"))
        .where(col("table_catalog").eq(text(engine.holder.database)))
        .order_by(col("table_schema"), col("table_name"))
        .limit(10)
    )
    shown = [name if schema == "main" else f"{schema}.{name}" for schema, name in names]
    return f"; there is: {', '.join(shown)}" if shown else ""


def copy_arrow(engine: DuckDBEngine, arrow: Any, target: exp.Table) -> exp.Table:
    """Copy an Arrow table or stream into a private table: a stream can be read only once."""
    if not hasattr(arrow, "schema"):
        raise SourceError(
            f"a {type(arrow).__name__} is no source: give a path, a duckdb connection, an Arrow table or stream"
        )
    refuse_ambiguous(arrow.schema.names, "the Arrow source")
    with readable():
        engine.copy_arrow(target, arrow)
    return target


def _from_query(engine: DuckDBEngine, query: str, place: Place) -> exp.Table:
    """The holder's query, which must be a single SELECT: the engine's own parser says so."""
    try:
        statements = engine.connection.extract_statements(query)
    except duckdb.ParserException as error:
        raise SourceError(f"source.query: {_without_values(error)}") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise SourceError("source.query: must be one SELECT statement")
    # The holder's SQL stays as it is: parsing and printing it again could change what it says.
    plain = query.strip().rstrip(";")
    if not is_read_alike(engine, plain):
        return read_by_holder(engine, plain, place)
    view = place.view("query")
    engine.execute(create_temporary_view(view, exp.Var(this=plain)))
    return view


def _from_table(engine: DuckDBEngine, name: str | None, place: Place) -> exp.Table:
    """A table of the holder's. A temporary one is known to the holder's connection alone."""
    found = find_table(engine, name)
    if found.catalog == "temp" and engine.holder is not engine:
        return read_by_holder(engine, star(found).sql(engine.dialect), place)
    if _is_table(engine, found, plain=True) or is_read_alike(engine):
        return found
    return read_by_holder(engine, star(found).sql(engine.dialect), place)


def _paths(engine: DuckDBEngine, patterns: tuple[str, ...]) -> list[str]:
    """All files that match, sorted, each once."""
    parts = [
        select([col("file")], exp.Table(this=exp.Anonymous(this="glob", expressions=[text(pattern)])))
        for pattern in patterns
    ]
    query = parts[0] if len(parts) == 1 else exp.union(*parts, distinct=True)
    found = exp.select(col("file")).distinct().from_(exp.Subquery(this=query, alias=ident("g"))).order_by(col("file"))
    paths = [path for (path,) in engine.rows(found)]
    if not paths:
        raise SourceError(f"source.files: no file matches {', '.join(patterns)}")
    return paths


def _from_files(
    engine: DuckDBEngine, paths: list[str], place: Place, text_columns: Collection[str], wanted: Collection[str]
) -> tuple[exp.Table, Mapping[str, str]]:
    """The relation of the files; and of a copy, all columns that the files have."""
    kinds = {file_kind(path) for path in paths}
    if len(kinds) != 1 or None in kinds:
        strange = [Path(path).name for path in paths if file_kind(path) is None]
        what = f"{strange[0]} is neither Parquet nor CSV by its ending" if strange else "Parquet and CSV are mixed"
        raise SourceError(f"source.files: {what}; give files of one kind")
    if kinds == {"parquet"}:
        for path in paths:
            refuse_ambiguous(parquet_columns(engine, path), Path(path).name)
        query = star(read_parquet(paths))
    else:
        if place.copy is not None:
            return place.copy, copy_csv(engine, paths, text_columns, wanted, place.copy).columns
        query = scan_csv(engine, paths, text_columns)
    view = place.view("files")
    engine.execute(create_temporary_view(view, query))
    return view, {}


def _plain(engine: DuckDBEngine, found: exp.Table, view: exp.Table) -> tuple[exp.Table, dict[str, str]]:
    """A view over what was found, with every column plain; and its columns."""
    types = engine.types(found)
    refuse_ambiguous(list(types), "the source")
    output: list[exp.Expr] = [named(plain_column(name, type_), name) for name, type_ in types.items()]
    engine.execute(create_temporary_view(view, select(output, found.copy())))
    return view, engine.columns(view)


def _without_values(error: duckdb.Error) -> str:
    """What the engine says, without what it may quote from the data: only errors about names and files are shown."""
    if isinstance(error, duckdb.ConversionException):
        return "a value does not have the type of its column"
    if isinstance(error, duckdb.InvalidInputException):
        return "its content is not as expected: a broken file, rows of different lengths, files that do not match"
    if isinstance(error, duckdb.OutOfMemoryException):
        return "it needs more memory: allow more with memory_limit, or give it fewer threads"
    shown = (duckdb.CatalogException, duckdb.BinderException, duckdb.ParserException, duckdb.IOException)
    return str(error).split("\n", 1)[0] if isinstance(error, shown) else "reading its rows failed"
