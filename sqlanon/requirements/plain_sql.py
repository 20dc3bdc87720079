"""Requirements in plain SQL, for any warehouse: the classes of a release that break one, with the figure that does.

In what they are made of, ``q0, q1, ...`` are the columns that tell classes apart, ``value`` is a sensitive one, ``n``
its rows, ``p`` its share of the class and ``q`` that of the source. NULL is a value of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.expressions import col, free_name, named, number, same, select, subquery

SIZE = "class_size"


@dataclass(frozen=True)
class Released:
    """A release in a warehouse and its source, with the columns of their roles, and of each attribute."""

    release: exp.Table
    source: exp.Table
    quasi: Sequence[str]
    sensitive: Sequence[str]
    columns: Mapping[str, str]

    def small_classes(self, quasi: Sequence[str], k: int) -> exp.Select:
        """The classes of fewer than k rows, over some of the quasi-identifiers."""
        return small_classes(self.release, quasi, k)

    def values(self, attribute: str, joint: bool = False) -> ClassValues:
        """The values of a sensitive attribute in each class; ``joint``: within equal values of the other ones."""
        column = self.columns[attribute]
        keys = [*self.quasi, *(name for name in self.sensitive if name != column)] if joint else list(self.quasi)
        return ClassValues(self.release, self.source, keys, column)

    def by_share(self, part: exp.Expr, limit: float) -> exp.Select:
        """One row with the share of the released rows that a sum over classes (of ``n`` rows) is, if it is too much."""
        share = over(part, exp.Sum(this=col("n")))
        query = select([named(share, "figure")], sizes(self.release, self.quasi))
        return query.having(exp.GT(this=share.copy(), expression=number(limit)), copy=False)


@dataclass(frozen=True)
class ClassValues:
    """The values of a sensitive column in each class, of some columns; and what is worked out from them."""

    release: exp.Table
    source: exp.Table
    keys: Sequence[str]
    column: str

    def counted(self, figure: exp.Expr, broken: exp.Expr) -> exp.Select:
        """The classes whose figure over ``n`` breaks a requirement."""
        return self._breaking(self._counts(), figure, broken)

    def ranked(self, figure: exp.Expr, broken: exp.Expr) -> exp.Select:
        """The same over ``n`` and ``place``."""
        return self._breaking(_ranked(self._counts(), len(self.keys)), figure, broken)

    def shares(self, figure: exp.Expr, broken: exp.Expr) -> exp.Select:
        """The same over ``p`` and ``q``, and ``values``: how many the source has."""
        inner = _with_shares(self._counts(), self.source, self.column, len(self.keys))
        return self._breaking(inner, figure, broken)

    def _counts(self) -> exp.Select:
        return _counted(self.release, self.keys, self.column)

    def _breaking(self, values: exp.Select, figure: exp.Expr, broken: exp.Expr) -> exp.Select:
        own: list[exp.Expr] = [named(col(f"q{i}"), name) for i, name in enumerate(self.keys)]
        figure = named(figure, free_name("figure", self.keys))
        return select([*own, figure], subquery(values, "v"), _keys(len(self.keys))).having(broken, copy=False)


def small_classes(release: exp.Table, quasi: Sequence[str], k: int) -> exp.Select:
    """The classes of fewer than k rows, over some of the quasi-identifiers.

    >>> from sqlanon.expressions import table
    >>> small_classes(table("r"), ["zip"], 5).sql("duckdb")
    'SELECT "zip" AS "zip", COUNT(*) AS "class_size" FROM "r" GROUP BY "zip" HAVING COUNT(*) < 5'
    """
    size: exp.Expr = exp.Count(this=exp.Star())
    keys: list[exp.Expr] = [named(col(name), name) for name in quasi]
    query = select([*keys, named(size, free_name(SIZE, quasi))], release.copy(), [col(name) for name in quasi])
    return query.having(exp.LT(this=size.copy(), expression=number(k)), copy=False)


def _counted(relation: exp.Table, keys: Sequence[str], attribute: str) -> exp.Select:
    """The values of a sensitive column in each class: ``q0, q1, ...``, ``value``, ``n``.

    Columns are renamed first: what is grouped by could have the name of something else, too.
    """
    own: list[exp.Expr] = [named(col(name), f"q{i}") for i, name in enumerate(keys)]
    renamed = select([*own, named(col(attribute), "value")], relation.copy())
    count = named(exp.cast(exp.Count(this=exp.Star()), "double"), "n")
    groups: list[exp.Expr] = [*_keys(len(keys)), col("value")]
    return select([*(one.copy() for one in groups), count], subquery(renamed, "r"), groups)


def over(left: exp.Expr, right: exp.Expr) -> exp.Div:
    """A quotient; NULL where it would be by 0."""
    return exp.Div(this=left, expression=exp.Nullif(this=right, expression=number(0)))


def _ranked(counted: exp.Select, keys: int) -> exp.Select:
    """The same, with ``place``: 1 of the most frequent value of a class."""
    order = exp.Order(expressions=[exp.Ordered(this=col("n"), desc=True)])
    place = exp.Window(this=exp.RowNumber(), partition_by=[col(f"q{i}") for i in range(keys)], order=order)
    return select([*_keys(keys), col("n"), named(place, "place")], subquery(counted, "c"))


def _with_shares(counted: exp.Select, source: exp.Table, attribute: str, keys: int) -> exp.Select:
    """The same, with the shares ``p`` of the class and ``q`` of the source, and how many ``values`` the source has."""
    whole = exp.Window(this=exp.Sum(this=col("n")), partition_by=[col(f"q{i}") for i in range(keys)])
    own = select([*_keys(keys), col("value"), named(over(col("n"), whole), "p")], subquery(counted, "c"))
    all_ = exp.Window(this=exp.Sum(this=col("n")))
    share = named(over(col("n"), all_), "q")
    values = named(exp.Window(this=exp.Count(this=exp.Star())), "values")
    theirs = select([col("value"), share, values], subquery(_counted(source, (), attribute), "c"))
    output: list[exp.Expr] = [
        *(col(f"q{i}", "c") for i in range(keys)),
        col("p", "c"),
        col("q", "s"),
        col("values", "s"),
    ]
    on = same(col("value", "c"), col("value", "s"))
    return select(output, subquery(own, "c")).join(subquery(theirs, "s"), on=on, copy=False)


def _keys(keys: int) -> list[exp.Expr]:
    return [col(f"q{i}") for i in range(keys)]


def sizes(release: exp.Table, quasi: Sequence[str]) -> exp.Subquery:
    """The rows ``n`` of each class."""
    size = named(exp.Count(this=exp.Star()), "n")
    return subquery(select([size], release.copy(), [col(name) for name in quasi]), "classes")
