"""Read the tables of Excel sheets as one relation.

A table has a header row with a name above each column, and rows below; up to three rows with one value each above the
header are titles. Doubtful sheets are refused, with the range that decides: ``table = "Patients!A3:F200"``. If it has
a last row, its rows are read without doubts; otherwise notes, totals and blank rows are refused. A workbook is read
once: the texts that its cells show go to a table, and the kinds of the cells determine the types.
"""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeAlias

from sqlglot import exp

from sqlanon.errors import SourceError
from sqlanon.places.databases import file_name, is_remote
from sqlanon.sources.columns import refuse_ambiguous_names, refuse_different_columns
from sqlanon.sources.files.csv_lines import TOTAL_WORDS
from sqlanon.sources.files.scan import FileTable, Scan, raw_tables
from sqlanon.sources.files.workbook import (
    NUMBERS,
    TIMES,
    Cell,
    Kind,
    Range,
    Row,
    Sheet,
    Workbook,
    column_letters,
    column_number,
)
from sqlanon.support.expressions import (
    as_column,
    cast,
    col,
    create_table,
    select,
    select_star,
    template,
    union_all,
    values_query,
)
from sqlanon.support.fields import in_words
from sqlanon.support.notices import count_noun
from sqlanon.support.toml import toml_key, toml_value

CellText: TypeAlias = tuple[str, str]
"""The name of a cell, and the text that it shows."""

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
_MAX_TITLE_ROWS = 3  # rows above the header
_MAX_LISTED_SHEETS = 5  # in an error
_RANGE = re.compile(r"\$?([A-Za-z]{1,3})\$?([0-9]{1,7})(?::\$?([A-Za-z]{1,3})\$?([0-9]{1,7})?)?")
_TOTAL = re.compile(TOTAL_WORDS)
_TOTAL_KINDS: frozenset[Kind] = NUMBERS | {"error", "unreadable"}  # a formula without a result is unreadable
_NO_END = 2**30
_WHOLE_SHEET = Range(1, 0, _NO_END, _NO_END)


