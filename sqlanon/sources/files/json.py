"""Read JSON files: an array of objects, or an object on each line.

Types are inferred from all rows. A column that is read as text keeps the texts of the file (02139), and a column with
values of several types is text. Numbers that DOUBLE would round are read exactly (DECIMAL, HUGEINT), or refused.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Mapping

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.places.databases import file_name
from sqlanon.sources.columns import refuse_ambiguous_names, refuse_different_columns
from sqlanon.sources.files import csv_lines
from sqlanon.sources.files.scan import Scan
from sqlanon.sources.files.typed_columns import SHORT_NUMBER, ZONE, try_cast, without_zone
from sqlanon.support.expressions import (
    anonymous,
    as_column,
    cast,
    col,
    fragment,
    ident,
    literal_path,
    select,
    subquery,
    template,
    text,
)

_MAX_DIGITS = 38  # of a DECIMAL
_ZONED_PART = re.compile(r"TIMESTAMP WITH TIME ZONE(?=[),\[]|$)")  # a type, not a field of that name
_NO_VALUE = re.compile(r'"NULL"(?=[),\[]|$)')  # the type of a field without values, not a field of that name
# The engine shows a number as it reads it, mostly as a DOUBLE; in quotes, its text is kept. The prefix of the pattern
# consumes whole strings, so that digits in strings do not match. The 0 after the object lets the last match reach its
# end.
_IN_QUOTES = fragment("""
    regexp_replace(
        regexp_replace(json::VARCHAR || '0', :number, '\\1"\\2"', 'gs'),
        '(?i)([:,]\\s*)-?(nan|inf(inity)?)\\b', '\\1null', 'g'
    )
""")
_NUMBER = r'((?:[^"0-9-]|"(?:[^"\\]|\\.)*")*)(-?[0-9][0-9.eE+-]*)'
_EXPONENT = "[eE][+]?(-?)0*([0-9]+)$"  # programs write exponents in several ways
_IS_SHOWN_AGAIN = fragment("""
    coalesce(bool_and(CASE
        WHEN regexp_full_match(:number, '-?[0-9]+')
        THEN try_cast(:number AS HUGEINT) = try_cast(try_cast(:number AS DOUBLE) AS HUGEINT)
        ELSE isfinite(try_cast(:number AS DOUBLE)) AND (
            (length(:number) <= :short AND NOT regexp_matches(:number, '[eE][-+]?[0-9]{3}'))
            OR regexp_replace(try_cast(:number AS DOUBLE)::VARCHAR, :exponent, 'e\\1\\2')
                = regexp_replace(:number, :exponent, 'e\\1\\2')
        )
    END IS TRUE) FILTER (WHERE NOT :number IS NULL), true)
