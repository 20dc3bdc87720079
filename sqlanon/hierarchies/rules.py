"""Resolve the rules of a policy to parts of a hierarchy; reads the lists in files, tables and categories."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import combinations, islice
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.hierarchies.labels import dates_part, intervals_part, mask_part
from sqlanon.hierarchies.parts import GeneratedLevels, LabelledQuery, ListedLevels, Part, RuleError, keys_query
from sqlanon.policy.rules import (
    CategoriesRule,
    DatesRule,
    FileRule,
    IntervalsRule,
    MaskRule,
    Rule,
    SuppressRule,
    TableRule,
)
from sqlanon.support.encodings import decode, describe_bad_byte, is_utf_8
from sqlanon.support.expressions import aliased, as_column, col, fragment, ident, literal_path, select, template, text
from sqlanon.support.names import table_parts


@dataclass(frozen=True)
class _RuleLevels:
    """The levels that a rule has, and the part that it becomes."""

    levels: int  # number of levels
    make: Callable[[int, bool], Part]  # the part with the first levels, by their number and whether ``*`` is above
    has_top: bool = False  # whether the last level is the top

    def count_used(self, levels: int | None, last: bool) -> tuple[int, bool]:
        """The number of used levels, and whether ``*`` is above them if the rule is the last one.

        Of a rule before the last one, all levels except its top are used, or as many as the policy says.
        """
        used = self.levels if levels is None else min(levels, self.levels)
        if not last and self.has_top and levels is None:
            used = max(0, used - 1)
        return used, not self.has_top or used < self.levels


def resolve_rules(
    rules: Sequence[Rule], column_type: str, engine: Engine | None = None, longest: int = 1
) -> tuple[list[Part], list[str]]:
    """The parts of a hierarchy, and the problems of its rules; reads hierarchy files, but no rows."""
    parts: list[Part] = []
    flaws = list(_find_narrower_ends(rules))
    for index, rule in enumerate(rules):
        try:
            rule_levels = _rule_levels(rule, column_type, engine, longest)
            parts.append(rule_levels.make(*rule_levels.count_used(_levels(rule), index == len(rules) - 1)))
        except RuleError as flaw:
            flaws.append(str(flaw))
    return parts, flaws


def _find_narrower_ends(rules: Sequence[Rule]) -> Iterator[str]:
    """Open ends beyond those of an earlier rule: merged values cannot be separated again."""
    intervals = [rule for rule in rules if isinstance(rule, IntervalsRule)]
    for before, after in combinations(intervals, 2):
        pairs: list[tuple[str, Any, Any]] = [("above", before.above, after.above), ("below", after.below, before.below)]
        for name, lower, upper in pairs:
            if type(lower) is type(upper) and lower is not None and lower < upper:
                ends = f"{name} = {getattr(after, name)} is beyond {name} = {getattr(before, name)}"
                yield f"{ends} of an earlier rule, which merges all values beyond its bound; give both the same bound"


def find_static_height(rules: Sequence[Rule], engine: Engine | None = None, longest: int | None = None) -> int | None:
    """The height of a hierarchy if it does not depend on rows of data, or None.

    >>> find_static_height([IntervalsRule(intervals=[5, 10])])
    3
    >>> find_static_height([MaskRule(mask="right")])
    >>> find_static_height([MaskRule(mask="right", levels=2)], longest=5)
    3
    """
    height = 0
    for index, rule in enumerate(rules):
        if longest is None and isinstance(rule, MaskRule):
            return None
        last = index == len(rules) - 1
        try:
            used, top = _rule_levels(rule, "", engine, longest or 1).count_used(_levels(rule), last)
        except RuleError:
            return None
        height += used + (last and top)
    return height


def _levels(rule: Rule) -> int | None:
    return None if isinstance(rule, SuppressRule) else rule.levels


def _rule_levels(rule: Rule, column_type: str, engine: Engine | None, longest: int) -> _RuleLevels:
    """The levels of a rule. Reads a file, or the columns of a table."""
    levels: _RuleLevels
    match rule:
        case MaskRule():
            levels = _RuleLevels(longest - 1, lambda used, _: mask_part(rule.mask, used, longest))
        case IntervalsRule():
            levels = _RuleLevels(len(rule.widths), lambda used, _: intervals_part(rule, used, column_type))
        case DatesRule():
            levels = _RuleLevels(len(rule.dates), lambda used, _: dates_part(rule.dates[:used], column_type))
        case SuppressRule():
            levels = _RuleLevels(
                0, lambda *_: GeneratedLevels("suppress", 0, lambda query, _: LabelledQuery(query, ()), total=True)
            )
        case CategoriesRule():
            rows = ([_leaf_text(value) for value in row] for row in rule.rows)
            query, has_one_root = _text_rows("categories", rows, rule.depth + 1), len(rule.categories) == 1
            levels = _list_levels("categories", rule.depth, query, has_top=has_one_root, lines=len(rule.rows))
        case FileRule():
            query, width, lines = _read_file(rule.file, rule.encoding, "encoding")
            levels = _list_levels(f"file {rule.file}", width - 1, query, lines=lines)
        case TableRule():
            query, width = _read_table(rule.table, engine)
            levels = _list_levels(f"table {rule.table}", width - 1, query)
    return levels


def read_value_labels(
    file: Path | None, table: str | None, column_type: str, engine: Engine | None
) -> tuple[str, exp.Select]:
    """Read a file or table with two columns: the values of a column, and a text for each.

    Returns its name for messages, and a query with the columns ``text``, ``key`` (see `keys_query`) and ``c1``. Raises
    `RuleError` if it cannot be read.
    """
    if file is not None:
        name, (query, width, _) = f"file {file}", _read_file(file)
    else:
        name, (query, width) = f"table {table}", _read_table(table or "", engine)
    if width != 2:
        raise RuleError(f"{name} has {width} columns: it needs two")
    return name, keys_query(query, 1, column_type)


def _read_file(path: Path, encoding: str | None = None, key: str | None = None) -> tuple[exp.Select, int, int]:
    """A query of a file's columns ``c0``, ``c1``, ... as texts, their number, and the number of lines.

    ``key`` is the policy key of its encoding, if there is one.
    """
    raw = _read_bytes(path)
    try:
        content = decode(raw, encoding)
    except UnicodeError as error:
        raise RuleError(f"file {path}: {describe_bad_byte(raw, error, encoding, key)}") from None
    separator, width, lines = _inspect(path, content)
    if is_utf_8(raw, encoding):
        return _file_query(path.absolute(), separator, width), width, lines
    # The engine cannot read other encodings.
    records = csv.reader(io.StringIO(content, newline=""), delimiter=separator, strict=True)
    return _text_rows("file", (fields for fields in records if fields), width), width, lines


def _text_rows(name: str, rows: Iterable[Sequence[str]], width: int) -> exp.Select:
    """Rows of texts as VALUES, with the columns ``c0``, ``c1``, ...."""
    names = [f"c{i}" for i in range(width)]
    tuples = [exp.Tuple(expressions=[text(value) for value in row]) for row in rows]
    alias = exp.TableAlias(this=ident(name), columns=[ident(name) for name in names])
    return select([col(name) for name in names], exp.Values(expressions=tuples, alias=alias))


def _read_table(name: str, engine: Engine | None) -> tuple[exp.Select, int]:
    """A query of a table's columns ``c0``, ``c1``, ... as texts, and their number."""
    if engine is None:
        raise RuleError(f"the columns of table {name} are unknown")
    table = _named_table(name)
    try:
        names = list(engine.columns(table))
    except Exception as error:  # each engine raises its own errors
        reason = str(error).partition("\n")[0]
        raise RuleError(f"table {name} cannot be read: {reason}") from None
    # Readers see the case of a label, regardless of the column's collation.
    label = fragment(':column::VARCHAR COLLATE "binary"')
    columns: list[exp.Expr] = [as_column(label(column=col(name, "t")), f"c{i}") for i, name in enumerate(names)]
    return select(columns, aliased(table, "t")), len(names)


