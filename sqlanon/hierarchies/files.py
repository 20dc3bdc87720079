"""Hierarchy files: what Python looks at before the engine reads them."""

from __future__ import annotations

import csv
import glob
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from sqlglot import exp

from sqlanon.expressions import ident, select, text
from sqlanon.hierarchies.parts import Flaw

_SEPARATORS = (";", ",")
_SNIFFED_LINES = 100
_SHOWN = 5


@dataclass(frozen=True)
class HierarchyFile:
    """A hierarchy file that is sound as a CSV file.

    Attributes
    ----------
    path:
        Where it is, absolute.
    separator:
        ``;`` or ``,``.
    width:
        Its fields per line, the key included.
    lines:
        Its lines (records: a quoted field may go over several lines of text).
    """

    path: Path
    separator: str
    width: int
    lines: int


def inspect_file(path: Path) -> HierarchyFile:
    """Find out how a hierarchy file is to be read."""
    content = _content(path)
    separator = _separator(content)
    try:
        counts = list(_field_counts(content, separator))
    except csv.Error as error:
        raise Flaw(f"file {path} is no sound CSV: {error}; close each quote, double those within") from None
    if not counts:
        raise Flaw(f"file {path} is empty: it needs one line per ground value, leaf to root")
    width = Counter(fields for _, fields in counts).most_common(1)[0][0]
    ragged = [(line, fields) for line, fields in counts if fields != width]
    if ragged:
        raise Flaw(_ragged(path, ragged, width))
    return HierarchyFile(path.absolute(), separator, width, len(counts))


def _content(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise Flaw(f"file {path} does not exist; a relative path starts at the policy file") from None
    except OSError as error:
        raise Flaw(f"file {path} cannot be read: {error.strerror}") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise Flaw(f"file {path} is not UTF-8 (line {line}): save it as UTF-8") from None


def _field_counts(content: str, separator: str) -> Iterator[tuple[int, int]]:
    """Yield the number (of its last line of text) and the fields of each record. Empty lines are skipped."""
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=separator, strict=True)
    for fields in reader:
        if fields:
            yield reader.line_num, len(fields)


def _separator(content: str) -> str:
    """Choose the separator that gives the same number of fields, more than one, in all of the first lines."""
    most = []
    for separator in _SEPARATORS:
        try:
            first = islice(_field_counts(content, separator), _SNIFFED_LINES)
            counts = Counter(fields for _, fields in first)
        except csv.Error:
            counts = Counter()
        if len(counts) == 1 and 1 not in counts:
            return separator
        most.append((sum(lines for fields, lines in counts.items() if fields > 1), separator))
    # None is consistent: take the one that splits more lines, and `;` between equals.
    return max(most, key=lambda pair: pair[0])[1]


def _ragged(path: Path, ragged: list[tuple[int, int]], width: int) -> str:
    lines = ", ".join(f"line {line} has {fields}" for line, fields in ragged[:_SHOWN])
    more = f" and {len(ragged) - _SHOWN} more lines differ" if len(ragged) > _SHOWN else ""
    return f"file {path}: {lines}{more}, but most have {width} fields: each line needs a label for each level"


def file_query(file: HierarchyFile) -> exp.Select:
    """Read a hierarchy file: columns ``c0`` (the key), ``c1``, ..., all text, the empty text stays empty."""
    names = [f"c{i}" for i in range(file.width)]
    columns = exp.Struct(expressions=[exp.PropertyEQ(this=ident(name), expression=text("VARCHAR")) for name in names])
    options: dict[str, exp.Expr] = {
        "columns": columns,
        "delim": text(file.separator),
        "quote": text('"'),
        "escape": text('"'),
        "comment": text(""),
        "header": exp.false(),
        "auto_detect": exp.false(),
        "compression": text("none"),
        "hive_partitioning": exp.false(),
        "force_not_null": exp.Array(expressions=[text(name) for name in names]),
        # Line ends may be mixed. What is not sound was refused above, and the count of lines is compared.
        "strict_mode": exp.false(),
    }
    # DuckDB takes a path for a pattern: a bracket in it has to stand for itself.
    reader = exp.ReadCSV(
        this=text(glob.escape(str(file.path))),
        expressions=[exp.Var(this=name).eq(value) for name, value in options.items()],
    )
    return select([exp.Star()], exp.Table(this=reader))
