"""What `inspect` prints: how files are read, on one screen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sqlanon.support.notices import count_noun
from sqlanon.support.terminal import make_printable, print_lines, print_table
from sqlanon.support.toml import toml_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlanon.sources.inspection import InspectedColumn, InspectedFile, Inspection

_MOST_FILES = 10


def print_inspection(found: Inspection) -> None:
    """Print an inspection; a refusal is an error of the command."""
    for file in found.files[:_MOST_FILES]:
        print_lines("\n".join(make_printable(line) for line in _describe_file(file)))
    if (more := len(found.files) - _MOST_FILES) > 0:
        print_lines(f"and {count_noun(more, 'more file')}")
    if found.rows is None:
        return
    print_lines(f"{count_noun(found.rows, 'row')}, {count_noun(len(found.columns), 'column')}")
    if found.missing is not None:
        print_lines(f"missing values: {', '.join(map(toml_value, found.missing)) or 'none'}")
    print_lines("")
    rows = [
        [make_printable(one.name), one.type, f"{one.values:,}", make_printable(_describe_fit(one))]
        for one in found.columns
    ]
    print_table(["column", "type", "values", "note"], rows)
    if found.undecided:
        print_lines("")
        print_lines("As quasi-identifiers, these columns are refused until keys decide:")
        for message in found.undecided:
            print_lines(f"- {make_printable(message)}")
    if found.csv:
        print_lines("")
        print_lines(found.toml().rstrip())


def _describe_file(file: InspectedFile) -> Iterator[str]:
    yield f"{file.name}: {file.encoding or 'encoding not known'}"
    if file.quote is not None:
        delimiter = "none" if file.delimiter is None else toml_value(file.delimiter)
        quote = "none" if not file.quote else "'\"'" if file.quote == '"' else toml_value(file.quote)
        escape = "" if file.escape is None else f", after {toml_value(file.escape)} in values"
        yield f"  delimiter {delimiter}, quote {quote}{escape}"
    if file.skip is not None:
        first = {None: "first line", True: "header", False: "no header; first row"}[file.header]
        fields = "" if file.fields is None else f", with {count_noun(file.fields, 'field')}"
        yield f"  {first} on line {file.skip + 1:,}{fields}"
    if file.bad_lines:
        more = file.bad_lines - len(file.first_bad_lines)
        shown = [*file.first_bad_lines, *([f"{more:,} more"] if more else [])]
        yield f"  {count_noun(file.bad_lines, 'bad line')}: {', '.join(shown)}"


def _describe_fit(column: InspectedColumn) -> str:
    if column.fits is None or column.share is None:
        return ""
    others = ", ".join(f"{toml_value(value)} ({count:,})" for value, count in column.others.items())
    return f"{math.floor(10_000 * column.share) / 100:g} % of the values are {column.fits}; others: {others}"