def _list_levels(
    name: str, width: int, query: exp.Select, *, has_top: bool = True, lines: int | None = None
) -> _RuleLevels:
    return _RuleLevels(width, lambda used, top: ListedLevels(name, used, width, query, top, lines), has_top)


def _leaf_text(leaf: Any) -> str:
    """The text of a ground value in SQL."""
    if isinstance(leaf, bool):
        return str(leaf).lower()
    return leaf.isoformat() if isinstance(leaf, date) else str(leaf)


def _named_table(name: str) -> exp.Table:
    """The table with this name: ``table``, ``schema.table`` or ``database.schema.table``, optionally in double quotes.

    The name is never parsed as SQL.

    >>> _named_table('geo."my table"').sql("duckdb")
    '"geo"."my table"'
    """
    parts = [ident(part) for part in table_parts(name)]
    if not parts:
        raise RuleError(f"{name!r} is not a table name: write table, schema.table or database.schema.table")
    return exp.Table(
        this=parts[-1], db=parts[-2] if len(parts) > 1 else None, catalog=parts[-3] if len(parts) > 2 else None
    )


_SEPARATORS = (";", ",")
_SNIFFED_LINES = 100
_MAX_LISTED = 5


def _inspect(path: Path, content: str) -> tuple[str, int, int]:
    """The separator of a hierarchy file, its fields per line including the key, and its number of lines.

    (Lines are records: a quoted field may span several lines of text.)
    """
    separator = _separator(content)
    try:
        counts = list(_field_counts(content, separator))
    except csv.Error as error:
        raise RuleError(
            f"file {path} is not valid CSV: {error}; close each quote, and double the quotes inside a field"
        ) from None
    if not counts:
        raise RuleError(f"file {path} is empty: it needs one line per ground value, leaf to root")
    width = Counter(fields for _, fields in counts).most_common(1)[0][0]
    ragged = [(line, fields) for line, fields in counts if fields != width]
    if ragged:
        lines = ", ".join(
            f"line {line} has {fields} field{'s' * (fields != 1)}" for line, fields in ragged[:_MAX_LISTED]
        )
        more = f" and {len(ragged) - _MAX_LISTED} more lines differ" if len(ragged) > _MAX_LISTED else ""
        raise RuleError(f"file {path}: {lines}{more}, most have {width}: each line needs one label per level")
    return separator, width, len(counts)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise RuleError(f"file {path} does not exist; a relative path starts at the policy file") from None
    except OSError as error:
        raise RuleError(f"file {path} cannot be read: {error.strerror}") from None


