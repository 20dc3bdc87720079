"""The table in a sheet of a workbook: a header row with a name above each column, and rows below.

Up to three rows above the header with one value each are titles. What a person would have to decide is refused, with
the cell and the range that decides: ``table = "Patients!A3:F200"``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeAlias

from sqlanon.errors import SourceError
from sqlanon.fields import in_words
from sqlanon.policy.toml import toml_value
from sqlanon.sources.plain import refuse_ambiguous
from sqlanon.sources.workbook import Cell, Kind, Range, Row, Sheet, Workbook, column_letters, column_number

Place: TypeAlias = tuple[str, str]
"""A cell, and what it shows."""

_MOST_TITLES = 3  # rows above the header
_MOST_SHEETS = 5  # that an error names
_RANGE = re.compile(r"\$?([A-Za-z]{1,3})\$?([0-9]{1,7})(?::\$?([A-Za-z]{1,3})\$?([0-9]{1,7})?)?")
_NO_END = 2**30
_WHOLE_SHEET = Range(1, 0, _NO_END, _NO_END)


class SheetTable:
    """The table of a sheet. ``data`` reads its rows once, and what their values are is known afterwards.

    Parameters
    ----------
    book:
        The open workbook, and ``file`` what messages call it.
    named:
        A sheet, or a sheet and a range; None: the only sheet that has values.
    """

    def __init__(self, book: Workbook, file: str, named: str | None) -> None:
        self._book, self._file = book, file
        self._sheet, self._range = _choose_sheet(book, file, named)
        self._rows = self._rows_in_range()
        header = self._find_header()
        self._header_row = header.number
        self._names = {cell.column: self._name_in(header, cell) for cell in header.cells if cell.text.strip()}
        if not self._names:
            raise SourceError(f"{self._where}: row {header.number:,} has no names of columns")
        refuse_ambiguous([*self._names.values()], file)
        self._first, self._last = min(self._names), max(self._names)
        if self._first > self._range.column:  # row numbers often have no name
            self._first -= 1
            self._names = {self._first: f"{column_letters(self._first)}{header.number}", **self._names}
            self._unnamed: int | None = self._first
        else:
            self._unnamed = None
        self._kinds: dict[int, dict[Kind, Place]] = {column: {} for column in self._names}
        self._errors: dict[int, dict[str, str]] = {column: {} for column in self._names}
        self._last_row = self._row_before = header.number

    @property
    def columns(self) -> Sequence[int]:
        """The columns of the sheet that may be columns of the table."""
        return [*self._names]

    @property
    def names(self) -> Mapping[str, int]:
        """The columns of the table, by their names, once all rows were read."""
        return {name: column for column, name in self._names.items() if column != self._unnamed or self._kinds[column]}

    def kinds_of(self, column: int) -> Mapping[Kind, Place]:
        """What the values of a column are, each kind with its first cell."""
        return self._kinds[column]

    def errors_of(self, column: int) -> Mapping[str, str]:
        """The errors of a column, each with its first cell."""
        return self._errors[column]

    @property
    def without_last_row(self) -> str:
        """The key that leaves out the last row."""
        return self._key_to(self._row_before)

    def data(self) -> Iterator[Row]:
        """The rows below the header."""
        singles: tuple[Row, int] | None = None  # the first of the last rows with one value, and the row before it
        for row in self._rows:
            for cell in row.cells:
                self._note(row, cell)
            if len(row.cells) > 1:
                singles = None
            elif singles is None:
                singles = row, self._last_row
            self._row_before, self._last_row = self._last_row, row.number
            yield row
        self._refuse_merged_cells()
        if singles is not None and self._range.last_row == _NO_END:
            self._refuse_rows_below(*singles)

    @property
    def _where(self) -> str:
        return f"source.files: {self._file}"

    @property
    def _is_given(self) -> bool:
        """Whether the policy says where the table begins."""
        return self._range is not _WHOLE_SHEET

    def _key(self, row: int, column: int, end: str = "") -> str:
        place = f"{self._sheet.name}!{column_letters(column)}{row}{end}"
        return f"table = {toml_value(place)} under [source]"

    def _key_to(self, last_row: int | None = None) -> str:
        """The key of the table down to a row, or to the end."""
        end = f":{column_letters(self._last)}{'' if last_row is None else last_row}"
        return self._key(self._header_row, min(self.names.values()), end)

    def _rows_in_range(self) -> Iterator[Row]:
        first_row, first_column, last_row, last_column = self._range
        for row in self._book.rows(self._sheet):
            cells = [cell for cell in row.cells if first_column <= cell.column <= last_column and cell.text.strip()]
            if cells and first_row <= row.number <= last_row:
                yield Row(row.number, cells)

    def _find_header(self) -> Row:
        """The first row with several values; in a sheet of one column, the first one."""
        first = next(self._rows, None)
        if first is None or (self._is_given and first.number != self._range.row):
            place = f"row {self._range.row:,} of " if self._is_given else ""
            raise SourceError(f"{self._where}: {place}sheet {in_words(self._sheet.name)} has no cells with values")
        if self._is_given or len(first.cells) > 1:
            return first
        above: list[Row] = [first]
        for row in self._rows:
            if len(row.cells) > 1:
                if len(above) > _MOST_TITLES:
                    raise SourceError(
                        f"{self._where}: the first {len(above):,} rows with values have one each, and row "
                        f"{row.number:,} has {len(row.cells)}; if it has the names of the columns, set "
                        f"{self._key(row.number, row.cells[0].column)}"
                    )
                return row
            above.append(row)
        self._rows = chain(above[1:], self._rows)
        return first

    def _name_in(self, header: Row, cell: Cell) -> str:
        if cell.kind != "text" and not self._is_given:
            raise SourceError(
                f"{self._where}: row {header.number:,} is taken for the names of the columns, and has "
                f"{cell.text} in cell {_name_of(header, cell)}; if these are the names, set "
                f"{self._key(header.number, header.cells[0].column)}, else the cell where the names begin"
            )
        return cell.text.strip()

    def _note(self, row: Row, cell: Cell) -> None:
        """Take note of what a value is."""
        kinds = self._kinds.get(cell.column)
        if kinds is None:
            raise SourceError(
                f"{self._where}: cell {_name_of(row, cell)} has a value, and row {self._header_row:,}, which has the "
                "names of the columns, has none above it; give the column a name, or say where the table is, such as "
                f"{self._key_to()}"
            )
        if cell.kind not in kinds:
            kinds[cell.kind] = _name_of(row, cell), cell.text
        if cell.kind == "error":
            self._errors[cell.column].setdefault(cell.text, _name_of(row, cell))

    def _refuse_merged_cells(self) -> None:
        for merged in self._book.merged[self._sheet.path]:
            is_in_rows = merged.row <= self._last_row and merged.last_row >= self._header_row
            if is_in_rows and merged.column <= self._last and merged.last_column >= self._first:
                first = f"{column_letters(merged.column)}{merged.row}"
                raise SourceError(
                    f"{self._where}: cells {first}:{column_letters(merged.last_column)}{merged.last_row} are merged, "
                    "so that one value stands for several cells; unmerge them, and fill in each one"
                )

    def _refuse_rows_below(self, single: Row, before: int) -> None:
        """Refuse last rows that look like notes below the table."""
        count = len(self.names)
        if count > 2 or (count == 2 and single.number > before + 1):
            raise SourceError(
                f"{self._where}: the last rows, from row {single.number:,} on, have one value each, such as "
                f"cell {_name_of(single, single.cells[0])}; if they are below the table, set "
                f"{self._key_to(before)}, else {self._key_to(self._last_row)}"
            )


def _name_of(row: Row, cell: Cell) -> str:
    return f"{column_letters(cell.column)}{row.number}"


def _choose_sheet(book: Workbook, file: str, named: str | None) -> tuple[Sheet, Range]:
    """The sheet of a table, and the range in it."""
    if named is None:
        sheets = [sheet for sheet in book.sheets if not sheet.is_hidden and next(book.rows(sheet), None) is not None]
        if len(sheets) == 1:
            return sheets[0], _WHOLE_SHEET
        if not sheets:
            raise SourceError(f"source.files: {file}: no sheet has cells with values")
        raise SourceError(
            f"source.files: {file} has {len(sheets):,} sheets with values ({_shown_names(sheets)}): name one, "
            f"table = {toml_value(sheets[0].name)} under [source]"
        )
    sheet_name, _, range_ = named.rpartition("!")
    for name, written in ((named, None), (sheet_name, range_)):
        sheet = next((sheet for sheet in book.sheets if sheet.name.lower() == name.strip("'").lower()), None)
        if sheet is not None:
            return sheet, _WHOLE_SHEET if written is None else _read_range(written)
    raise SourceError(
        f"source.table: {file} has no sheet {in_words(sheet_name or named)}; it has {_shown_names(book.sheets)}"
    )


def _shown_names(sheets: Sequence[Sheet]) -> str:
    more = f", and {len(sheets) - _MOST_SHEETS:,} more" if len(sheets) > _MOST_SHEETS else ""
    return ", ".join(in_words(sheet.name) for sheet in sheets[:_MOST_SHEETS]) + more


def _read_range(written: str) -> Range:
    """A range, or the cell where a table begins: A3:F200, A3:F, A3."""
    found = _RANGE.fullmatch(written.strip())
    if found is None:
        raise SourceError(f"source.table: {in_words(written)} is no range of cells: write it as in A3:F200, A3:F or A3")
    first_column, first_row, last_column, last_row = found.groups()
    range_ = Range(
        int(first_row),
        column_number(first_column),
        _NO_END if last_row is None else int(last_row),
        _NO_END if last_column is None else column_number(last_column),
    )
    if range_.last_row < range_.row or range_.last_column < range_.column:
        raise SourceError(f"source.table: the range {in_words(written)} ends before it begins")
    return range_
