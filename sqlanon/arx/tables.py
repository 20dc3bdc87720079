"""The table and the hierarchies of a project, as CSV files that sqlanon reads."""

from __future__ import annotations

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from sqlanon.arx.archive import Archive
from sqlanon.arx.project import DATA, Attribute
from sqlanon.errors import SourceError

_MISSING = "NULL"
"""How ARX writes a value that is missing."""

_LEADING_ZERO = re.compile(r"[+-]?0[0-9]+")
_ZEROS = "a mask or a hierarchy file has the column read as text"

# Letters of Java's SimpleDateFormat that have one meaning, as strptime and ISO have them.
_LETTERS: Mapping[str, str] = {
    "yyyy": "%Y",
    "MM": "%m",
    "M": "%m",
    "dd": "%d",
    "d": "%d",
    "HH": "%H",
    "H": "%H",
    "mm": "%M",
    "ss": "%S",
}


@dataclass(frozen=True)
class HierarchyFile:
    content: str
    width: int
    has_root: bool  # whether its last column has one label


def read_hierarchy(archive: Archive, entry: str, separator: str) -> HierarchyFile:
    """A hierarchy as ARX exports it; with another separator than ``;`` or ``,``, with ``;``."""
    content = archive.text(entry)
    try:
        rows = [row for row in csv.reader(io.StringIO(content, newline=""), delimiter=separator, strict=True) if row]
    except csv.Error as error:
        raise SourceError(f"{archive.path.name}: {entry} is not valid CSV: {error}") from None
    if not rows:
        raise SourceError(f"{archive.path.name}: {entry} is empty")
    widths = Counter(map(len, rows))
    if len(widths) > 1:
        raise SourceError(f"{archive.path.name}: {entry} has lines of {min(widths)} and of {max(widths)} fields")
    if separator != ";" and (separator != "," or _has_other_separator(content)):
        out = io.StringIO(newline="")
        csv.writer(out, delimiter=";", lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
        content = out.getvalue()
    return HierarchyFile(content, len(rows[0]), len({row[-1] for row in rows}) == 1)


def _has_other_separator(content: str) -> bool:
    """Whether ``;`` splits the lines of a file into equally many fields, too: it is the one that is tried first."""
    try:
        counts = {len(row) for row in csv.reader(io.StringIO(content, newline=""), delimiter=";", strict=True) if row}
    except csv.Error:
        return False
    return len(counts) == 1 and counts != {1}


@dataclass
class _Column:
    """How the values of a column are written: with dates in ISO, or with nothing for a missing value."""

    position: int
    attribute: Attribute
    date_format: str | None = None
    is_exact: bool = True  # whether each of its dates has its format

    def written(self, value: str) -> str:
        if value == _MISSING:
            return ""
        if self.date_format is None or not value:
            return value
        moment = datetime.strptime(value, self.date_format)
        return moment.isoformat(" ") if "%H" in self.date_format else moment.date().isoformat()


def write_table(archive: Archive, separator: str, attributes: Sequence[Attribute], path: Path) -> list[str]:
    """Write the table as CSV with commas; what was decided of its values, in words.

    Columns with a hierarchy keep their texts, which are in it. Elsewhere a NULL of ARX among numbers and dates becomes
    nothing, and dates become ISO, where each of them has its format.
    """
    by_name = {attribute.name: attribute for attribute in attributes}
    with _rows(archive, separator) as rows:
        header = next(rows)
        columns = [
            _Column(position, by_name[name], _date_format(by_name[name]))
            for position, name in enumerate(header)
            if name in by_name and by_name[name].hierarchy is None and by_name[name].type not in ("String", "Ordinal")
        ]
        _refuse_names(archive, header, by_name)
        dated = [column for column in columns if column.date_format is not None]
        texts = [
            _Column(position, by_name[name])
            for position, name in enumerate(header)
            if name in by_name and by_name[name].hierarchy is None and by_name[name].type in ("String", "Ordinal")
        ]
        for row in rows:
            for column in texts:
                column.is_exact = column.is_exact and not _LEADING_ZERO.fullmatch(row[column.position])
            for column in dated:
                column.is_exact = column.is_exact and _has_format(column, row[column.position])
    for column in dated:
        if not column.is_exact:
            column.date_format = None
    with _rows(archive, separator) as rows, open_private(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, row in enumerate(rows):
            if number:
                for column in columns:
                    row[column.position] = column.written(row[column.position])
            writer.writerow(row)
    zeros = [column.attribute for column in texts if not column.is_exact and column.attribute.role != "identifying"]
    return [*_decisions(columns), *(f"{one.name}: texts such as 02139 may lose their zeros: {_ZEROS}" for one in zeros)]


def _decisions(columns: Sequence[_Column]) -> Iterator[str]:
    for column in columns:
        attribute = column.attribute
        if attribute.type != "Date/Time":
            continue
        if column.date_format is not None:
            yield f"{attribute.name}: its dates ({attribute.format}) are written as ISO dates"
        else:
            yield f"{attribute.name}: its dates ({attribute.format}) are written as they are: check how they are read"


def _refuse_names(archive: Archive, header: Sequence[str], attributes: Mapping[str, Attribute]) -> None:
    if missing := [name for name in attributes if name not in header]:
        raise SourceError(f"{archive.path.name}: {DATA} has no column {missing[0]!r}, which the project defines")
    counts = Counter(name.lower() for name in header)
    if twice := [name for name in header if counts[name.lower()] > 1]:
        raise SourceError(
            f"{archive.path.name}: columns {', '.join(map(repr, twice))} have the same name, or differ in case only; "
            "rename them in ARX"
        )


@contextmanager
def _rows(archive: Archive, separator: str) -> Iterator[Iterator[list[str]]]:
    """The records of the table, each with as many fields as the header."""
    with archive.stream(DATA) as lines:
        yield _sound_rows(archive.path.name, csv.reader(lines, delimiter=separator, strict=True))


def _sound_rows(name: str, reader: Any) -> Iterator[list[str]]:
    fields: int | None = None
    try:
        for record in reader:
            row = record or [""]
            fields = fields or len(row)
            if len(row) != fields:
                raise SourceError(
                    f"{name}: line {reader.line_num} of {DATA} has {len(row)} fields, and the header has {fields}"
                )
            yield row
    except csv.Error as error:
        raise SourceError(f"{name}: {DATA} is not valid CSV (line {reader.line_num}): {error}") from None
    if fields is None:
        raise SourceError(f"{name}: {DATA} is empty")


def _has_format(column: _Column, value: str) -> bool:
    try:
        column.written(value)
    except ValueError:
        return False
    return True


def _date_format(attribute: Attribute) -> str | None:
    """The format of dates for `strptime`; None where it has other letters, such as those of years of two digits."""
    if attribute.type != "Date/Time" or attribute.format is None:
        return None
    parts = re.findall(r"([A-Za-z])(\1*)|([^A-Za-z%']+)|(.)", attribute.format)
    format_ = ""
    for letter, more, between, other in parts:
        if other or (letter and letter + more not in _LETTERS):
            return None
        format_ += between or _LETTERS[letter + more]
    return format_ if all(part in format_ for part in ("%Y", "%m", "%d")) else None


def open_private(path: Path) -> IO[str]:
    """A new file that only its owner reads."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8", newline="")


def write_private(path: Path, text: str) -> None:
    with open_private(path) as file:
        file.write(text)