class SheetTable:
    """The table of a sheet. ``data`` reads its rows once; the kinds of its values are known afterwards.

    ``file`` is the name of the workbook in messages, and ``location`` a sheet, or a sheet and a range; None: the only
    sheet with values.
    """

    def __init__(self, book: Workbook, file: str, location: str | None) -> None:
        self._book, self._prefix = book, f"source.files: {file}"
        self._sheet, self._range = _choose_sheet(book, file, location)
        self._rows = self._rows_in_range()
        header = self._find_header()
        self._header_row = header.number
        self._names = {cell.column: self._column_name(header, cell) for cell in header.cells if cell.text.strip()}
        if not self._names:
            raise SourceError(f"{self._prefix}: row {header.number:,} has no names of columns")
        refuse_ambiguous_names([*self._names.values()], file)
        self._first_column, self._last_column = min(self._names), max(self._names)
        self._unnamed: int | None = None
        if self._first_column > self._range.column:  # a column of row numbers often has no name
            self._first_column -= 1
            self._names = {self._first_column: f"{column_letters(self._first_column)}{header.number}", **self._names}
            self._unnamed = self._first_column
        # By column, the kinds of its values and the errors in it, each with its first cell.
        self.kinds: dict[int, dict[Kind, CellText]] = {column: {} for column in self._names}
        self.errors: dict[int, dict[str, str]] = {column: {} for column in self._names}
        self._last_row = self._row_before = header.number
        self._after_blank: _Boundary | None = None  # the first row below a blank row
        self._rows_after_blank = 0
        self._single: _Boundary | None = None  # the first of the single-value rows at the end
        self._total: _Boundary | None = None  # the first row of totals at the end

    @property
    def columns(self) -> Sequence[int]:
        """The positions of possible columns of the table."""
        return [*self._names]

    @property
    def names(self) -> Mapping[str, int]:
        """The positions of columns by name, once all rows have been read."""
        return {name: column for column, name in self._names.items() if column != self._unnamed or self.kinds[column]}

    @property
    def without_last_row(self) -> str:
        """The key that leaves the last row out."""
        return self._table_key_to(self._row_before)

    def data(self) -> Iterator[Row]:
        """The rows below the header."""
        for position, row in enumerate(self._rows):
            if row.number > self._last_row + 1 and self._after_blank is None:
                self._after_blank = _Boundary(row, self._last_row)
            for cell in row.cells:
                if cell.column not in self.kinds:
                    self._refuse_unnamed(row, cell, position)
                if cell.kind not in self.kinds[cell.column]:
                    self.kinds[cell.column][cell.kind] = _cell_name(row, cell), cell.text
                if cell.kind == "error":
                    self.errors[cell.column].setdefault(cell.text, _cell_name(row, cell))
            self._rows_after_blank += self._after_blank is not None
            # A row may be below the table, if no other row follows.
            boundary, is_single = _Boundary(row, self._last_row), len(row.cells) == 1
            self._single = (self._single or boundary) if is_single else None
            if _is_total(row):
                self._total = self._total or boundary
            elif not is_single:
                self._total = None
            self._row_before, self._last_row = self._last_row, row.number
            yield row
        self._refuse_merged_cells()
        if self._range.last_row == _NO_END:
            self._refuse_doubtful_end()

    @property
    def _has_given_range(self) -> bool:
        """Whether the policy gives the range of the table."""
        return self._range is not _WHOLE_SHEET

    def _table_key(self, row: int, column: int, end: str = "") -> str:
        place = f"{self._sheet.name}!{column_letters(column)}{row}{end}"
        return f"table = {toml_value(place)} under [source]"

    def _table_key_to(self, last_row: int | None = None) -> str:
        """The key for the table down to a row, or to the end."""
        end = f":{column_letters(self._last_column)}{'' if last_row is None else last_row}"
        return self._table_key(self._header_row, min(self.names.values()), end)

    def _rows_in_range(self) -> Iterator[Row]:
        first_row, first_column, last_row, last_column = self._range
        for row in self._book.rows(self._sheet):
            cells = [cell for cell in row.cells if first_column <= cell.column <= last_column and cell.text.strip()]
            if cells and first_row <= row.number <= last_row:
                yield Row(row.number, cells)

    def _find_header(self) -> Row:
        """The first row with several values; in a sheet of one column, the first one."""
        first = next(self._rows, None)
        if first is None or (self._has_given_range and first.number != self._range.row):
            place = f"row {self._range.row:,} of " if self._has_given_range else ""
            raise SourceError(f"{self._prefix}: {place}sheet {in_words(self._sheet.name)} has no cells with values")
        if self._has_given_range or len(first.cells) > 1:
            return first
        above: list[Row] = [first]
        for row in self._rows:
            if len(row.cells) > 1:
                if len(above) > _MAX_TITLE_ROWS:
                    raise SourceError(
                        f"{self._prefix}: the first {len(above):,} rows with values have one each, and row "
                        f"{row.number:,} has {len(row.cells)}; if it has the names of the columns, set "
                        f"{self._table_key(row.number, row.cells[0].column)}"
                    )
                return row
            above.append(row)
        self._rows = chain(above[1:], self._rows)
        return first

    def _column_name(self, header: Row, cell: Cell) -> str:
        if cell.kind != "text" and not self._has_given_range:
            raise SourceError(
                f"{self._prefix}: row {header.number:,} is read as the header, and has {cell.text} in "
                f"cell {_cell_name(header, cell)}; if these are the names, set "
                f"{self._table_key(header.number, header.cells[0].column)}, otherwise the cell where the names begin"
            )
        return cell.text.strip()

    def _refuse_unnamed(self, row: Row, cell: Cell, position: int) -> NoReturn:
        """Refuse a value in a column without a name, with all possible remedies."""
        for _ in self._rows:
            pass  # merged cells come after the rows
        header = f"row {self._header_row:,}"
        may_be_header = position == 0 or (position < _MAX_TITLE_ROWS and all(cell.kind == "text" for cell in row.cells))
        header_row, column = self._header_row, cell.column
        above = next(
            (
                merged
                for merged in self._merged_cells()
                if merged.row <= header_row <= merged.last_row and merged.column <= column <= merged.last_column
            ),
            None,
        )
        options: list[str] = []
        if may_be_header:
            _, _, last_row, last_column = self._range
            end = "" if last_column == _NO_END else f":{column_letters(last_column)}"
            end += "" if last_row == _NO_END else f"{last_row}"
            key = self._table_key(row.number, row.cells[0].column, end)
            options.append(f"if row {row.number:,} has the names of the columns, set {key}")
        blank = self._after_blank
        if blank is not None and blank.before > self._header_row:
            options.append(
                f"if the table ends above the blank row {blank.before + 1:,}, set {self._table_key_to(blank.before)}"
            )
        name = "unmerge the cells above it, and give each column a name" if above else "give the column a name"
        if may_be_header:
            name = f"if {header} has them, {name}"
        elif blank is None and not self._first_column < cell.column < self._last_column:
            name += f", or leave it out with {self._table_key_to()}"
        options.append(name)
        merged = f" (cells {_format_range(above)} are merged)" if above else ""
        raise SourceError(
            f"{self._prefix}: cell {_cell_name(row, cell)} has a value, and {header}, which is read as the header, "
            f"has no name above it{merged}; {'; '.join(options)}"
        )

    def _merged_cells(self) -> Sequence[Range]:
        """The merged cells of the sheet, once all rows have been read."""
        return self._book.merged[self._sheet.path]

    def _refuse_merged_cells(self) -> None:
        for merged in self._merged_cells():
            is_in_rows = merged.row <= self._last_row and merged.last_row >= self._header_row
            if is_in_rows and merged.column <= self._last_column and merged.last_column >= self._first_column:
                raise SourceError(
                    f"{self._prefix}: cells {_format_range(merged)} are merged, so that one value stands for several "
                    "cells; unmerge them, and fill in each one"
                )

    def _refuse_doubtful_end(self) -> None:
        """Refuse last rows that look like notes or totals, and rows below a blank row."""
        below, blank, single, count = self._total, self._after_blank, self._single, len(self.names)
        if single is not None and (count > 2 or (count == 2 and single.row.number > single.before + 1)):
            below = single if below is None or single.before < below.before else below
        if blank is not None and (below is None or blank.before < below.before):
            self._refuse_rows_after_blank(blank, below)
        if below is not None:
            self._refuse_rows_below(below)

    def _refuse_rows_below(self, below: _Boundary) -> None:
        first = below.row.cells[0]
        cell = f"cell {_cell_name(below.row, first)}"
        if below is self._total:
            doubt = (
                f"row {below.row.number:,} looks like totals: {cell} has {in_words(first.text.strip())}, and the "
                "others have numbers or nothing; if it has totals"
            )
        else:
            doubt = (
                f"the last rows, from row {below.row.number:,} on, have one value each, such as {cell}; if they are "
                "below the table"
            )
        raise SourceError(
            f"{self._prefix}: {doubt}, set {self._table_key_to(below.before)}, otherwise "
            f"{self._table_key_to(self._last_row)}"
        )

    def _refuse_rows_after_blank(self, blank: _Boundary, below: _Boundary | None) -> None:
        last, first, count = blank.before, blank.row.number, self._rows_after_blank
        if last == self._header_row:
            option = f"if row {first:,} has the names of the columns, set {self._table_key(first, self._first_column)}"
        else:
            option = f"if they are not part of the table, set {self._table_key_to(last)}"
        end = self._last_row if below is None else below.before
        without = "" if below is None else f", which leaves out the likely notes or totals from row {end + 1:,} on"
        raise SourceError(
            f"{self._prefix}: row {last + 1:,} is blank, and {count_noun(count, 'row', 'has', 'have')} values below it "
            f"(from row {first:,} on); {option}; if they are part of the table, set {self._table_key_to(end)}{without}"
        )


