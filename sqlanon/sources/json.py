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
from sqlanon.expressions import anonymous, ident, literal_path, star, template, text
from sqlanon.policy.databases import shown_name
from sqlanon.sources.plain import refuse_ambiguous
from sqlanon.sources.united import refuse_different_columns

_NO_VALUE = re.compile(r'"NULL"(?=[),\[]|$)')  # the type of a field without a value, not a field of that name
_KEYS = template("SELECT DISTINCT unnest(json_keys(json)) AS name FROM :objects ORDER BY name")


def scan_json(engine: DuckDBEngine, paths: list[str], text_columns: Collection[str]) -> exp.Select:
    files_with_keys: list[tuple[str, Mapping[str, str | None]]] = []
    for path in paths:  # a scan would rename columns that differ in case only
        objects = exp.Table(this=anonymous("read_json_objects", literal_path(path)))
        names = [name for (name,) in engine.rows(_KEYS(objects=objects))]
        refuse_ambiguous(names, shown_name(path))
        if names:
            files_with_keys.append((path, dict.fromkeys(names)))
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
    columns = [exp.PropertyEQ(this=ident(name), expression=text(type_)) for name, type_ in types.items()]
    return star(_read(files, {**options, "columns": exp.Struct(expressions=columns)}))


def _type(name: str, type_: str, text_columns: Collection[str]) -> str:
    if type_ == "JSON" or name.lower() in text_columns:
        return "VARCHAR"
    return _NO_VALUE.sub("VARCHAR", type_)


def _read(files: exp.Expr, options: dict[str, exp.Expr]) -> exp.Table:
    named = [exp.Var(this=name).eq(value.copy()) for name, value in options.items()]
    return exp.Table(this=anonymous("read_json", files.copy(), *named))
