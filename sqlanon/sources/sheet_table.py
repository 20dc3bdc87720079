"""The table in a sheet of a workbook: a header row with a name above each column, and rows below.

Up to three rows above the header with one value each are titles. What a person would have to decide is refused, with
the cell and the range that decides: ``table = "Patients!A3:F200"``. Where a range says which row is the last one, rows
are what they are; otherwise notes, totals and blank rows in the table are refused.
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
from sqlanon.support.notices import with_noun
from sqlanon.support.toml import toml_value

Place: TypeAlias = tuple[str, str]
"""A cell, and what it shows."""

_MOST_TITLES = 3  # rows above the header
_MOST_SHEETS = 5  # that an error names
_RANGE = re.compile(r"\$?([A-Za-z]{1,3})\$?([0-9]{1,7})(?::\$?([A-Za-z]{1,3})\$?([0-9]{1,7})?)?")
_TOTAL = re.compile(TOTAL_WORDS)
_OF_TOTALS: frozenset[Kind] = NUMBERS | {"error", "unreadable"}  # a formula without a result is unreadable
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
        refuse_ambiguous_names([*self._names.values()], file)
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
        self._after_blank: _Boundary | None = None  # the first row that has a blank row above it
        self._rows_after_blank = 0
        self._single: _Boundary | None = None  # the first of the last rows with one value
        self._total: _Boundary | None = None  # the first row of totals above none but such rows and rows with one value

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
        for position, row in enumerate(self._rows):
            if row.number > self._last_row + 1 and self._after_blank is None:
                self._after_blank = _Boundary(row, self._last_row)
            for cell in row.cells:
                self._note(row, cell, position)
            self._rows_after_blank += self._after_blank is not None
            self._note_end(row)
            self._row_before, self._last_row = self._last_row, row.number
            yield row
        self._refuse_merged_cells()
        if self._range.last_row == _NO_END:
            self._refuse_doubtful_end()

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

    def _note(self, row: Row, cell: Cell, position: int) -> None:
        """Take note of what a value is."""
        kinds = self._kinds.get(cell.column)
        if kinds is None:
            self._refuse_unnamed(row, cell, position)
        if cell.kind not in kinds:
            kinds[cell.kind] = _name_of(row, cell), cell.text
        if cell.kind == "error":
            self._errors[cell.column].setdefault(cell.text, _name_of(row, cell))

    def _note_end(self, row: Row) -> None:
        """Take note of a row that may be below the table, if no other row follows."""
        boundary, is_single = _Boundary(row, self._last_row), len(row.cells) == 1
        self._single = (self._single or boundary) if is_single else None
        if _is_total(row):
            self._total = self._total or boundary
        elif not is_single:
            self._total = None

    def _refuse_unnamed(self, row: Row, cell: Cell, position: int) -> NoReturn:
        """Refuse a value in a column without a name, with all that may be meant."""
        for _ in self._rows:
            pass  # the cells that are merged stand behind the rows
        header = f"row {self._header_row:,}"
        may_be_header = position == 0 or (position < _MOST_TITLES and all(cell.kind == "text" for cell in row.cells))
        above = next((range_ for range_ in self._merged_cells() if _has(range_, self._header_row, cell.column)), None)
        options: list[str] = []
        if may_be_header:
            _, _, last_row, last_column = self._range
            end = "" if last_column == _NO_END else f":{column_letters(last_column)}"
            end += "" if last_row == _NO_END else f"{last_row}"
            key = self._key(row.number, row.cells[0].column, end)
            options.append(f"if row {row.number:,} has the names of the columns, set {key}")
        blank = self._after_blank
        if blank is not None and blank.before > self._header_row:
            options.append(
                f"if the table ends above the blank row {blank.before + 1:,}, set {self._key_to(blank.before)}"
            )
        name = "unmerge the cells above it, and give each column a name" if above else "give the column a name"
        if may_be_header:
            name = f"if {header} has them, {name}"
        elif blank is None and not self._first < cell.column < self._last:
            name += f", or leave it out with {self._key_to()}"
        options.append(name)
        merged = f" (cells {_written(above)} are merged)" if above else ""
        raise SourceError(
            f"{self._where}: cell {_name_of(row, cell)} has a value, and {header}, which is taken for the names of the "
            f"columns, has none above it{merged}; {'; '.join(options)}"
        )

    def _merged_cells(self) -> Sequence[Range]:
        """The cells of the sheet that are merged, once all rows were read."""
        return self._book.merged[self._sheet.path]

    def _refuse_merged_cells(self) -> None:
        for merged in self._merged_cells():
            is_in_rows = merged.row <= self._last_row and merged.last_row >= self._header_row
            if is_in_rows and merged.column <= self._last and merged.last_column >= self._first:
                raise SourceError(
                    f"{self._where}: cells {_written(merged)} are merged, so that one value stands for several cells; "
                    "unmerge them, and fill in each one"
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
        cell = f"cell {_name_of(below.row, first)}"
        if below is self._total:
            what = f"row {below.row.number:,} looks like totals: {cell} has {in_words(first.text.strip())}, and the "
            what += "others have numbers or nothing; if it has totals"
        else:
            what = f"the last rows, from row {below.row.number:,} on, have one value each, such as {cell}; if they are "
            what += "below the table"
        raise SourceError(
            f"{self._where}: {what}, set {self._key_to(below.before)}, else {self._key_to(self._last_row)}"
        )

    def _refuse_rows_after_blank(self, blank: _Boundary, below: _Boundary | None) -> None:
        last, first, count = blank.before, blank.row.number, self._rows_after_blank
        if last == self._header_row:
            option = f"if row {first:,} has the names of the columns, set {self._key(first, self._first)}"
        else:
            option = f"if they are not of the table, set {self._key_to(last)}"
        end = self._last_row if below is None else below.before
        without = "" if below is None else f", which leaves out what looks like notes or totals from row {end + 1:,} on"
        raise SourceError(
            f"{self._where}: row {last + 1:,} is blank, and {with_noun(count, 'row', 'has', 'have')} values below it "
            f"(from row {first:,} on); {option}; if they are rows of the table, set {self._key_to(end)}{without}"
        )


class _Boundary(NamedTuple):
    """A row from which on rows may not be of the table, and the number of the row with values above it."""

    row: Row
    before: int


def _is_total(row: Row) -> bool:
    first, *others = row.cells
    return (
        first.kind == "text"
        and _TOTAL.fullmatch(first.text.strip()) is not None
        and all(cell.kind in _OF_TOTALS for cell in others)
    )


def _has(cells: Range, row: int, column: int) -> bool:
    return cells.row <= row <= cells.last_row and cells.column <= column <= cells.last_column


def _written(cells: Range) -> str:
    first = f"{column_letters(cells.column)}{cells.row}"
    return f"{first}:{column_letters(cells.last_column)}{cells.last_row}"


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