class _Boundary(NamedTuple):
    """A row at which the table may end, and the number of the row with values above it."""

    row: Row
    before: int


def _is_total(row: Row) -> bool:
    first, *cells = row.cells
    return (
        first.kind == "text"
        and _TOTAL.fullmatch(first.text.strip()) is not None
        and all(cell.kind in _TOTAL_KINDS for cell in cells)
    )


def _format_range(cells: Range) -> str:
    first = f"{column_letters(cells.column)}{cells.row}"
    return f"{first}:{column_letters(cells.last_column)}{cells.last_row}"


def _cell_name(row: Row, cell: Cell) -> str:
    return f"{column_letters(cell.column)}{row.number}"


def _choose_sheet(book: Workbook, file: str, location: str | None) -> tuple[Sheet, Range]:
    """Choose the sheet of a table, and the range in it."""
    if location is None:
        sheets = [sheet for sheet in book.sheets if not sheet.is_hidden and next(book.rows(sheet), None) is not None]
        if len(sheets) == 1:
            return sheets[0], _WHOLE_SHEET
        if not sheets:
            raise SourceError(f"source.files: {file}: no sheet has cells with values")
        raise SourceError(
            f"source.files: {file} has {len(sheets):,} sheets with values ({_list_names(sheets)}): name one, "
            f"table = {toml_value(sheets[0].name)} under [source]"
        )
    sheet_name, _, cells = location.rpartition("!")
    for name, given_range in ((location, None), (sheet_name, cells)):
        sheet = next((sheet for sheet in book.sheets if sheet.name.lower() == name.strip("'").lower()), None)
        if sheet is not None:
            return sheet, _WHOLE_SHEET if given_range is None else _parse_range(given_range)
    raise SourceError(
        f"source.table: {file} has no sheet {in_words(sheet_name or location)}; it has {_list_names(book.sheets)}"
    )


