"""Find the table in a sheet of a workbook: a header row with a name above each column, and rows below.

Up to three rows with one value each above the header are titles. Doubtful sheets are refused, with the cell and the
range that decides: ``table = "Patients!A3:F200"``. If the range has a last row, its rows are read without doubts;
otherwise notes, totals and blank rows in the table are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, NoReturn, TypeAlias

from sqlanon.errors import SourceError
from sqlanon.sources.tabular import TOTAL_WORDS, refuse_ambiguous_names
from sqlanon.sources.workbook import NUMBERS, Cell, Kind, Range, Row, Sheet, Workbook, column_letters, column_number
from sqlanon.support.fields import in_words
from sqlanon.support.notices import count_noun
from sqlanon.support.toml import toml_value

CellText: TypeAlias = tuple[str, str]
"""The name of a cell, and the text that it shows."""

_MAX_TITLE_ROWS = 3  # rows above the header
_MAX_LISTED_SHEETS = 5  # in an error
_RANGE = re.compile(r"\$?([A-Za-z]{1,3})\$?([0-9]{1,7})(?::\$?([A-Za-z]{1,3})\$?([0-9]{1,7})?)?")
_TOTAL = re.compile(TOTAL_WORDS)
_TOTAL_KINDS: frozenset[Kind] = NUMBERS | {"error", "unreadable"}  # a formula without a result is unreadable
_NO_END = 2**30
_WHOLE_SHEET = Range(1, 0, _NO_END, _NO_END)


class SheetTable:
    """The table of a sheet. ``data`` reads its rows once; the kinds of its values are known afterwards.

    Parameters
    ----------
    book:
        The open workbook.
    file:
        The name of the workbook in messages.
    location:
        A sheet, or a sheet and a range; None: the only sheet with values.
    """

    def __init__(self, book: Workbook, file: str, location: str | None) -> None:
        self._book, self._file = book, file
        self._sheet, self._range = _choose_sheet(book, file, location)
        self._rows = self._rows_in_range()
        header = self._find_header()
        self._header_row = header.number
        self._names = {cell.column: self._column_name(header, cell) for cell in header.cells if cell.text.strip()}
        if not self._names:
            raise SourceError(f"{self._prefix}: row {header.number:,} has no names of columns")
        refuse_ambiguous_names([*self._names.values()], file)
        self._first_column, self._last_column = min(self._names), max(self._names)
        if self._first_column > self._range.column:  # a column of row numbers often has no name
            self._first_column -= 1
            self._names = {self._first_column: f"{column_letters(self._first_column)}{header.number}", **self._names}
            self._unnamed: int | None = self._first_column
        else:
            self._unnamed = None
        self._kinds: dict[int, dict[Kind, CellText]] = {column: {} for column in self._names}
        self._errors: dict[int, dict[str, str]] = {column: {} for column in self._names}
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
        return {name: column for column, name in self._names.items() if column != self._unnamed or self._kinds[column]}

    def cell_kinds(self, column: int) -> Mapping[Kind, CellText]:
        """The kinds of values of a column, each with its first cell."""
        return self._kinds[column]

    def cell_errors(self, column: int) -> Mapping[str, str]:
        """The errors of a column, each with its first cell."""
        return self._errors[column]

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
                self._record_kind(row, cell, position)
            self._rows_after_blank += self._after_blank is not None
            self._record_end(row)
            self._row_before, self._last_row = self._last_row, row.number
            yield row
        self._refuse_merged_cells()
        if self._range.last_row == _NO_END:
            self._refuse_doubtful_end()

    @property
    def _prefix(self) -> str:
        return f"source.files: {self._file}"

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
                f"{self._table_key(header.number, header.cells[0].column)}, else the cell where the names begin"
            )
        return cell.text.strip()

    def _record_kind(self, row: Row, cell: Cell, position: int) -> None:
        """Record the kind of a value."""
        kinds = self._kinds.get(cell.column)
        if kinds is None:
            self._refuse_unnamed(row, cell, position)
        if cell.kind not in kinds:
            kinds[cell.kind] = _cell_name(row, cell), cell.text
        if cell.kind == "error":
            self._errors[cell.column].setdefault(cell.text, _cell_name(row, cell))

    def _record_end(self, row: Row) -> None:
        """Record a row that may be below the table, if no other row follows."""
        boundary, is_single = _Boundary(row, self._last_row), len(row.cells) == 1
        self._single = (self._single or boundary) if is_single else None
        if _is_total(row):
            self._total = self._total or boundary
        elif not is_single:
            self._total = None

    def _refuse_unnamed(self, row: Row, cell: Cell, position: int) -> NoReturn:
        """Refuse a value in a column without a name, with all possible remedies."""
        for _ in self._rows:
            pass  # merged cells come after the rows
        header = f"row {self._header_row:,}"
        may_be_header = position == 0 or (position < _MAX_TITLE_ROWS and all(cell.kind == "text" for cell in row.cells))
        above = next(
            (range_ for range_ in self._merged_cells() if _contains(range_, self._header_row, cell.column)), None
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
            f"{self._prefix}: {doubt}, set {self._table_key_to(below.before)}, else "
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
    """A row from which on rows may not belong to the table, and the number of the row with values above it."""

    row: Row
    before: int


def _is_total(row: Row) -> bool:
    first, *others = row.cells
    return (
        first.kind == "text"
        and _TOTAL.fullmatch(first.text.strip()) is not None
        and all(cell.kind in _TOTAL_KINDS for cell in others)
    )


def _contains(cells: Range, row: int, column: int) -> bool:
    return cells.row <= row <= cells.last_row and cells.column <= column <= cells.last_column


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
