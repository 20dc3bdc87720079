"""Bind a relation that DuckDB reads: one view that queries can name, whose columns are plain.

DuckDB files are attached read-only, Parquet is scanned in place, and CSV files and Arrow streams are copied once to
the private work database. In a plain column, values that the engine compares as equal have one form, and ENUM columns
are plain text, without their dictionary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from duckdb.sqltypes import DuckDBPyType
from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.values import FLOATING_TYPES, canonical_value
from sqlanon.errors import SourceError
from sqlanon.places.databases import file_name
from sqlanon.sources.columns import refuse_ambiguous_names
from sqlanon.sources.source import Source, WorkNames
from sqlanon.support.expressions import (
    anonymous,
    as_column,
    cast,
    col,
    create_temporary_view,
    drop_view,
    ident,
    is_not_null,
    native_type,
    number,
    select,
    text,
)
from sqlanon.support.fields import in_words

_NESTED = ("list", "array", "struct", "tuple", "map", "union")


def bind_relation(
    engine: DuckDBEngine,
    relation: exp.Table,
    work_names: WorkNames,
    in_place: bool,
    files: tuple[Path, ...] = (),
    all_columns: Mapping[str, str] | None = None,
    database_id: str | None = None,
) -> Source:
    """Bind a relation as a source; ``all_columns`` has the types of all columns, if only some were copied."""
    types = engine.types(relation)
    refuse_ambiguous_names(list(types), "the source")
    view = work_names.view("source")
    output: list[exp.Expr] = [as_column(plain_column(name, type_), name) for name, type_ in types.items()]
    engine.execute(create_temporary_view(view, select(output, relation.copy())))
    columns = engine.columns(view)
    if all_columns:
        columns = {name: columns.get(name, type_) for name, type_ in all_columns.items()}
    return Source(view, columns, files, in_place, database_id=database_id)


def drop_source_views(engine: Engine, work_names: WorkNames) -> None:
    for suffix in ("recoded", "rows", "persons", "source", "query", "typed", "files"):
        engine.execute(drop_view(work_names.view(suffix)))


@contextmanager
def source_errors() -> Iterator[None]:
    """Turn errors of DuckDB into a `SourceError` that quotes no value of the source."""
    try:
        yield
    except duckdb.Error as error:
        cause = None if "://" in str(error) else error  # an address may hold a secret
        raise SourceError(f"the source cannot be read: {describe_engine_error(error)}") from cause


_JSON_ERROR = re.compile(
    r'(?:Malformed JSON|JSON transform error) in file "(.+?)", (?:.*? )?in (record/value|line) ([0-9]+)', re.DOTALL
)
_QUOTED_FILE = re.compile(r"""[Ff]ile ['"]([^'"]+)['"]""")
_DUPLICATE_KEY = 'has duplicate key "'


def describe_engine_error(error: duckdb.Error) -> str:
    """Describe an error of DuckDB without values of the source: only messages about names and files are quoted."""
    message = str(error)
    if isinstance(error, (duckdb.ConversionException, duckdb.TypeMismatchException)):
        return "a value does not have the type of its column"
    if isinstance(error, duckdb.InvalidInputException):
        if (json_error := _describe_json_error(message.partition(": ")[2])) is not None:
            return json_error
        file = _QUOTED_FILE.search(message)
        subject = f"{file_name(file[1])} is not" if file and Path(file[1]).is_file() else "its content is not"
        return f"{subject} as expected: a broken file, rows of different lengths, or files that do not match"
    if isinstance(error, duckdb.OutOfMemoryException):
        return "it needs more memory; raise memory_limit, or use fewer threads"
    if isinstance(error, (duckdb.CatalogException, duckdb.BinderException, duckdb.ParserException, duckdb.IOException)):
        # Without user, password and options: an address may be signed.
        first_line = message.split("\n", 1)[0]
        return re.sub(r"(\w+://)(?:[^\s/'\"@]*@)?([^\s'\"?#]*)[?#]?[^\s'\"]*", r"\1\2", first_line)
    return f"reading its rows failed ({type(error).__name__})"


def _describe_json_error(message: str) -> str | None:
    """Describe an error in a JSON file with the file and the row; None for other errors."""
    match = _JSON_ERROR.search(message)
    if match is None:
        return None
    file, unit, row = file_name(match[1]), "line" if match[2] == "line" else "object", int(match[3])
    if message.count(_DUPLICATE_KEY) == 1:
        key = message.partition(_DUPLICATE_KEY)[2].partition('"')[0]
        return f"{file}, {unit} {row:,}: an object has the key {in_words(key)} twice; remove one of them"
    if "Malformed" in match[0]:
        return f"{file}, near {unit} {row:,}: invalid JSON; the file is broken or cut off, or is not in UTF-8"
    return f"{file}, {unit} {row:,}: a value is not of the type of its column"


def find_local_types(
    columns: Sequence[tuple[str, str, str | None]], wanted: Container[str], advice: str = ""
) -> dict[str, str]:
    """Map the columns of another engine to DuckDB's types; refuse wanted columns whose type has no equivalent.

    ``columns`` holds the name, the type there, and DuckDB's equivalent or None; ``wanted`` is in lower case. Columns
    that are not wanted keep the other engine's type.
    """
    refuse_ambiguous_names([name for name, _, _ in columns], "the source")
    if unsupported := [
        f"{name!r} ({remote_type})"
        for name, remote_type, local_type in columns
        if local_type is None and name.lower() in wanted
    ]:
        raise SourceError(
            f"columns of types that DuckDB does not have: {', '.join(unsupported)}; cast them with query = ... under "
            f"[source]{advice}"
        )
    return {name: local_type or remote_type for name, remote_type, local_type in columns}


def plain_column(name: str, type_: DuckDBPyType) -> exp.Expr:
    """A column whose values are equal where readers see the same value, and that carries no dictionary."""
    return _plain_value(col(name), type_)


def fixed_column(name: str, type_: DuckDBPyType) -> exp.Expr:
    """A plain column that keeps its present type: values that do not fit after a later change of type are NULL."""
    return _plain_value(exp.TryCast(this=col(name), to=native_type(plain_type(type_))), type_)


def _plain_value(value: exp.Expr, type_: DuckDBPyType) -> exp.Expr:
    if type_.id in _NESTED:
        return _rebuild(value, type_)
    plain = plain_type(type_)
    return canonical_value(value if plain == str(type_) else cast(value, plain), plain)


def plain_type(type_: DuckDBPyType) -> str:
    """Spell a type with VARCHAR for every ENUM and VARIANT in it.

    A VARIANT compares 1, 1.0 and 1::TINYINT as equal but stores them differently: their texts differ.
    """
    if type_.id in ("enum", "variant"):
        return "VARCHAR"
    if type_.id not in _NESTED:
        return "INTEGER" if type_.id == "null" else str(type_)
    children = [(name, plain_type(child)) for name, child in _list_children(type_)]
    if type_.id == "list":
        return f"{children[0][1]}[]"
    if type_.id == "array":
        return f"{children[0][1]}[{dict(type_.children)['size']}]"
    if type_.id == "map" or _is_tuple(type_):
        return f"{type_.id.upper()}({', '.join(child for _, child in children)})"
    fields = [f"{ident(name).sql('duckdb')} {child}" for name, child in children]
    return f"{type_.id.upper()}({', '.join(fields)})"


def _list_children(type_: DuckDBPyType) -> list[tuple[str, Any]]:
    """The types in a nested type, with their names; without the size of an ARRAY and the tag of a UNION."""
    children = list(type_.children)
    return children[:1] if type_.id == "array" else children[1:] if type_.id == "union" else children


def _is_tuple(type_: DuckDBPyType) -> bool:
    """Whether a struct has fields without names: DuckDB 2.0 has a type for these."""
    return type_.id == "tuple" or (type_.id == "struct" and type_.children[0][0] == "")


def _has_several_forms(type_: DuckDBPyType) -> bool:
    """Whether a type contains values that have several equal forms."""
    if type_.id in _NESTED:
        return any(_has_several_forms(child) for _, child in _list_children(type_))
    return type_.id in ("enum", "variant", "null") or str(type_) in (*FLOATING_TYPES, "VARCHAR", "INTERVAL")


def _rebuild(value: exp.Expr, type_: DuckDBPyType, depth: int = 0) -> exp.Expr:
    """Rebuild a value from parts that have one form each."""
    if type_.id in _NESTED:
        if not _has_several_forms(type_):
            return value
        return cast(_REBUILDERS[type_.id](value, type_, depth), plain_type(type_))
    if str(type_) == "VARCHAR":
        # A list takes its collation from the source of its texts: COLLATE does not change that, other bytes do.
        return anonymous("decode", anonymous("encode", value))
    return _plain_value(value, type_)


def _rebuild_list(value: exp.Expr, type_: DuckDBPyType, depth: int) -> exp.Expr:
    ((_, child),) = _list_children(type_)
    values = value if type_.id == "list" else cast(value, f"{plain_type(child)}[]")
    return _transform_list(values, depth, lambda element: _rebuild(element, child, depth + 1))


def _rebuild_map(value: exp.Expr, type_: DuckDBPyType, depth: int) -> exp.Expr:
    types = dict(zip(("key", "value"), (child for _, child in _list_children(type_)), strict=True))

    def rebuild_entry(entry: exp.Expr) -> exp.Expr:
        return _pack_struct({name: _rebuild_field(entry, name, child, depth + 1) for name, child in types.items()})

    return anonymous("map_from_entries", _transform_list(anonymous("map_entries", value), depth, rebuild_entry))


def _rebuild_struct(value: exp.Expr, type_: DuckDBPyType, depth: int) -> exp.Expr:
    children = _list_children(type_)
    if _is_tuple(type_):
        fields = [_rebuild_field(value, i, child, depth) for i, (_, child) in enumerate(children, start=1)]
        struct: exp.Expr = anonymous("row", *fields)
    else:
        struct = _pack_struct({name: _rebuild_field(value, name, child, depth) for name, child in children})
    return exp.Case(ifs=[exp.If(this=is_not_null(value.copy()), true=struct)])


def _rebuild_union(value: exp.Expr, type_: DuckDBPyType, depth: int) -> exp.Expr:
    cases = []
    for name, child in _list_children(type_):
        member = _rebuild(anonymous("union_extract", value.copy(), text(name)), child, depth)
        union = anonymous("union_value", exp.PropertyEQ(this=ident(name), expression=member))
        has_tag = anonymous("union_tag", value.copy()).eq(text(name))
        cases.append(exp.If(this=has_tag, true=cast(union, plain_type(type_))))
    return exp.Case(ifs=cases)


_REBUILDERS: Mapping[str, Callable[[exp.Expr, DuckDBPyType, int], exp.Expr]] = {
    "list": _rebuild_list,
    "array": _rebuild_list,
    "map": _rebuild_map,
    "struct": _rebuild_struct,
    "tuple": _rebuild_struct,
    "union": _rebuild_union,
}


def _rebuild_field(struct: exp.Expr, key: str | int, type_: DuckDBPyType, depth: int) -> exp.Expr:
    position = text(key) if isinstance(key, str) else number(key)
    return _rebuild(anonymous("struct_extract", struct.copy(), position), type_, depth)


def _pack_struct(fields: Mapping[str, exp.Expr]) -> exp.Expr:
    return anonymous(
        "struct_pack", *(exp.PropertyEQ(this=ident(name), expression=value) for name, value in fields.items())
    )


def _transform_list(values: exp.Expr, depth: int, body: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    element = f"x{depth}"
    function = exp.Lambda(this=body(exp.column(element)), expressions=[exp.to_identifier(element)], colon=True)
    return anonymous("list_transform", values, function)