def _list_names(sheets: Sequence[Sheet]) -> str:
    more = f", and {len(sheets) - _MAX_LISTED_SHEETS:,} more" if len(sheets) > _MAX_LISTED_SHEETS else ""
    return ", ".join(in_words(sheet.name) for sheet in sheets[:_MAX_LISTED_SHEETS]) + more


def _parse_range(cells: str) -> Range:
    """Parse a range, or the cell where a table begins: A3:F200, A3:F, A3."""
    match = _RANGE.fullmatch(cells.strip())
    if match is None:
        raise SourceError(f"source.table: {in_words(cells)} is not a range of cells; write it as A3:F200, A3:F or A3")
    first_column, first_row, last_column, last_row = match.groups()
    range_ = Range(
        int(first_row),
        column_number(first_column),
        _NO_END if last_row is None else int(last_row),
        _NO_END if last_column is None else column_number(last_column),
    )
    if range_.last_row < range_.row or range_.last_column < range_.column:
        raise SourceError(f"source.table: the range {in_words(cells)} ends before it begins")
    return range_


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


def read_excel(scan: Scan, target: exp.Table | None) -> FileTable:
    """Read the tables of workbooks with the same columns; without a target, a query without rows."""
    if target is None:
        sheets = [_read_sheet(scan, path) for path in scan.paths]
        return FileTable(values_query(_find_common_types(sheets, scan), []))
    with raw_tables(scan, target) as raw:
        sheets = [_read_sheet(scan, path, rows) for path, rows in zip(scan.paths, raw, strict=True)]
        types = _find_common_types(sheets, scan)
        queries: list[exp.Query] = []
        for sheet, rows in zip(sheets, raw, strict=True):
            values: list[exp.Expr] = [
                as_column(cast(col(_raw_name(sheet.names[sheet.column(name)])), type_), name)
                for name, type_ in types.items()
            ]
            queries.append(select(values, rows.copy()))
        scan.engine.execute(create_table(target.copy(), union_all(*queries)))

    def find_values(column: str, values: Collection[str], limit: int) -> Sequence[CellText]:
        return [*islice(_find_cells(scan, sheets, column, values), limit)]

    def refuse_mixed_columns(attributes: Mapping[str, str], missing: Mapping[str, Collection[str]]) -> None:
        for name, type_ in types.items():
            if type_ == "VARCHAR" and name.lower() in attributes:
                key = f"attributes.{toml_key(attributes[name.lower()])}"
                _refuse_errors(sheets, name, key, missing.get(name.lower(), ()))
                _refuse_dates_beside_other_values(sheets, name, key)

    return FileTable(
        target,
        locate=find_values,
        last_row_key=sheets[-1].without_last_row,
        refuse_mixed_columns=refuse_mixed_columns,
    )


def _find_cells(scan: Scan, sheets: Sequence[ReadSheet], column: str, values: Collection[str]) -> Iterator[CellText]:
    for sheet in sheets:
        file = f"{file_name(sheet.path)}, " if len(sheets) > 1 else ""
        position = sheet.names[sheet.column(column)]
        with _open_sheet_table(scan, sheet.path) as sheet_table:
            for row in sheet_table.data():
                for cell in row.cells:
                    if cell.column == position and cell.text in values:
                        yield f"{file}cell {column_letters(position)}{row.number}", cell.text


