"""The table and the hierarchies of a project, as CSV files that sqlanon reads."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlanon.arx.archive import Archive
from sqlanon.arx.project import DATA, Attribute

_MISSING = "NULL"
"""ARX writes it for a missing value."""
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]+")
# The unambiguous letters of Java's SimpleDateFormat, for strptime.
_LETTERS: Mapping[str, str] = {
    "yyyy": "%Y", "MM": "%m", "M": "%m", "dd": "%d", "d": "%d", "HH": "%H", "H": "%H", "mm": "%M", "ss": "%S",
}  # fmt: skip


@dataclass(frozen=True)
class HierarchyFile:
    content: str
    width: int
    has_root: bool  # its last column has one label


def read_hierarchy(archive: Archive, entry: str, separator: str) -> HierarchyFile:
    """A hierarchy as ARX exports it; files with a separator other than ``;`` or ``,`` are rewritten with ``;``."""
    content = archive.text(entry)
    try:
        rows = [row for row in csv.reader(io.StringIO(content, newline=""), delimiter=separator, strict=True) if row]
    except csv.Error as error:
        raise archive.error(f"{entry} is not valid CSV: {error}") from None
    if not rows:
        raise archive.error(f"{entry} is empty")
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise archive.error(f"{entry} has lines of {min(widths)} and of {max(widths)} fields")
    if separator != ";" and (separator != "," or _also_splits_at_semicolons(content)):
        output = io.StringIO(newline="")
        csv.writer(output, delimiter=";", lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
        content = output.getvalue()
    return HierarchyFile(content, len(rows[0]), len({row[-1] for row in rows}) == 1)


def _also_splits_at_semicolons(content: str) -> bool:
    """Whether ``;``, which sqlanon tries first, also splits all lines into the same number of fields."""
    try:
        counts = {len(row) for row in csv.reader(io.StringIO(content, newline=""), delimiter=";", strict=True) if row}
    except csv.Error:
        return False
    return len(counts) == 1 and counts != {1}


@dataclass
class _Column:
    """A column without a hierarchy; ``is_exact``: its dates have its format, or its texts no leading zeros."""

    position: int
    attribute: Attribute
    date_format: str | None
    is_exact: bool = True

    def convert(self, value: str) -> str:
        """A number or date of ARX in the form that sqlanon reads: dates in ISO, and nothing for a missing value."""
        if value == _MISSING:
            return ""
        if self.date_format is None or not self.is_exact or not value:
            return value
        moment = datetime.strptime(value, self.date_format)
        return moment.isoformat(" ") if "%H" in self.date_format else moment.date().isoformat()

    def inspect(self, value: str) -> None:
        if self.attribute.is_text:
            self.is_exact = self.is_exact and not _LEADING_ZERO.fullmatch(value)
        elif self.is_exact:
            try:
                self.convert(value)
            except ValueError:
                self.is_exact = False

    @property
    def note(self) -> str | None:
        name, format_ = self.attribute.name, self.attribute.format
        if self.attribute.type == "Date/Time":
            if self.is_exact and self.date_format is not None:
                return f"{name}: its dates ({format_}) are written as ISO dates"
            return f"{name}: its dates ({format_}) are written unchanged: check how they are read"
        if self.attribute.is_text and not self.is_exact and self.attribute.role != "identifying":
            reason = "a mask or a hierarchy file has the column read as text"
            return f"{name}: texts such as 02139 may lose their zeros: {reason}"
        return None


def write_table(archive: Archive, separator: str, attributes: Sequence[Attribute], path: Path) -> list[str]:
    """Write the table as CSV with commas; return notes on converted values.

    Columns with a hierarchy keep their texts, which are in it. In other columns of numbers and dates, a NULL of ARX
    becomes an empty field; dates become ISO dates if all dates of the column have its format.
    """
    by_name = {attribute.name: attribute for attribute in attributes}
    with _open_rows(archive, separator) as rows:
        header = next(rows)
        _refuse_names(archive, header, by_name)
        columns = [
            _Column(position, by_name[name], _date_format(by_name[name]))
            for position, name in enumerate(header)
            if name in by_name and by_name[name].hierarchy is None
        ]
        for row in rows:
            for column in columns:
                column.inspect(row[column.position])
    with _open_rows(archive, separator) as rows, path.open("x", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(next(rows))
        converted = [column for column in columns if not column.attribute.is_text]
        for row in rows:
            for column in converted:
                row[column.position] = column.convert(row[column.position])
            writer.writerow(row)
    return [column.note for column in columns if column.note is not None]


def _refuse_names(archive: Archive, header: Sequence[str], attributes: Mapping[str, Attribute]) -> None:
    if missing := [name for name in attributes if name not in header]:
        raise archive.error(f"{DATA} has no column {missing[0]!r}, which the project defines")
    counts = Counter(name.lower() for name in header)
    if repeated := [name for name in header if counts[name.lower()] > 1]:
        raise archive.error(
            f"columns {', '.join(map(repr, repeated))} have the same name, or differ in case only; rename them in ARX"
        )


@contextmanager
def _open_rows(archive: Archive, separator: str) -> Iterator[Iterator[list[str]]]:
    """The records of the table, each with as many fields as the header."""

    def read_rows() -> Iterator[list[str]]:
        fields: int | None = None
        try:
            for record in reader:
                row = record or [""]
                fields = fields or len(row)
                if len(row) != fields:
                    raise archive.error(
                        f"line {reader.line_num} of {DATA} has {len(row)} fields, but the header has {fields}"
                    )
                yield row
        except csv.Error as error:
            raise archive.error(f"{DATA} is not valid CSV (line {reader.line_num}): {error}") from None
        if fields is None:
            raise archive.error(f"{DATA} is empty")

    with archive.stream(DATA) as lines:
        reader = csv.reader(lines, delimiter=separator, strict=True)
        yield read_rows()


def _date_format(attribute: Attribute) -> str | None:
    """The format of dates for `strptime`; None if it has other letters, such as those of years of two digits."""
    if attribute.type != "Date/Time" or attribute.format is None:
        return None
    format_ = ""
    for letter, more, between, unknown in re.findall(r"([A-Za-z])(\1*)|([^A-Za-z%']+)|(.)", attribute.format):
        if unknown or (letter and letter + more not in _LETTERS):
            return None
        format_ += between or _LETTERS[letter + more]
    return format_ if all(part in format_ for part in ("%Y", "%m", "%d")) else None
