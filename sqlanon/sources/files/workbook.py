"""Parse Excel workbooks (.xlsx, .xlsm): their sheets, and the cells of a sheet with the texts that they show.

No fast library preserves what matters here: python-calamine reads errors, and formulas without a value, as empty cells,
and DuckDB's extension reads dates as numbers. Whether a number is a date depends on the format of its cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from functools import lru_cache
from math import isfinite
from pathlib import PurePosixPath
from string import ascii_letters, digits
from typing import BinaryIO, Literal, NamedTuple, TypeAlias
from xml.etree import ElementTree
from zipfile import BadZipFile, ZipFile

from sqlanon.errors import SourceError

Kind: TypeAlias = Literal[
    "integer", "long integer", "number", "padded number", "text", "truth", "date", "moment", "time", "error",
    "unreadable",
]  # fmt: skip
NUMBERS: frozenset[Kind] = frozenset(("integer", "long integer", "number", "padded number"))
TIMES: frozenset[Kind] = frozenset(("date", "moment", "time"))

_Style: TypeAlias = Literal["number", "date", "time", "duration"]

_OLD_WORKBOOK = b"\xd0\xcf\x11\xe0"
_BUILT_IN_STYLES: Mapping[int, _Style] = {
    **dict.fromkeys((*range(14, 18), 22, *range(27, 32), 36, *range(50, 59)), "date"),
    **dict.fromkeys((*range(18, 22), *range(32, 36), 45, 47), "time"),
    46: "duration",
}
"""Styles of the formats that have a number and no code in the file: ECMA-376, part 1, 18.8.30."""

_NOT_DATE_CODE = re.compile(r'"[^"]*"|\\.|[_*].|\[(?!h+\]|m+\]|s+\])[^\]]*\]|am/pm|a/p', re.IGNORECASE)
"""Parts of a format code that do not belong to a date: texts, colors, conditions."""

_ELAPSED = re.compile(r"\[(h+|m+|s+)\]", re.IGNORECASE)
_ESCAPED = re.compile("_x([0-9A-Fa-f]{4})_")
_WHOLE = re.compile("-?[0-9]+")
_EXACT_DIGITS = 15  # of an Excel number
_MAX_DIGITS = 38  # of an integer in DuckDB
_ROOT = PurePosixPath()
_LAST_DAY = 2_958_465  # 9999-12-31, as days since 1899-12-30


class Cell(NamedTuple):
    column: int  # from 0
    kind: Kind
    text: str  # the text that it shows; for an unreadable cell, the reason


class Row(NamedTuple):
    number: int  # as shown by the sheet
    cells: Sequence[Cell]  # without empty ones


class Range(NamedTuple):
    """Cells from one corner to another, both included, by numbers of rows and columns."""

    row: int
    column: int
    last_row: int
    last_column: int


@dataclass(frozen=True)
class Sheet:
    name: str
    path: str  # the path in the workbook
    is_hidden: bool


def column_letters(column: int) -> str:
    """The name of a column.

    >>> column_letters(0), column_letters(27)
    ('A', 'AB')
    """
    letters = ""
    column += 1
    while column:
        column, digit = divmod(column - 1, 26)
        letters = chr(ord("A") + digit) + letters
    return letters


@lru_cache(maxsize=20_000)
def column_number(letters: str) -> int:
    """
    >>> column_number("A"), column_number("AB")
    (0, 27)
    """
    number = 0
    for letter in letters.upper():
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1


class Workbook:
    """An open workbook. ``file`` has its bytes, and ``name`` is its name in messages."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._name = name
        start = file.read(4)
        file.seek(0)
        if start == _OLD_WORKBOOK:
            raise SourceError(
                f"{name} has a password, or it is an old workbook (.xls): save it as an Excel workbook (.xlsx) without "
                "a password"
            )
        with self._broken_file_errors():
            self._zip = ZipFile(file)
            self._read_book()
        self.merged: Mapping[str, Sequence[Range]] = {}  # by path, for sheets that have been read

    def close(self) -> None:
        self._zip.close()

    def rows(self, sheet: Sheet) -> Iterator[Row]:
        """Read the rows of a sheet that have cells with values."""
        number, merged = 0, list[Range]()
        with self._broken_file_errors(), self._zip.open(sheet.path) as file:
            for _, element in ElementTree.iterparse(file):
                tag = _local_tag(element)
                if tag == "row":
                    number = int(element.get("r") or number + 1)
                    if cells := [*self._read_cells(element)]:
                        yield Row(number, cells)
                    element.clear()
                elif tag == "mergeCell":
                    merged.append(_parse_range(element.attrib["ref"]))
        self.merged = {**self.merged, sheet.path: merged}

    @contextmanager
    def _broken_file_errors(self) -> Iterator[None]:
        try:
            yield
        except (BadZipFile, KeyError, ElementTree.ParseError, ValueError, EOFError, StopIteration) as error:
            raise SourceError(f"{self._name} cannot be read as an Excel workbook: the file is broken") from error

    def _read_book(self) -> None:
        names = {name.lower(): name for name in self._zip.namelist()}
        start = self._read_relations("_rels/.rels").values()
        path = next(target for type_, target in start if type_ == "officeDocument")
        folder, base = PurePosixPath(path).parent, PurePosixPath(path).name
        targets = self._read_relations(str(folder / "_rels" / f"{base}.rels"), folder)
        book = self._parse(names[path.lower()])
        self.sheets: list[Sheet] = []
        self._has_1904 = False
        for element in book.iter():
            if _local_tag(element) == "workbookPr":
                self._has_1904 = element.get("date1904") in ("1", "true")
            elif _local_tag(element) == "sheet":
                identifier = next(value for key, value in element.attrib.items() if key.endswith("}id"))
                type_, target = targets[identifier]
                if type_ == "worksheet":
                    is_hidden = element.get("state", "visible") != "visible"
                    self.sheets.append(Sheet(element.attrib["name"], names[target.lower()], is_hidden))
        parts = {type_: names.get(target.lower()) for type_, target in targets.values()}
        self._strings = self._read_strings(parts.get("sharedStrings"))
        self._styles = self._read_styles(parts.get("styles"))

    def _read_relations(self, path: str, folder: PurePosixPath = _ROOT) -> dict[str, tuple[str, str]]:
        """Read the parts that a part refers to, by identifier: their types and paths."""
        relations: dict[str, tuple[str, str]] = {}
        for element in self._parse(path).iter():
            if _local_tag(element) == "Relationship":
                target = element.attrib["Target"]
                target = target.lstrip("/") if target.startswith("/") else str(folder / target)
                relations[element.attrib["Id"]] = element.attrib["Type"].rpartition("/")[2], target
        return relations

    def _parse(self, path: str) -> ElementTree.Element:
        with self._zip.open(path) as file:
            return ElementTree.parse(file).getroot()

    def _read_strings(self, path: str | None) -> list[str]:
        strings: list[str] = []
        if path is not None:
            with self._zip.open(path) as file:
                for _, element in ElementTree.iterparse(file):
                    if _local_tag(element) == "si":
                        strings.append(_join_text(element))
                        element.clear()
        return strings

    def _read_styles(self, path: str | None) -> list[tuple[_Style, int]]:
        """Read for each style the meaning of numbers, and the least number of digits that it shows."""
        if path is None:
            return []
        root = self._parse(path)
        codes = {
            int(element.attrib["numFmtId"]): element.attrib["formatCode"]
            for element in root.iter()
            if _local_tag(element) == "numFmt"
        }
        formats = next((element for element in root if _local_tag(element) == "cellXfs"), ())
        numbers = [int(element.get("numFmtId", 0)) for element in formats]
        built_in = {number: (_BUILT_IN_STYLES.get(number, "number"), 0) for number in numbers}
        return [_parse_style(codes[number]) if number in codes else built_in[number] for number in numbers]

    def _read_cells(self, row: ElementTree.Element) -> Iterator[Cell]:
        column = -1
        for element in row:
            reference = element.get("r")
            column = column + 1 if reference is None else column_number(reference.rstrip(digits))
            if (kind_and_text := self._read_value(element)) is not None:
                yield Cell(column, *kind_and_text)

    def _read_value(self, cell: ElementTree.Element) -> tuple[Kind, str] | None:
        """Read the kind and the text of a cell; None if it is empty."""
        value, has_formula = None, False
        for part in cell:
            tag = _local_tag(part)
            if tag == "v":
                value = part.text
            elif tag == "is":
                value = _join_text(part)
            has_formula = has_formula or tag == "f"
        if value is None and has_formula:
            return "unreadable", "has a formula without a result: open the workbook in Excel, and save it"
        return self._classify_cell(cell, value) if value else None

    def _classify_cell(self, cell: ElementTree.Element, value: str) -> tuple[Kind, str] | None:
        match cell.get("t", "n"):
            case "s" | "str" | "inlineStr" as type_:
                string = self._strings[int(value)] if type_ == "s" else value
                return ("text", string) if string else None
            case "b":
                return "truth", "true" if value in ("1", "true") else "false"
            case "e":
                return "error", value
            case "d":
                return _format_stored_date(value)
        style = cell.get("s")
        kind, width = self._styles[int(style)] if style is not None and self._styles else ("number", 0)
        return _format_number(value, kind, width, self._has_1904)


