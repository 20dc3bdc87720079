"""Rows of linked tables as texts: the values of each row with those of its ancestors, or with its nested child rows.

Values are quoted, and each row begins with the name of its table, so different rows have different texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.support.expressions import cast, col, fragment, ident, template, text

_PERSONS = template("SELECT :key AS row_key, :key AS person, :row_values AS class, '' AS known_row FROM :rows AS rows")

_ROWS = template("""
    SELECT :key AS row_key, :reference AS parent_key, concat(:name, '(', :row_values, ')') AS :column
    FROM :rows AS rows
""")

_KNOWN_ROWS = template("""
    SELECT child.row_key, parent.person, parent.class, concat(parent.known_row, child.row_text) AS known_row
    FROM :child_rows AS child
    JOIN :parents AS parent ON child.parent_key = parent.row_key
""")

_NESTED_ROWS = template("""
    SELECT parent.row_key, parent.parent_key, concat(parent.whole_row, '[', nested.child_rows, ']') AS whole_row
    FROM :parents AS parent
    LEFT JOIN (
        SELECT parent_key, string_agg(whole_row, ';' ORDER BY whole_row) AS child_rows
        FROM :children AS children
        GROUP BY parent_key
    ) AS nested ON parent.row_key = nested.parent_key
""")

# Few texts differ in a release, and a hash of each row would take most of the time.
_NESTED_DIGESTS = template("""
    WITH children AS (:children),
    hashes AS (
        SELECT whole_row, md5_number_lower(whole_row) AS hash
        FROM (SELECT DISTINCT whole_row FROM children AS c) AS distinct_rows
    )
    SELECT parent.row_key, parent.parent_key, concat(parent.whole_row, '[', nested.digest, ']') AS whole_row
    FROM :parents AS parent
    LEFT JOIN (
        SELECT children.parent_key, sum((hashes.hash >> 32) * (hashes.hash & 2147483647))::VARCHAR AS digest
        FROM children
        JOIN hashes ON children.whole_row = hashes.whole_row
        GROUP BY children.parent_key
    ) AS nested ON parent.row_key = nested.parent_key
""")

_QUOTED = fragment("coalesce('\"' || replace(:value, '\"', '\"\"') || '\"', 'NULL')")


@dataclass(frozen=True)
class TextTable:
    """A table whose rows are written as texts.

    Attributes
    ----------
    name, parent:
        Its name, and the position of the table that its rows belong to; None for the table of persons.
    rows:
        Its rows.
    key, reference, row_values:
        Of each row, its key, the key of the row that it belongs to, and its values as one text.
    """

    name: str
    parent: int | None
    rows: exp.Expr
    key: exp.Expr
    reference: exp.Expr
    row_values: exp.Expr


def quote_values(columns: Sequence[str]) -> exp.Expr:
    """The values of columns as one text, which differs wherever a value differs: ``"2026-01","A",NULL``."""
    values: exp.Expr = text("")
    for i, column in enumerate(columns):
        separator = fragment("concat(:values, ',', :value)") if i else fragment("concat(:values, :value)")
        values = separator(values=values, value=_QUOTED(value=cast(col(column), "VARCHAR")))
    return values


def describe_known_rows(tables: Sequence[TextTable], position: int) -> exp.Select:
    """The rows of a table: ``row_key``, ``person``, ``class``, the values of the person, and ``known_row``, those of
    the row and of its ancestors below the person."""
    described = tables[position]
    if described.parent is None:
        return _PERSONS(key=described.key, row_values=described.row_values, rows=described.rows)
    parents = describe_known_rows(tables, described.parent)
    return _KNOWN_ROWS(child_rows=_describe_rows(described, "row_text"), parents=parents)


def describe_whole_rows(tables: Sequence[TextTable], position: int, as_digests: bool = False) -> exp.Select:
    """The rows of a table: ``row_key``, ``parent_key`` and ``whole_row``, the values of the row and the sorted
    texts of the rows that belong to it, or digests of them."""
    nest_rows = _NESTED_DIGESTS if as_digests else _NESTED_ROWS
    rows = _describe_rows(tables[position], "whole_row")
    for child, described in enumerate(tables):
        if described.parent == position:
            rows = nest_rows(parents=rows, children=describe_whole_rows(tables, child, as_digests))
    return rows


def _describe_rows(described: TextTable, column: str) -> exp.Select:
    return _ROWS(
        key=described.key,
        reference=described.reference,
        name=described.name,
        row_values=described.row_values,
        column=ident(column),
        rows=described.rows,
    )
