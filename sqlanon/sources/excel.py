"""Read the tables of Excel sheets as one relation.

A workbook is read once. The texts that its cells show go to a table; the kinds of the cells determine the types.
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
from sqlanon.sources.sheet_table import CellText, SheetTable
from sqlanon.sources.source import FindLocations
from sqlanon.sources.tabular import refuse_different_columns
from sqlanon.sources.workbook import TIMES, Kind, Workbook, column_letters
from sqlanon.support.expressions import (
    as_column,
    cast,
    col,
    create_table,
    drop_table,
    select,
    select_star,
    table,
    template,
    union_all,
    values_query,
)
from sqlanon.support.fields import in_words
from sqlanon.support.toml import toml_key, toml_value

_BATCH_CELLS = 1_000_000  # held in memory at once

_TYPES: Mapping[str, frozenset[Kind]] = {
    "BIGINT": frozenset(("integer",)),
    "HUGEINT": frozenset(("integer", "long integer")),
    "DOUBLE": frozenset(("integer", "number")),
    "BOOLEAN": frozenset(("truth",)),
    "DATE": frozenset(("date",)),
    "TIMESTAMP": frozenset(("date", "moment")),
    "TIME": frozenset(("time",)),
}
"""The kinds of cells of each type; other columns are texts. A number with leading zeros is a code, such as 02139."""


@dataclass(frozen=True)
class ReadSheet:
    """The table that was read from a workbook."""

    path: str
    names: Mapping[str, int]  # position in the sheet by column name
    kinds: Mapping[str, Mapping[Kind, CellText]]  # by column, each kind with its first cell
    errors: Mapping[str, Mapping[str, str]]  # by column, each error with its first cell
    without_last_row: str  # the key that leaves the last row out

    def column(self, name: str) -> str:
        """The spelling of a column name in this workbook."""
        return next(spelling for spelling in self.names if spelling.lower() == name.lower())


@dataclass(frozen=True)
class ExcelTable:
    """The tables of workbooks with the same columns."""

    types: Mapping[str, str]  # by column, in the order of the first workbook
    sheets: Sequence[ReadSheet]
    sheet: str | None  # as given in the policy

    def locate(self, engine: DuckDBEngine) -> FindLocations:
        """A function that finds the cells of values."""

        def find_cells(column: str, values: Collection[str], limit: int) -> Sequence[CellText]:
            return [*islice(self._find_cells(engine, column, values), limit)]

        return find_cells

    @property
    def without_last_row(self) -> str:
        return self.sheets[-1].without_last_row

    def refuse_mixed_columns(self, attributes: Mapping[str, str], missing: Mapping[str, Collection[str]]) -> None:
        """Refuse columns of texts that have errors, or dates beside other values.

        ``attributes`` are those without a type in the policy, and ``missing`` the texts that mean NULL, both by column
        in lower case.
        """
        for name, type_ in self.types.items():
            attribute = attributes.get(name.lower())
            if type_ == "VARCHAR" and attribute is not None:
                key = f"attributes.{toml_key(attribute)}"
                self._refuse_errors(name, key, missing.get(name.lower(), ()))
                self._refuse_dates_beside_other_values(name, key)

    def _refuse_errors(self, name: str, attribute: str, missing: Collection[str]) -> None:
        for sheet in self.sheets:
            for error, cell in sheet.errors[sheet.column(name)].items():
                if error not in missing:
                    raise SourceError(
                        f"source.files: {file_name(sheet.path)}: cell {cell} has the error {error}; correct it, or "
                        f"add missing = [{toml_value(error)}] to {attribute}: then it is NULL"
                    )

    def _refuse_dates_beside_other_values(self, name: str, attribute: str) -> None:
        first_cells: dict[bool, str] = {}
        for sheet in self.sheets:
            file = f" of {file_name(sheet.path)}" if len(self.sheets) > 1 else ""
            for kind, (cell, cell_text) in sheet.kinds[sheet.column(name)].items():
                first_cells.setdefault(kind in TIMES, f"{in_words(cell_text)} in cell {cell}{file}")
        if len(first_cells) == 2:
            raise SourceError(
                f"source.files: column {name!r} has dates or times, and other values: {first_cells[True]}, "
                f'{first_cells[False]}; make its cells alike, or add type = "date" and missing = [...] to '
                f'{attribute}, or type = "text"'
            )

    def _find_cells(self, engine: DuckDBEngine, column: str, values: Collection[str]) -> Iterator[CellText]:
        for sheet in self.sheets:
            file = f"{file_name(sheet.path)}, " if len(self.sheets) > 1 else ""
            position = sheet.names[sheet.column(column)]
            with _open_sheet_table(engine, sheet.path, self.sheet) as sheet_table:
                for row in sheet_table.data():
                    for cell in row.cells:
                        if cell.column == position and cell.text in values:
                            yield f"{file}cell {column_letters(position)}{row.number}", cell.text


def copy_excel(
    engine: DuckDBEngine,
    paths: Sequence[str],
    text_columns: Collection[str],
    sheet: str | None,
    wanted: Collection[str],
    target: exp.Table,
) -> ExcelTable:
    """Copy the tables of workbooks to a table."""
    raw = [table(f"{target.name}_raw_{index}", target.db, target.catalog) for index in range(len(paths))]
    try:
        sheets = [_read_sheet(engine, path, sheet, rows) for path, rows in zip(paths, raw, strict=True)]
        types = _find_common_types(sheets, text_columns, wanted)
        queries: list[exp.Query] = []
        for read_sheet, rows in zip(sheets, raw, strict=True):
            values: list[exp.Expr] = [
                as_column(cast(col(_raw_name(read_sheet.names[read_sheet.column(name)])), type_), name)
                for name, type_ in types.items()
            ]
            queries.append(select(values, rows.copy()))
        engine.execute(create_table(target.copy(), union_all(*queries)))
    finally:
        for rows in raw:
            engine.execute(drop_table(rows.copy(), exists=True))
    return ExcelTable(types, sheets, sheet)


def describe_excel(
    engine: DuckDBEngine,
    paths: Sequence[str],
    text_columns: Collection[str],
    sheet: str | None,
    wanted: Collection[str],
) -> exp.Select:
    """A query without rows that has the columns of workbooks: for plans."""
    sheets = [_read_sheet(engine, path, sheet) for path in paths]
    return values_query(_find_common_types(sheets, text_columns, wanted), [])


def _find_common_types(
    sheets: Sequence[ReadSheet], text_columns: Collection[str], wanted: Collection[str]
) -> dict[str, str]:
    """Find the type of each column from the values of all workbooks."""
    refuse_different_columns([(sheet.path, dict.fromkeys(sheet.names)) for sheet in sheets])
    types: dict[str, str] = {}
    for name in sheets[0].names:
        kinds: set[Kind] = set()
        for sheet in sheets:
            sheet_kinds = sheet.kinds[sheet.column(name)]
            if "unreadable" in sheet_kinds and (not wanted or name.lower() in wanted):
                cell, reason = sheet_kinds["unreadable"]
                raise SourceError(f"source.files: {file_name(sheet.path)}: cell {cell} {reason}")
            kinds |= {*sheet_kinds}
        fitting = (type_ for type_, type_kinds in _TYPES.items() if kinds and kinds <= type_kinds)
        types[name] = "VARCHAR" if name.lower() in text_columns else next(fitting, "VARCHAR")
    return types


def _read_sheet(engine: DuckDBEngine, path: str, sheet: str | None, target: exp.Table | None = None) -> ReadSheet:
    """Read the table of a workbook; with a target, copy the texts that its cells show."""
    import pyarrow  # noqa: PLC0415

    with _open_sheet_table(engine, path, sheet) as sheet_table:
        schema = pyarrow.schema([(_raw_name(column), pyarrow.string()) for column in sheet_table.columns])
        if target is not None:
            engine.copy_arrow(target.copy(), schema.empty_table())
        positions = {column: i for i, column in enumerate(sheet_table.columns)}
        rows = sheet_table.data()
        while chunk := [*islice(rows, max(1, _BATCH_CELLS // len(positions)))]:
            if target is None:
                continue
            values: list[list[str | None]] = [[None] * len(chunk) for _ in positions]
            for i, row in enumerate(chunk):
                for cell in row.cells:
                    values[positions[cell.column]][i] = cell.text
            with engine.register_arrow(pyarrow.table(values, schema=schema)) as relation:
                engine.execute(exp.Insert(this=target.copy(), expression=select_star(relation)))
        names = sheet_table.names
        return ReadSheet(
            path,
            names,
            {name: sheet_table.cell_kinds(column) for name, column in names.items()},
            {name: sheet_table.cell_errors(column) for name, column in names.items()},
            sheet_table.without_last_row,
        )


def _raw_name(column: int) -> str:
    return f"column {column}"


@contextmanager
def _open_sheet_table(engine: DuckDBEngine, path: str, sheet: str | None) -> Iterator[SheetTable]:
    name = file_name(path)
    with _open_workbook_file(engine, path) as file, Workbook(file, name) as book:
        yield SheetTable(book, name, sheet)


def _open_workbook_file(engine: DuckDBEngine, path: str) -> BinaryIO:
    return (
        io.BytesIO(engine.rows(template("SELECT content FROM read_blob(:path)")(path=path))[0][0])
        if is_remote(path)
        else Path(path).open("rb")
    )
