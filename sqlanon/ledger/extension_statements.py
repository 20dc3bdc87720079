"""What is added to a release: rows of the source that no release has yet, beside the rows that it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from sqlanon.coding import Coded, code_name
from sqlanon.expressions import at_random, col, fragment, subquery, template
from sqlanon.frequency.sets import ClassSpace
from sqlanon.sources.earlier import EARLIER

RELEASED = 1
"""The bit of the release that is extended, among the marks."""

_IS_NEW = fragment("(:mark & :bit) = 0")
_ROWS = template("SELECT * FROM :rows WHERE :condition")
_OF_NEW = template("SELECT * FROM :relation WHERE :code IN (SELECT code_0 FROM :marks WHERE :is_new)")
_EXTENDED = template("""
    SELECT :columns
    FROM (
        SELECT :columns FROM :released
        UNION ALL
        SELECT :columns FROM :added
    ) AS r
""")
_CLASS_FIGURES = template("""
    SELECT
        coalesce(sum(size), 0) AS rows,
        count(*) AS classes,
        coalesce(min(size), 0) AS smallest_class,
        coalesce(sum(size * size::DOUBLE), 0) AS squares
    FROM (SELECT count(*) AS size FROM :rows GROUP BY :quasi) AS c
""")


def unreleased(rows: exp.Table) -> exp.Select:
    """The marked rows that the release does not have."""
    return _ROWS(rows=rows, condition=_is_new(col(EARLIER)))


def released(rows: exp.Table) -> exp.Select:
    """The marked rows that the release has."""
    return _ROWS(rows=rows, condition=~_is_new(col(EARLIER)))


def unreleased_space(space: ClassSpace, marks: Coded) -> ClassSpace:
    """The same classes, of the rows alone that the release does not have."""
    code = col(code_name(len(space.heights) - 1, 0))
    is_new = _is_new(col("value"))

    def of_new(relation: exp.Expr) -> exp.Expr:
        return subquery(_OF_NEW(relation=relation, code=code, marks=marks.table, is_new=is_new), "f")

    sensitive = {key: replace(one, table=of_new(one.table)) for key, one in space.sensitive.items()}
    return replace(space, frequency=of_new(space.frequency), sensitive=sensitive)


def _is_new(mark: exp.Expr) -> exp.Expr:
    return _IS_NEW(mark=mark, bit=RELEASED)


def extended(released: exp.Expr, added: exp.Expr, columns: Sequence[str], shuffled: bool = True) -> exp.Select:
    """The rows of a release and those that are added, in random order unless it is for checks."""
    query = _EXTENDED(columns=[col(name) for name in columns], released=released, added=added)
    return query.order_by(*at_random(), copy=False) if shuffled else query


def class_figures(rows: exp.Expr, quasi: Sequence[str]) -> exp.Select:
    """One row: ``rows``, ``classes``, ``smallest_class`` and ``squares`` of released rows."""
    return _CLASS_FIGURES(rows=rows, quasi=[col(name) for name in quasi])