def _local_tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _join_text(element: ElementTree.Element) -> str:
    """Join the text of all runs of a string, without phonetic hints."""
    parts = [part.text or "" for part in element if _local_tag(part) == "t"]
    for run in element:
        if _local_tag(run) == "r":
            parts += [part.text or "" for part in run if _local_tag(part) == "t"]
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), "".join(parts))


def _parse_range(cells: str) -> Range:
    first, _, last = cells.partition(":")
    corners = ((corner.lstrip(ascii_letters), corner.rstrip(digits)) for corner in (first, last or first))
    return Range(*(number for row, column in corners for number in (int(row), column_number(column))))


def _parse_style(code: str) -> tuple[_Style, int]:
    """Parse the code of a format: the meaning of numbers, and the least number of digits that it shows.

    >>> _parse_style("dd.mm.yyyy"), _parse_style('0.00 "days"'), _parse_style("[h]:mm"), _parse_style("00000")
    (('date', 0), ('number', 0), ('duration', 0), ('number', 5))
    """
    plain = _NOT_DATE_CODE.sub("", code.split(";", maxsplit=1)[0]).lower()
    if _ELAPSED.search(plain):
        return "duration", 0
    has_clock = "h" in plain or "s" in plain
    if "y" in plain or "d" in plain or ("m" in plain and not has_clock):
        return "date", 0
    if has_clock:
        return "time", 0
    return "number", len(plain) if len(plain) > 1 and set(plain) == {"0"} else 0


