"""CSV files: how to read them.

The engine's sniffer says how the files are written; then everything is spelled out, so that a column of codes
(02139) stays text, and so that the names in the file are seen before anything renames them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.queries.names import ident, literal_path, select, text
from sqlanon.sources.plain import refuse_ambiguous

WHOLE_FILE = -1


@dataclass(frozen=True)
class _Dialect:
    """How a CSV file is written: what ``sniff_csv`` says."""

    options: dict[str, str | bool | int]
    columns: dict[str, str]


def scan_csv(engine: DuckDBEngine, paths: list[str], text_columns: frozenset[str], whole: bool = True) -> exp.Select:
    """The query that reads CSV files of one layout.

    Parameters
    ----------
    text_columns:
        Columns to read as VARCHAR, in lower case.
    whole:
        Look at all of the files to tell the types of columns. The first rows alone can mislead: a later 1.5 in a
        column of whole numbers would be rounded in silence.

    Raises
    ------
    SourceError
        The files differ in their columns, or names differ in case only.
    """
    sample = {"sample_size": WHOLE_FILE} if whole else {}
    dialect = _sniff(engine, paths[0], **sample)
    for path in paths[1:]:
        other = _sniff(engine, path, **sample)
        if list(other.columns) != list(dialect.columns):
            raise SourceError(f"source.files: {Path(path).name} has other columns than {Path(paths[0]).name}")
        dialect = _wider(dialect, other)
    return _scan(paths, dialect, text_columns)


def _wider(one: _Dialect, other: _Dialect) -> _Dialect:
    """Columns that two files have with different types are text."""
    types = {name: type_ if other.columns.get(name) == type_ else "VARCHAR" for name, type_ in one.columns.items()}
    return _Dialect(one.options, types)


def _sniff(engine: DuckDBEngine, path: str, **options: int) -> _Dialect:
    call = exp.Anonymous(this="sniff_csv", expressions=[literal_path(path), *_named_arguments(options)])
    names = (
        "Delimiter", "Quote", "Escape", "NewLineDelimiter", "Comment", "SkipRows", "HasHeader", "Columns",
        "DateFormat", "TimestampFormat",
    )  # fmt: skip
    query = select([exp.Column(this=ident(name)) for name in names], exp.Table(this=call))
    delimiter, quote, escape, newline, comment, skip, header, columns, date, timestamp = engine.rows(query)[0]
    written: dict[str, str | bool | int] = {
        "delim": delimiter, "quote": _given(quote), "escape": _given(escape), "comment": _given(comment),
        "skip": int(skip), "header": bool(header),
    }  # fmt: skip
    if newline in ("\\n", "\\r\\n", "\\r"):
        written["new_line"] = newline
    written |= {name: value for name, value in (("dateformat", date), ("timestampformat", timestamp)) if value}
    types = {column["name"]: column["type"] for column in columns}
    if header:
        _refuse_ambiguous_header(engine, path, written, len(types))
    return _Dialect(written, types)


def _given(value: str | None) -> str:
    return "" if value in (None, "(empty)") else value or ""


def _refuse_ambiguous_header(engine: DuckDBEngine, path: str, written: dict[str, str | bool | int], width: int) -> None:
    """Read the header line as data: a scan renames columns that differ in case only."""
    options = {**written, "header": False}
    options.pop("dateformat", None)
    options.pop("timestampformat", None)
    plain = _Dialect(options, {f"c{i}": "VARCHAR" for i in range(width)})
    names = [name or "" for name in engine.rows(_scan([path], plain, frozenset()).limit(1))[0]]
    refuse_ambiguous(names, Path(path).name)


def _scan(paths: list[str], dialect: _Dialect, text_columns: frozenset[str]) -> exp.Select:
    columns = exp.Struct(
        expressions=[
            exp.PropertyEQ(this=ident(name), expression=text("VARCHAR" if name.lower() in text_columns else type_))
            for name, type_ in dialect.columns.items()
        ]
    )
    arguments = [
        exp.Array(expressions=[literal_path(path) for path in paths]),
        *_named_arguments({"auto_detect": False, "hive_partitioning": False, **dialect.options}),
        exp.EQ(this=exp.Var(this="columns"), expression=columns),
    ]
    return select([exp.Star()], exp.Table(this=exp.Anonymous(this="read_csv", expressions=arguments)))


def _named_arguments(options: Any) -> list[exp.Expr]:
    return [exp.EQ(this=exp.Var(this=name), expression=exp.convert(value)) for name, value in options.items()]
