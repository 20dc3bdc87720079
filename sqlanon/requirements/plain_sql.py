"""Requirements in plain SQL, for any warehouse: the classes of a release that break one, with the figure that does.

In what they are made of, ``q0, q1, ...`` are the columns that tell classes apart, ``value`` is a sensitive one, ``n``
its rows, ``p`` its share of the class and ``q`` that of the source. NULL is a value of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.support.expressions import col, ident, named, number, subquery, template, unused_name

SIZE = "class_size"

_SMALL_CLASSES = template("SELECT :named, count(*) AS :size FROM :release GROUP BY :columns HAVING count(*) < :k")
_SIZES = template("SELECT count(*) AS n FROM :release GROUP BY :columns")
# Columns are renamed first: what is grouped by could have the name of something else, too.
_COUNTED = template("""
    SELECT :keys, value, count(*)::DOUBLE AS n
    FROM (SELECT :renamed, :attribute AS value FROM :relation) AS r
    GROUP BY :keys, value
""")
_RANKED = template(
    "SELECT :keys, n, row_number() OVER (PARTITION BY :keys ORDER BY n DESC) AS place FROM :counted AS c"
)
_WITH_SHARES = template("""
    SELECT :own_keys, c.p, s.q, s.values
    FROM (SELECT :keys, value, n / nullif(sum(n) OVER (PARTITION BY :keys), 0) AS p FROM :counted AS c) AS c
    JOIN (
        SELECT value, n / nullif(sum(n) OVER (), 0) AS q, count(*) OVER () AS values FROM :of_source AS c
    ) AS s ON c.value IS NOT DISTINCT FROM s.value
""")
_BREAKING = template("SELECT :names, :figure AS :figure_name FROM :values AS v GROUP BY :keys HAVING :broken")
_BY_SHARE = template("SELECT :share AS figure FROM :classes HAVING :share > :limit")


@dataclass(frozen=True)
class WarehouseRelease:
    """A release in a warehouse and its source, with the columns of their roles, and of each attribute."""

    release: exp.Table
    source: exp.Table
    quasi: Sequence[str]
    sensitive: Sequence[str]
    columns: Mapping[str, str]

    def small_classes(self, quasi: Sequence[str], k: int) -> exp.Select:
        """The classes of fewer than k rows, over some of the quasi-identifiers."""
        columns, size = [col(name) for name in quasi], ident(unused_name(SIZE, quasi))
        keys = [named(col(name), name) for name in quasi]
        return _SMALL_CLASSES(named=keys, size=size, release=self.release, columns=columns, k=k)

    def values(self, attribute: str, joint: bool = False) -> ClassValues:
        """The values of a sensitive attribute in each class; ``joint``: within equal values of the other ones."""
        column = self.columns[attribute]
        keys = [*self.quasi, *(name for name in self.sensitive if name != column)] if joint else list(self.quasi)
        return ClassValues(self.release, self.source, keys, column)

    def by_share(self, part: exp.Expr, limit: float) -> exp.Select:
        """One row with the share of the released rows that a sum over classes (of ``n`` rows) is, if it is too much."""
        share = over(part, exp.Sum(this=col("n")))
        return _BY_SHARE(share=share, classes=class_sizes(self.release, self.quasi), limit=limit)


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
        """The same over ``n`` and ``place``: 1 of the most frequent value of a class."""
        return self._breaking(_RANKED(keys=self._keys(), counted=self._counts()), figure, broken)

    def shares(self, figure: exp.Expr, broken: exp.Expr) -> exp.Select:
        """The same over ``p``, ``q`` and ``values``: how many the source has."""
        own_keys = [col(f"q{i}", "c") for i in range(len(self.keys))]
        of_source = _counted(self.source, (), self.column)
        with_shares = _WITH_SHARES(own_keys=own_keys, keys=self._keys(), counted=self._counts(), of_source=of_source)
        return self._breaking(with_shares, figure, broken)

    def _counts(self) -> exp.Select:
        return _counted(self.release, self.keys, self.column)

    def _breaking(self, values: exp.Select, figure: exp.Expr, broken: exp.Expr) -> exp.Select:
        names, name = [named(col(f"q{i}"), one) for i, one in enumerate(self.keys)], unused_name("figure", self.keys)
        return _BREAKING(
            names=names, figure=figure, figure_name=ident(name), values=values, keys=self._keys(), broken=broken
        )

    def _keys(self) -> list[exp.Expr]:
        return [col(f"q{i}") for i in range(len(self.keys))]


def _counted(relation: exp.Table, keys: Sequence[str], attribute: str) -> exp.Select:
    numbered = [col(f"q{i}") for i in range(len(keys))]
    renamed = [named(col(name), f"q{i}") for i, name in enumerate(keys)]
    return _COUNTED(keys=numbered, renamed=renamed, attribute=col(attribute), relation=relation)


def over(part: exp.Expr, whole: exp.Expr) -> exp.Div:
    """A quotient; NULL where it would be by 0."""
    return exp.Div(this=part, expression=exp.Nullif(this=whole, expression=number(0)))


def class_sizes(release: exp.Table, quasi: Sequence[str]) -> exp.Subquery:
    """The rows ``n`` of each class."""
    return subquery(_SIZES(release=release, columns=[col(name) for name in quasi]), "classes")