@lru_cache(maxsize=50_000)
def _format_number(value: str, style: _Style, width: int, has_1904: bool) -> tuple[Kind, str]:
    """Format a number in the style of its cell."""
    if style == "number":
        return _format_plain_number(value, width)
    if style == "duration":
        return "unreadable", "has a length of time ([h]:mm): make it a number, such as hours"
    serial = float(value)
    if style == "date":
        return _format_day(serial, has_1904)
    if 0 <= serial < 1:
        return "time", _to_datetime(serial, datetime.min).time().isoformat()
    return "unreadable", "has a time of day beyond 24 hours: make it a date with a time, or a number of hours"


def _format_day(serial: float, has_1904: bool) -> tuple[Kind, str]:
    """Format a date. Excel counts a 29 February 1900, which never existed, unless days are counted from 1904."""
    days = serial + (datetime(1904, 1, 1) - datetime(1899, 12, 30)).days if has_1904 else serial
    if serial < (0 if has_1904 else 1) or days >= _LAST_DAY + 1 or (not has_1904 and int(serial) == 60):
        return "unreadable", f"has the number {serial:g} in a date format, which is not a valid date: correct it"
    is_before = not has_1904 and days < 60
    return _format_moment(_to_datetime(days, datetime(1899, 12, 31 if is_before else 30)))


def _format_moment(moment: datetime) -> tuple[Kind, str]:
    is_day = moment.time() == time()
    return ("date", moment.date().isoformat()) if is_day else ("moment", moment.isoformat(" "))


def _to_datetime(days: float, origin: datetime) -> datetime:
    """Convert days to a date and time, rounded to milliseconds like Excel."""
    return origin + timedelta(milliseconds=round(days * 86_400_000))


def _format_plain_number(value: str, width: int) -> tuple[Kind, str]:
    if _WHOLE.fullmatch(value):
        if len(value) < width:
            return "padded number", value.zfill(width)
        length = len(value.lstrip("-"))
        if length > _MAX_DIGITS:
            return "unreadable", f"has a number of {length} digits: make it a text"
        return ("integer" if length <= _EXACT_DIGITS else "long integer"), value
    number = float(value)
    if not isfinite(number):
        return "unreadable", f"has the number {value}, which is too large: correct it"
    if number.is_integer() and abs(number) < 10**_EXACT_DIGITS:
        return _format_plain_number(str(int(number)), width)
    return "number", repr(number)


def _format_stored_date(value: str) -> tuple[Kind, str]:
    """Format a date stored as ISO 8601, as in strict workbooks."""
    try:
        if "T" not in value and ":" in value:
            return "time", time.fromisoformat(value).isoformat()
        moment = datetime.fromisoformat(value.removesuffix("Z")).replace(tzinfo=None)
    except ValueError:
        return "unreadable", f"has the date {value}, which is not valid: correct it"
    return _format_moment(moment)