""")
_EXPONENT_VALUE = "coalesce(try_cast(regexp_extract(:number, '[eE]([-+]?[0-9]+)$', 1) AS INTEGER), 0)"
_FIGURES_OF_NUMBERS = (
    fragment("coalesce(bool_and(regexp_full_match(:number, '-?[0-9]{1,38}')), false)"),
    fragment(f"max(length(regexp_extract(:number, '^-?([0-9]+)', 1)) + {_EXPONENT_VALUE})"),
    fragment(f"max(length(regexp_extract(:number, '[.]([0-9]+)', 1)) - {_EXPONENT_VALUE})"),
)
_CHECKSUM = fragment("sum(hash(:value)::HUGEINT)")


def json_query(scan: Scan) -> exp.Query:
    engine, paths = scan.engine, scan.paths
    files_with_keys: list[tuple[str, Mapping[str, str | None]]] = []
    for path in paths:  # a scan would rename columns that differ in case only
        _refuse_byte_order_mark(path)
        keys_query = template("""
            -- NULL marks rows that are not objects
            SELECT DISTINCT unnest(CASE WHEN json_type(json) = 'OBJECT' THEN json_keys(json) ELSE [NULL] END) AS name
            FROM :objects
            ORDER BY name
        """)
        objects = exp.Table(this=anonymous("read_json_objects", literal_path(path)))
        names = [name for (name,) in engine.rows(keys_query(objects=objects))]
        if None in names:
            raise SourceError(
                f"source.files: {file_name(path)}: a row is not an object, so that its values have no names; write "
                '{"name": value, ...} for each row'
            )
        if {"resourceType", "entry"} <= {*names}:
            raise SourceError(
                f"source.files: {file_name(path)} is a FHIR bundle, which has rows of several kinds; write the "
                "resources of one kind to a separate file, one object on each line"
            )
        refuse_ambiguous_names(names, file_name(path))
        if names:
            files_with_keys.append((path, dict.fromkeys(names)))
    if not files_with_keys:
        raise SourceError(f"{file_name(paths[0])} is empty: it has no rows with values")
    # DuckDB distinguishes keys by case, and would read a key in another case as NULL.
    refuse_different_columns(files_with_keys, same_case=True)
    files = exp.Array(expressions=[literal_path(path) for path in paths])
    options = {"sample_size": exp.convert(-1), "union_by_name": exp.true(), "hive_partitioning": exp.false()}
    try:
        types = engine.columns(_read(files, options))
    except duckdb.NotImplementedException as error:
        message = "fields of a nested object have the same name, or differ in case only; rename them"
        raise SourceError(f"source.files: {message}") from error
    types = {name: _choose_type(name, type_, scan.text_columns) for name, type_ in types.items()}
    types |= _find_exact_types(engine, files, options, types)
    zoned = [name for name, type_ in types.items() if type_ == "TIMESTAMP WITH TIME ZONE"]
    rows = _read(files, options, {**types, **dict.fromkeys(zoned, "VARCHAR")})
    clocks = _find_local_times(engine, rows, zoned)
    return select([as_column(_local_time(name), name) if name in clocks else col(name) for name in types], rows)


def _refuse_byte_order_mark(path: str) -> None:
    if not csv_lines.can_open(path):
        return
    with csv_lines.open_bytes(path) as file:
        if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8:
            raise SourceError(
                f"source.files: {file_name(path)} begins with a byte order mark, which JSON does not allow (RFC 8259); "
                "save it as UTF-8 without one"
            )


def _choose_type(name: str, type_: str, text_columns: Collection[str]) -> str:
    if type_ == "JSON" or name.lower() in text_columns:
        return "VARCHAR"
    if type_ != "TIMESTAMP WITH TIME ZONE":  # in nested values the engine would convert it to UTC
        type_ = _ZONED_PART.sub("VARCHAR", type_)
    return _NO_VALUE.sub("VARCHAR", type_)


def _find_exact_types(
    engine: DuckDBEngine, files: exp.Expr, options: dict[str, exp.Expr], types: Mapping[str, str]
) -> dict[str, str]:
    """Find exact types for columns whose numbers DOUBLE would round."""
    names = [name for name, type_ in types.items() if type_ == "DOUBLE"]
    if not names:
        return {}
    objects = exp.Table(this=anonymous("read_json_objects", files.copy()))
    rows = subquery(
        template("SELECT left(:text, -3)::JSON AS json, json AS shown FROM :objects")(
            text=_IN_QUOTES(number=_NUMBER), objects=objects
        ),
        "objects",
    )
    figures: list[exp.Expr] = []
    for name in names:
        number = _value_at(name)
        figures += [
            _IS_SHOWN_AGAIN(number=number, short=SHORT_NUMBER, exponent=_EXPONENT),
            fragment("coalesce(bool_and(:number = (shown ->> :path)), true)")(number=number, path=_json_pointer(name)),
            *(figure(number=number) for figure in _FIGURES_OF_NUMBERS),
        ]
    values = engine.rows(select(figures, rows))[0]
    exact: dict[str, str] = {}
    for i, name in enumerate(names):
        is_shown_again, is_text, is_whole, digits, decimals = values[5 * i : 5 * i + 5]
        if is_shown_again:
            continue
        digits, decimals = max(digits, 1), max(decimals, 0)
        if is_whole:
            exact[name] = "HUGEINT"
        elif digits + decimals <= _MAX_DIGITS:
            exact[name] = f"DECIMAL({digits + decimals}, {decimals})"
        elif is_text:  # the engine shows numbers that it cannot read unchanged
            exact[name] = "VARCHAR"
        else:
            raise SourceError(
                f"source.files: column {name!r} has numbers of more than {_MAX_DIGITS} digits, or beyond 1e308, which "
                "no type holds exactly; write them as texts, in quotes"
            )
    # Older versions of DuckDB convert a DECIMAL through DOUBLE.
    read_checksums: list[exp.Expr] = [_CHECKSUM(value=col(name)) for name in exact]
    exact_checksums: list[exp.Expr] = [_CHECKSUM(value=cast(_value_at(name), type_)) for name, type_ in exact.items()]
    if exact and engine.rows(select(read_checksums, _read(files, options, exact))) != engine.rows(
        select(exact_checksums, rows.copy())
    ):
        raise SourceError(
            f"source.files: this version of DuckDB does not read the numbers of {', '.join(map(repr, exact))} exactly; "
            "update it, or write them as texts, in quotes"
        )
    return exact


def _value_at(name: str) -> exp.Expr:
    """The value of a key, by a JSON pointer, which may contain any character."""
    return fragment("json ->> :path")(path=_json_pointer(name))


def _json_pointer(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _find_local_times(engine: DuckDBEngine, rows: exp.Expr, zoned: Collection[str]) -> list[str]:
    """Find columns of times with a zone whose local times can be read: the engine would convert them to UTC."""
    if not zoned:
        return []
    figures = [fragment("count(:text) = count(:read)")(text=col(name), read=_local_time(name)) for name in zoned]
    return [name for name, are_read in zip(zoned, engine.rows(select(figures, rows))[0], strict=True) if are_read]


def _local_time(name: str) -> exp.Expr:
    return fragment("CASE WHEN regexp_matches(trim(:text), :zone) THEN :clock END")(
        text=col(name), zone=f":[0-9.]+{ZONE}$", clock=try_cast(without_zone(col(name)), "TIMESTAMP")
    )


def _read(files: exp.Expr, options: Mapping[str, exp.Expr], types: Mapping[str, str] | None = None) -> exp.Table:
    """Read files; with types, only columns that have one, as this type."""
    arguments = [exp.Var(this=name).eq(value.copy()) for name, value in options.items()]
    if types is not None:
        columns = [exp.PropertyEQ(this=ident(name), expression=text(type_)) for name, type_ in types.items()]
        arguments.append(exp.Var(this="columns").eq(exp.Struct(expressions=columns)))
    return exp.Table(this=anonymous("read_json", files.copy(), *arguments))