def _field_counts(content: str, separator: str) -> Iterator[tuple[int, int]]:
    """The number of the last line and the number of fields of each record, except empty lines."""
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=separator, strict=True)
    for fields in reader:
        if fields:
            yield reader.line_num, len(fields)


def _separator(content: str) -> str:
    """The separator that splits all of the first lines into the same number of fields, more than one."""
    split_lines = []
    for separator in _SEPARATORS:
        try:
            first = islice(_field_counts(content, separator), _SNIFFED_LINES)
            counts = Counter(fields for _, fields in first)
        except csv.Error:
            counts = Counter()
        if len(counts) == 1 and 1 not in counts:
            return separator
        split_lines.append((sum(lines for fields, lines in counts.items() if fields > 1), separator))
    # No separator is consistent: use the one that splits more lines, and prefer `;`.
    return max(split_lines, key=lambda pair: pair[0])[1]


def _file_query(path: Path, separator: str, width: int) -> exp.Select:
    """The query of a hierarchy file: columns ``c0`` (the key), ``c1``, ... as texts; empty texts are not NULL."""
    names = [f"c{i}" for i in range(width)]
    types = [exp.PropertyEQ(this=ident(name), expression=text("VARCHAR")) for name in names]
    # Line ends may be mixed (strict_mode). The file was inspected before, and its number of lines is compared.
    return template("""
        SELECT *
        FROM read_csv(
            :path, columns = :columns, delim = :separator, quote = '"', escape = '"', comment = '', header = FALSE,
            auto_detect = FALSE, compression = 'none', hive_partitioning = FALSE, force_not_null = :names,
            strict_mode = FALSE
        )
    """)(
        path=literal_path(str(path)),
        columns=exp.Struct(expressions=types),
        separator=separator,
        names=exp.Array(expressions=[text(name) for name in names]),
    )
