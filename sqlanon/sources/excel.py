"""Excel files (.xlsx), by DuckDB's extension.

The first row that is not empty has the names; empty rows are left out. DuckDB takes the type of a column from its first
cell, even an empty one. So cells are read as texts, and the first cell with a value says what the column is. A column
of numbers is BIGINT where all are whole, and VARCHAR where a value is no number, or one such as 02139.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.expressions import (
    all_of,
    anonymous,
    col,
    fragment,
    is_null,
    named,
    select,
    subquery,
    template,
    text,
    union_all,
)
from sqlanon.policy.databases import shown_name
from sqlanon.sources.plain import refuse_ambiguous
from sqlanon.sources.united import refuse_different_columns

_ROW = "row number of the sheet"  # no name of a cell, which is a column of the reader's
_NUMBERED = template("SELECT row_number() OVER () AS :row, * FROM :cells")
_FIRST = fragment("min(:row) FILTER (NOT :cell IS NULL)")
_NUMERIC = fragment("bool_and(regexp_full_match(:cell, :pattern))")

_WHOLE = "-?(0|[1-9][0-9]{0,17})([.]0+)?"
_NUMBER = "-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][-+]?[0-9]+)?"

_OF_TIME = {"DATE", "TIME", "TIMESTAMP"}

# Excel counts days from 1899-12-30, with milliseconds; a text where a date is expected is an error.
_AS = {
    "BIGINT": fragment(":cell::BIGINT"),
    "DOUBLE": fragment(":cell::DOUBLE"),
    "BOOLEAN": fragment(":cell::INTEGER::BOOLEAN"),
    "DATE": fragment("DATE '1899-12-30' + floor(:cell::DOUBLE)::INTEGER"),
    "TIME": fragment("TIME '00:00:00' + to_milliseconds(round((:cell::DOUBLE % 1) * 86400000)::BIGINT)"),
    "TIMESTAMP": fragment("TIMESTAMP '1899-12-30 00:00:00' + to_milliseconds(round(:cell::DOUBLE * 86400000)::BIGINT)"),
}


def scan_excel(
    engine: DuckDBEngine, paths: list[str], text_columns: Collection[str], sheet: str | None = None
) -> exp.Query:
    """The rows of a sheet of each file: the one of that name, else the first."""
    sheets = [_Sheet(engine, path, sheet) for path in paths]
    refuse_different_columns([(path, dict.fromkeys(one.columns)) for path, one in zip(paths, sheets, strict=True)])
    kinds: dict[str, set[Any]] = {name: set() for name in sheets[0].columns}
    for one in sheets:
        for name, kind in zip(one.names_as_in(kinds), one.columns.values(), strict=True):
            kinds[name] |= {kind} - {None}
    types = {name: _common(name, of_files, name.lower() in text_columns) for name, of_files in kinds.items()}
    return union_all(*(one.rows(types) for one in sheets))


def _common(name: str, types: set[Any], as_text: bool) -> str:
    if as_text or not types:
        return "VARCHAR"
    if len(types) == 1:
        return str(next(iter(types)))
    if types == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    if types & _OF_TIME:
        raise SourceError(f"source.files: column {name!r} has dates or times in some files only; make it alike in all")
    return "VARCHAR"


class _Sheet:
    def __init__(self, engine: DuckDBEngine, path: str, sheet: str | None) -> None:
        self.name, self._path, self._sheet = shown_name(path), path, sheet
        cells = self._cells()
        self._cell_names = list(engine.columns(cells))  # A1, B1: where the table begins
        header = engine.rows(select([col(name) for name in self._cell_names], cells).limit(1))[0]
        facts = self._facts(engine)
        self._cell_of: dict[str, str] = {}
        kinds: dict[str, str | None] = {}
        own = list(zip(self._cell_names, header, strict=True))
        refuse_ambiguous([name or cell for cell, name in own if name or facts[cell][0]], self.name)
        for cell, name in own:
            first, is_whole, is_number = facts[cell]
            if name or first:  # a column of the sheet that has neither name nor values is none
                self._cell_of[name or cell] = cell
                kinds[name or cell] = self._type(engine, cell, first, is_whole, is_number)
        self.columns: Mapping[str, str | None] = kinds

    def names_as_in(self, names: Iterable[str]) -> list[str]:
        """Its columns in their order, as another sheet spells them."""
        spelled = {name.lower(): name for name in names}
        return [spelled[name.lower()] for name in self.columns]

    def rows(self, types: Mapping[str, str]) -> exp.Select:
        output: list[exp.Expr] = []
        cells = dict(zip(self.names_as_in(types), self._cell_of.values(), strict=True))
        for name, type_ in types.items():
            cell, convert = cells[name], _AS.get(type_)
            output.append(named(convert(cell=col(cell)) if convert else col(cell), name))
        below = exp.GT(this=col(_ROW), expression=exp.convert(1))
        is_empty = all_of(is_null(col(cell)) for cell in self._cell_of.values())
        return select(output, subquery(self._numbered(), "cells")).where(below, exp.Not(this=exp.Paren(this=is_empty)))

    def _cells(self, **options: exp.Expr) -> exp.Table:
        if self._sheet is not None:
            options["sheet"] = text(self._sheet)
        options = {"header": exp.false(), "all_varchar": exp.true(), "stop_at_empty": exp.false(), **options}
        named_arguments = [exp.Var(this=name).eq(value) for name, value in options.items()]
        return exp.Table(this=anonymous("read_xlsx", text(self._path), *named_arguments))

    def _numbered(self) -> exp.Select:
        return _NUMBERED(row=exp.to_identifier(_ROW, quoted=True), cells=self._cells())

    def _facts(self, engine: DuckDBEngine) -> dict[str, tuple[int | None, bool | None, bool | None]]:
        """For each column the first row that has a value, and whether all values are whole numbers, or numbers."""
        figures: list[exp.Expr] = []
        for name in self._cell_names:
            cell = col(name)
            figures.append(_FIRST(row=col(_ROW), cell=cell))
            figures += [_NUMERIC(cell=cell, pattern=pattern) for pattern in (_WHOLE, _NUMBER)]
        rows = select(figures, subquery(self._numbered(), "cells")).where(
            exp.GT(this=col(_ROW), expression=exp.convert(1))
        )
        found = engine.rows(rows)[0]
        return {name: found[3 * i : 3 * i + 3] for i, name in enumerate(self._cell_names)}

    def _type(
        self, engine: DuckDBEngine, cell: str, first: int | None, is_whole: bool | None, is_number: bool | None
    ) -> str | None:
        """The type of a column by its first value; None where it has none."""
        if first is None:
            return None
        column, start = cell.rstrip("0123456789"), int(cell.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
        place = f"{column}{start + first - 1}"
        one = self._cells(all_varchar=exp.false(), range=text(f"{place}:{place}"))
        own = next(iter(engine.columns(one).values()))
        if own == "DOUBLE":
            return "BIGINT" if is_whole else "DOUBLE" if is_number else "VARCHAR"
        if own in _OF_TIME and not is_number:
            raise SourceError(
                f"source.files: {self.name}: the column that begins at {place} has texts among its dates or times; "
                "make its cells alike"
            )
        if own == "DATE" and not is_whole:
            return "TIMESTAMP"
        return own if own in _AS else "VARCHAR"
