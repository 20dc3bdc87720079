"""Print how files are read, on one screen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sqlanon.support.notices import count_noun
from sqlanon.support.terminal import make_printable, print_lines, print_table
from sqlanon.support.toml import toml_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlanon.sources.files.inspection import InspectedColumn, InspectedFile, Inspection

_MAX_FILES = 10


def print_inspection(inspection: Inspection) -> None:
    """Print an inspection, without its refusal: that is an error of the command."""
    for file in inspection.files[:_MAX_FILES]:
        print_lines("\n".join(make_printable(line) for line in _describe_file(file)))
    if (more := len(inspection.files) - _MAX_FILES) > 0:
        print_lines(f"and {count_noun(more, 'more file')}")
    if inspection.rows is None:
        return
    print_lines(f"{count_noun(inspection.rows, 'row')}, {count_noun(len(inspection.columns), 'column')}")
    if inspection.missing is not None:
        print_lines(f"missing values: {', '.join(map(toml_value, inspection.missing)) or 'none'}")
    print_lines("")
    rows = []
    for column in inspection.columns:
        note = make_printable(_describe_fit(column))
        rows.append([make_printable(column.name), column.type, f"{column.values:,}", note])
    print_table(["column", "type", "values", "note"], rows)
    if inspection.undecided:
        print_lines("")
        print_lines("As quasi-identifiers, these columns are refused until keys decide:")
        for message in inspection.undecided:
            print_lines(f"- {make_printable(message)}")
    if inspection.csv:
        print_lines("")
        print_lines(inspection.toml().rstrip())


def _describe_file(file: InspectedFile) -> Iterator[str]:
    yield f"{file.name}: {file.encoding or 'encoding not known'}"
    if file.quote is not None:
        delimiter = "none" if file.delimiter is None else toml_value(file.delimiter)
        quote = "none" if not file.quote else "'\"'" if file.quote == '"' else toml_value(file.quote)
        escape = "" if file.escape is None else f", after {toml_value(file.escape)} in values"
        yield f"  delimiter {delimiter}, quote {quote}{escape}"
    if file.skip is not None:
        first_line = {None: "first line", True: "header", False: "no header; first row"}[file.header]
        fields = "" if file.fields is None else f", with {count_noun(file.fields, 'field')}"
        yield f"  {first_line} on line {file.skip + 1:,}{fields}"
    if file.bad_lines:
        more = file.bad_lines - len(file.first_bad_lines)
        lines = [*file.first_bad_lines, *([f"{more:,} more"] if more else [])]
        yield f"  {count_noun(file.bad_lines, 'bad line')}: {', '.join(lines)}"


def _describe_fit(column: InspectedColumn) -> str:
    if column.fits is None or column.share is None:
        return ""
    other_values = ", ".join(f"{toml_value(value)} ({count:,})" for value, count in column.others.items())
    return f"{math.floor(10_000 * column.share) / 100:g} % of the values are {column.fits}; others: {other_values}"
