"""Excel files: the tables of their sheets, as one relation.

A workbook is read once. What its cells show goes to a table of texts; the kinds of the cells say which types they have.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.places.databases import file_name, is_remote
from sqlanon.sources.sheet_table import Place, SheetTable
from sqlanon.sources.source import FindLocations
from sqlanon.sources.tabular import refuse_different_columns
from sqlanon.sources.workbook import TIMES, Kind, Workbook, column_letters
from sqlanon.support.expressions import (
    cast,
    col,
    create_table,
    drop_table,
    named,
    select,
    star,
    table,
    template,
    union_all,
    values_query,
)
from sqlanon.support.fields import in_words
from sqlanon.support.toml import toml_key, toml_value

_CELLS = 1_000_000  # that are held at once
_CONTENT = template("SELECT content FROM read_blob(:path)")

_TYPES: Mapping[str, frozenset[Kind]] = {
    "BIGINT": frozenset(("integer",)),
    "HUGEINT": frozenset(("integer", "long integer")),
    "DOUBLE": frozenset(("integer", "number")),
    "BOOLEAN": frozenset(("truth",)),
    "DATE": frozenset(("date",)),
    "TIMESTAMP": frozenset(("date", "moment")),
    "TIME": frozenset(("time",)),
}
"""The values that a column of a type has. Others are texts: a number with zeros before it is a code, such as 02139."""


@dataclass(frozen=True)
class ReadSheet:
    """The table that was read in a workbook."""

    path: str
    names: Mapping[str, int]  # the columns of the sheet, by their names
    kinds: Mapping[str, Mapping[Kind, Place]]  # by column, each with its first cell
    errors: Mapping[str, Mapping[str, str]]  # by column, each with its first cell
    without_last_row: str  # the key that leaves it out

    def column(self, name: str) -> str:
        """A column of the other workbooks as this one spells it."""
        return next(own for own in self.names if own.lower() == name.lower())


@dataclass(frozen=True)
class ExcelTables:
    """The tables of workbooks that have the same columns."""

    types: Mapping[str, str]  # by column, in the order of the first workbook
    sheets: Sequence[ReadSheet]
    sheet: str | None  # as the policy names it

    def locate(self, engine: DuckDBEngine) -> FindLocations:
        """What finds the cells of values."""

        def find(column: str, values: Collection[str], most: int) -> Sequence[Place]:
            return [*islice(self._places(engine, column, values), most)]

        return find

    @property
    def without_last_row(self) -> str:
        return self.sheets[-1].without_last_row

    def refuse_mixed_columns(self, attributes: Mapping[str, str], missing: Mapping[str, Collection[str]]) -> None:
        """Refuse columns of texts that have errors, or dates beside other values.

        ``attributes`` are those that have no type in the policy, and ``missing`` the texts that mean NULL, by columns
        in lower case.
        """
        for name, type_ in self.types.items():
            attribute = attributes.get(name.lower())
            if type_ == "VARCHAR" and attribute is not None:
                place = f"attributes.{toml_key(attribute)}"
                self._refuse_errors(name, place, missing.get(name.lower(), ()))
                self._refuse_dates_among_others(name, place)

    def _refuse_errors(self, name: str, attribute: str, missing: Collection[str]) -> None:
        for sheet in self.sheets:
            for error, cell in sheet.errors[sheet.column(name)].items():
                if error not in missing:
                    raise SourceError(
                        f"source.files: {file_name(sheet.path)}: cell {cell} has the error {error}; correct it, or "
                        f"add missing = [{toml_value(error)}] to {attribute}: then it is NULL"
                    )

    def _refuse_dates_among_others(self, name: str, attribute: str) -> None:
        first: dict[bool, str] = {}
        for sheet in self.sheets:
            file = f" of {file_name(sheet.path)}" if len(self.sheets) > 1 else ""
            for kind, (cell, shown) in sheet.kinds[sheet.column(name)].items():
                first.setdefault(kind in TIMES, f"{in_words(shown)} in cell {cell}{file}")
        if len(first) == 2:
            raise SourceError(
                f"source.files: column {name!r} has dates or times, and other values: {first[True]}, {first[False]}; "
                f'make its cells alike, or add type = "date" and missing = [...] to {attribute}, or type = "text"'
            )

    def _places(self, engine: DuckDBEngine, column: str, values: Collection[str]) -> Iterator[Place]:
        for read in self.sheets:
            file = f"{file_name(read.path)}, " if len(self.sheets) > 1 else ""
            number = read.names[read.column(column)]
            with _open_table(engine, read.path, self.sheet) as opened:
                for row in opened.data():
                    for cell in row.cells:
                        if cell.column == number and cell.text in values:
                            yield f"{file}cell {column_letters(number)}{row.number}", cell.text


def copy_excel(
    engine: DuckDBEngine,
    paths: Sequence[str],
    text_columns: Collection[str],
    sheet: str | None,
    wanted: Collection[str],
    target: exp.Table,
) -> ExcelTables:
    """Copy the tables of workbooks to a table."""
    raw = [table(f"{target.name}_raw_{index}", target.db, target.catalog) for index in range(len(paths))]
    try:
        sheets = [_read_sheet(engine, path, sheet, rows) for path, rows in zip(paths, raw, strict=True)]
        types = _common_types(sheets, text_columns, wanted)
        queries: list[exp.Query] = []
        for read, rows in zip(sheets, raw, strict=True):
            numbers = {name: read.names[read.column(name)] for name in types}
            values: list[exp.Expr] = [
                named(cast(col(_raw_name(numbers[name])), type_), name) for name, type_ in types.items()
            ]
            queries.append(select(values, rows.copy()))
        engine.execute(create_table(target.copy(), union_all(*queries)))
    finally:
        for rows in raw:
            engine.execute(drop_table(rows.copy(), exists=True))
    return ExcelTables(types, sheets, sheet)


def describe_excel(
    engine: DuckDBEngine,
    paths: Sequence[str],
    text_columns: Collection[str],
    sheet: str | None,
    wanted: Collection[str],
) -> exp.Select:
    """A relation without rows that has the columns of workbooks: for plans."""
    sheets = [_read_sheet(engine, path, sheet) for path in paths]
    return values_query(_common_types(sheets, text_columns, wanted), [])


def _common_types(
    sheets: Sequence[ReadSheet], text_columns: Collection[str], wanted: Collection[str]
) -> dict[str, str]:
    """The type of each column, by the values of all workbooks."""
    refuse_different_columns([(sheet.path, dict.fromkeys(sheet.names)) for sheet in sheets])
    types: dict[str, str] = {}
    for name in sheets[0].names:
        kinds: set[Kind] = set()
        for sheet in sheets:
            of_sheet = sheet.kinds[sheet.column(name)]
            if "unreadable" in of_sheet and (not wanted or name.lower() in wanted):
                cell, reason = of_sheet["unreadable"]
                raise SourceError(f"source.files: {file_name(sheet.path)}: cell {cell} {reason}")
            kinds |= {*of_sheet}
        fitting = (type_ for type_, of_type in _TYPES.items() if kinds and kinds <= of_type)
        types[name] = "VARCHAR" if name.lower() in text_columns else next(fitting, "VARCHAR")
    return types


def _read_sheet(engine: DuckDBEngine, path: str, sheet: str | None, target: exp.Table | None = None) -> ReadSheet:
    """Read the table of a workbook; with a target, what its cells show goes there."""
    import pyarrow  # noqa: PLC0415

    with _open_table(engine, path, sheet) as opened:
        schema = pyarrow.schema([(_raw_name(column), pyarrow.string()) for column in opened.columns])
        if target is not None:
            engine.copy_arrow(target.copy(), schema.empty_table())
        positions = {column: i for i, column in enumerate(opened.columns)}
        rows = opened.data()
        while chunk := [*islice(rows, max(1, _CELLS // len(positions)))]:
            if target is None:
                continue
            values: list[list[str | None]] = [[None] * len(chunk) for _ in positions]
            for i, row in enumerate(chunk):
                for cell in row.cells:
                    values[positions[cell.column]][i] = cell.text
            with engine.register_arrow(pyarrow.table(values, schema=schema)) as relation:
                engine.execute(exp.Insert(this=target.copy(), expression=star(relation)))
        names = opened.names
        return ReadSheet(
            path,
            names,
            {name: opened.kinds_of(column) for name, column in names.items()},
            {name: opened.errors_of(column) for name, column in names.items()},
            opened.without_last_row,
        )


def _raw_name(column: int) -> str:
    return f"column {column}"


@contextmanager
def _open_table(engine: DuckDBEngine, path: str, sheet: str | None) -> Iterator[SheetTable]:
    name = file_name(path)
    with _open(engine, path) as file, Workbook(file, name) as book:
        yield SheetTable(book, name, sheet)


def _open(engine: DuckDBEngine, path: str) -> BinaryIO:
    return io.BytesIO(engine.rows(_CONTENT(path=path))[0][0]) if is_remote(path) else Path(path).open("rb")
