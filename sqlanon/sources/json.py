"""JSON files: an array of objects, or an object on each line.

All rows say what the types are. A column that is read as text keeps the texts of the file (02139), and one whose values
have several types is text, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.expressions import anonymous, col, fragment, ident, literal_path, named, select, template, text
from sqlanon.policy.databases import shown_name
from sqlanon.sources.plain import refuse_ambiguous
from sqlanon.sources.typed_columns import ZONE, without_zone
from sqlanon.sources.united import refuse_different_columns

_NO_VALUE = re.compile(r'"NULL"(?=[),\[]|$)')  # the type of a field without a value, not a field of that name
_KEYS = template("""
    -- NULL stands for the keys of what is no object
    SELECT DISTINCT unnest(CASE WHEN json_type(json) = 'OBJECT' THEN json_keys(json) ELSE [NULL] END) AS name
    FROM :objects
    ORDER BY name
""")
_IS_ROUNDED = fragment("""
    coalesce(bool_or(
        regexp_full_match(:column, '-?[0-9]+')
        AND NOT coalesce(try_cast(:column AS HUGEINT) = try_cast(try_cast(:column AS DOUBLE) AS HUGEINT), false)
    ), false)
""")
_IS_WHOLE = fragment("coalesce(bool_and(regexp_full_match(:column, '-?[0-9]{1,38}')), false)")
_IF_ZONED = fragment("CASE WHEN regexp_matches(trim(:text), :zone) THEN :clock END")
_ARE_READ = fragment("count(:text) = count(:read)")


def scan_json(engine: DuckDBEngine, paths: list[str], text_columns: Collection[str]) -> exp.Select:
    files_with_keys: list[tuple[str, Mapping[str, str | None]]] = []
    for path in paths:  # a scan would rename columns that differ in case only
        objects = exp.Table(this=anonymous("read_json_objects", literal_path(path)))
        names = [name for (name,) in engine.rows(_KEYS(objects=objects))]
        if None in names:
            raise SourceError(
                f"source.files: {shown_name(path)}: a row is no object, so that its values have no names; write "
                '{"name": value, ...} for each row, without a byte order mark above them'
            )
        if {"resourceType", "entry"} <= {*names}:
            raise SourceError(
                f"source.files: {shown_name(path)} is a bundle of FHIR, whose rows are of several kinds; write the "
                "resources of one kind to a file of their own, an object on each line"
            )
        refuse_ambiguous(names, shown_name(path))
        if names:
            files_with_keys.append((path, dict.fromkeys(names)))
    if not files_with_keys:
        raise SourceError(f"{shown_name(paths[0])} is empty: it has no rows with values")
    # A key of another case is another key to DuckDB, which would read it as NULL.
    refuse_different_columns(files_with_keys, same_case=True)
    files = exp.Array(expressions=[literal_path(path) for path in paths])
    options = {"sample_size": exp.convert(-1), "union_by_name": exp.true(), "hive_partitioning": exp.false()}
    try:
        types = engine.columns(_read(files, options))
    except duckdb.NotImplementedException as error:
        message = "fields of a nested object have the same name, or differ in case only; rename them"
        raise SourceError(f"source.files: {message}") from error
    types = {name: _type(name, type_, text_columns) for name, type_ in types.items()}
    types |= _exact_types(engine, files, options, types)
    zoned = [name for name, type_ in types.items() if type_ == "TIMESTAMP WITH TIME ZONE"]
    rows = _read_as(files, options, {**types, **dict.fromkeys(zoned, "VARCHAR")})
    clocks = _readable_clocks(engine, rows, zoned)
    return select([named(_clock(name), name) if name in clocks else col(name) for name in types], rows)


def _type(name: str, type_: str, text_columns: Collection[str]) -> str:
    if type_ == "JSON" or name.lower() in text_columns:
        return "VARCHAR"
    return _NO_VALUE.sub("VARCHAR", type_)


def _exact_types(
    engine: DuckDBEngine, files: exp.Expr, options: dict[str, exp.Expr], types: Mapping[str, str]
) -> dict[str, str]:
    """The types of columns whose whole numbers DOUBLE would round: those of texts, where not all are whole."""
    names = [name for name, type_ in types.items() if type_ == "DOUBLE"]
    if not names:
        return {}
    rows = _read_as(files, options, dict.fromkeys(names, "VARCHAR"))
    figures = [figure(column=col(name)) for name in names for figure in (_IS_ROUNDED, _IS_WHOLE)]
    values = engine.rows(select(figures, rows))[0]
    pairs = zip(names, values[::2], values[1::2], strict=True)
    return {name: "HUGEINT" if is_whole else "VARCHAR" for name, is_rounded, is_whole in pairs if is_rounded}


def _readable_clocks(engine: DuckDBEngine, rows: exp.Expr, zoned: Collection[str]) -> list[str]:
    """The columns of times with a zone, which the engine would move to UTC, that are read as the clock showed them."""
    if not zoned:
        return []
    figures = [_ARE_READ(text=col(name), read=_clock(name)) for name in zoned]
    return [name for name, are_read in zip(zoned, engine.rows(select(figures, rows))[0], strict=True) if are_read]


def _clock(name: str) -> exp.Expr:
    clock = exp.TryCast(this=without_zone(col(name)), to=exp.DataType.build("TIMESTAMP", dialect="duckdb"))
    return _IF_ZONED(text=col(name), zone=text(f":[0-9.]+{ZONE}$"), clock=clock)


def _read_as(files: exp.Expr, options: dict[str, exp.Expr], types: Mapping[str, str]) -> exp.Table:
    columns = [exp.PropertyEQ(this=ident(name), expression=text(type_)) for name, type_ in types.items()]
    return _read(files, {**options, "columns": exp.Struct(expressions=columns)})


def _read(files: exp.Expr, options: dict[str, exp.Expr]) -> exp.Table:
    arguments = [exp.Var(this=name).eq(value.copy()) for name, value in options.items()]
    return exp.Table(this=anonymous("read_json", files.copy(), *arguments))
