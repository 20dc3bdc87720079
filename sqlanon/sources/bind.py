"""Binding a relation that DuckDB reads: to one view of the engine that the queries can name.

A DuckDB file is attached read-only; Parquet is scanned in place; CSV and Arrow streams are read once, into the
private work database; a live connection is used as it is. Values that the engine takes for equal have one form in the
relation (`sources.plain`), and it carries nothing but its values: no dictionaries of ENUMs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import duckdb
from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.places.databases import file_name
from sqlanon.sources.bound import Source, WorkNames
from sqlanon.sources.plain import plain_column, refuse_ambiguous
from sqlanon.support.expressions import create_temporary_view, drop_view, named, select
from sqlanon.support.fields import in_words


def bind_relation(
    engine: DuckDBEngine,
    found: exp.Table,
    place: WorkNames,
    in_place: bool,
    files: tuple[Path, ...] = (),
    more: Mapping[str, str] | None = None,
    home: str | None = None,
    scan: exp.Expr | None = None,
) -> Source:
    view, columns = _plain(engine, found, place.view("source"))
    columns = {name: columns.get(name, type_) for name, type_ in (more or {}).items()} or columns
    return Source(view, columns, files, in_place, home=home, scan=scan)


@contextmanager
def source_errors() -> Iterator[None]:
    """Errors of the engine become a `SourceError` that quotes nothing of the data."""
    try:
        yield
    except duckdb.Error as error:
        cause = None if "://" in str(error) else error  # an address may hold a secret
        raise SourceError(f"the source cannot be read: {without_values(error)}") from cause


def unbind_source(engine: Engine, place: WorkNames) -> None:
    for suffix in ("recoded", "rows", "persons", "source", "query", "typed", "files"):
        engine.execute(drop_view(place.view(suffix)))


def _plain(engine: DuckDBEngine, found: exp.Table, view: exp.Table) -> tuple[exp.Table, dict[str, str]]:
    types = engine.types(found)
    refuse_ambiguous(list(types), "the source")
    output: list[exp.Expr] = [named(plain_column(name, type_), name) for name, type_ in types.items()]
    engine.execute(create_temporary_view(view, select(output, found.copy())))
    return view, engine.columns(view)


_JSON_ERROR = re.compile(
    r'(?:Malformed JSON|JSON transform error) in file "(.+?)", (?:.*? )?in (record/value|line) ([0-9]+)', re.DOTALL
)
_FILE_IN_QUOTES = re.compile(r"""[Ff]ile ['"]([^'"]+)['"]""")
_KEY_TWICE = 'has duplicate key "'


def _json_error(message: str) -> str | None:
    """An error of a JSON file, with its file and its row; it has what stands in the file."""
    found = _JSON_ERROR.search(message)
    if found is None:
        return None
    place = f"{file_name(found[1])}, {'line' if found[2] == 'line' else 'object'} {int(found[3]):,}"
    if message.count(_KEY_TWICE) == 1:
        key = message.partition(_KEY_TWICE)[2].partition('"')[0]
        return f"{place}: the key {in_words(key)} stands twice in an object; remove one of them"
    if "Malformed" in found[0]:
        near = f"near {'line' if found[2] == 'line' else 'object'} {int(found[3]):,}"
        return f"{file_name(found[1])}, {near}: this is no JSON; the file is broken or cut off, or is not in UTF-8"
    return f"{place}: a value is not of the type of its column"


def without_values(error: duckdb.Error) -> str:
    """What the engine says, without what it may quote from the data: only errors about names and files are shown."""
    if isinstance(error, (duckdb.ConversionException, duckdb.TypeMismatchException)):
        return "a value does not have the type of its column"
    if isinstance(error, duckdb.InvalidInputException):
        if (json_error := _json_error(str(error).partition(": ")[2])) is not None:
            return json_error
        file = _FILE_IN_QUOTES.search(str(error))
        what = f"{file_name(file[1])} is not" if file and Path(file[1]).is_file() else "its content is not"
        return f"{what} as expected: a broken file, rows of different lengths, or files that do not match"
    if isinstance(error, duckdb.OutOfMemoryException):
        return "it needs more memory; raise memory_limit, or use fewer threads"
    shown = (duckdb.CatalogException, duckdb.BinderException, duckdb.ParserException, duckdb.IOException)
    return (
        _without_options(str(error).split("\n", 1)[0])
        if isinstance(error, shown)
        else f"reading its rows failed ({type(error).__name__})"
    )


def _without_options(message: str) -> str:
    """A message whose addresses have no user, password and options: an address may be signed."""
    return re.sub(r"(\w+://)(?:[^\s/'\"@]*@)?([^\s'\"?#]*)[?#]?[^\s'\"]*", r"\1\2", message)