def _refuse_errors(sheets: Sequence[ReadSheet], name: str, attribute: str, missing: Collection[str]) -> None:
    for sheet in sheets:
        for error, cell in sheet.errors[sheet.column(name)].items():
            if error not in missing:
                raise SourceError(
                    f"source.files: {file_name(sheet.path)}: cell {cell} has the error {error}; correct it, or "
                    f"add missing = [{toml_value(error)}] to {attribute}: then it is NULL"
                )


def _refuse_dates_beside_other_values(sheets: Sequence[ReadSheet], name: str, attribute: str) -> None:
    first_cells: dict[bool, str] = {}
    for sheet in sheets:
        file = f" of {file_name(sheet.path)}" if len(sheets) > 1 else ""
        for kind, (cell, cell_text) in sheet.kinds[sheet.column(name)].items():
            first_cells.setdefault(kind in TIMES, f"{in_words(cell_text)} in cell {cell}{file}")
    if len(first_cells) == 2:
        raise SourceError(
            f"source.files: column {name!r} has dates or times, and other values: {first_cells[True]}, "
            f'{first_cells[False]}; make its cells alike, or add type = "date" and missing = [...] to '
            f'{attribute}, or type = "text"'
        )


def _find_common_types(sheets: Sequence[ReadSheet], scan: Scan) -> dict[str, str]:
    """Find the type of each column from the values of all workbooks."""
    refuse_different_columns([(sheet.path, dict.fromkeys(sheet.names)) for sheet in sheets])
    types: dict[str, str] = {}
    for name in sheets[0].names:
        kinds: set[Kind] = set()
        for sheet in sheets:
            sheet_kinds = sheet.kinds[sheet.column(name)]
            if "unreadable" in sheet_kinds and scan.is_wanted(name):
                cell, reason = sheet_kinds["unreadable"]
                raise SourceError(f"source.files: {file_name(sheet.path)}: cell {cell} {reason}")
            kinds |= {*sheet_kinds}
        fitting = (type_ for type_, type_kinds in _TYPES.items() if kinds and kinds <= type_kinds)
        types[name] = "VARCHAR" if name.lower() in scan.text_columns else next(fitting, "VARCHAR")
    return types


def _read_sheet(scan: Scan, path: str, target: exp.Table | None = None) -> ReadSheet:
    """Read the table of a workbook; with a target, copy the texts that its cells show."""
    import pyarrow  # noqa: PLC0415

    with _open_sheet_table(scan, path) as sheet_table:
        schema = pyarrow.schema([(_raw_name(column), pyarrow.string()) for column in sheet_table.columns])
        if target is not None:
            scan.engine.copy_arrow(target.copy(), schema.empty_table())
        positions = {column: i for i, column in enumerate(sheet_table.columns)}
        rows = sheet_table.data()
        while chunk := [*islice(rows, max(1, _BATCH_CELLS // len(positions)))]:
            if target is None:
                continue
            values: list[list[str | None]] = [[None] * len(chunk) for _ in positions]
            for i, row in enumerate(chunk):
                for cell in row.cells:
                    values[positions[cell.column]][i] = cell.text
            with scan.engine.register_arrow(pyarrow.table(values, schema=schema)) as relation:
                scan.engine.execute(exp.Insert(this=target.copy(), expression=select_star(relation)))
        names = sheet_table.names
        kinds = {name: sheet_table.kinds[column] for name, column in names.items()}
        errors = {name: sheet_table.errors[column] for name, column in names.items()}
        return ReadSheet(path, names, kinds, errors, sheet_table.without_last_row)


def _raw_name(column: int) -> str:
    return f"column {column}"


@contextmanager
def _open_sheet_table(scan: Scan, path: str) -> Iterator[SheetTable]:
    read_blob = template("SELECT content FROM read_blob(:path)")
    with (
        io.BytesIO(scan.engine.rows(read_blob(path=path))[0][0]) if is_remote(path) else Path(path).open("rb") as file,
        closing(Workbook(file, file_name(path))) as book,
    ):
        yield SheetTable(book, file_name(path), scan.sheet)
