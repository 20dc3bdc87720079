"""Requirements in plain SQL for any warehouse: the classes of a release that violate one, with the violating figure.

The statements name their columns ``quasi_0``, ... (the columns of a class), ``value`` (a sensitive one), ``row_count``
(its rows), ``p`` (its share of the class) and ``q`` (its share of the source). NULL is a value like others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.support.coding import quasi_column
from sqlanon.support.expressions import as_column, col, ident, number, subquery, template, unused_name


@dataclass(frozen=True)
class WarehouseRelease:
    """A release in a warehouse and its source, with the columns of their roles, and the column of each attribute."""

    release: exp.Table
    source: exp.Table
    quasi: Sequence[str]
    sensitive: Sequence[str]
    columns: Mapping[str, str]

    def small_classes(self, quasi: Sequence[str], k: int) -> exp.Select:
        """The classes of fewer than k rows over some of the quasi-identifiers."""
        return template("SELECT :named, count(*) AS :size FROM :release GROUP BY :columns HAVING count(*) < :k")(
            named=[as_column(col(name), name) for name in quasi],
            size=ident(unused_name("class_size", quasi)),
            release=self.release,
            columns=[col(name) for name in quasi],
            k=k,
        )

    def values(self, attribute: str, joint: bool = False) -> ClassValues:
        """The values of a sensitive attribute in each class; ``joint``: within equal values of the other ones."""
        column = self.columns[attribute]
        keys = [*self.quasi, *(name for name in self.sensitive if name != column)] if joint else list(self.quasi)
        return ClassValues(self.release, self.source, keys, column)

    def share_above(self, part: exp.Expr, limit: float) -> exp.Select:
        """One row if a sum over classes, which have ``row_count``, exceeds a share of all rows; otherwise none."""
        rows = exp.Nullif(this=exp.Sum(this=col("row_count")), expression=number(0))
        return template("SELECT :share AS figure FROM :classes HAVING :share > :limit")(
            share=exp.Div(this=part, expression=rows), classes=class_sizes(self.release, self.quasi), limit=limit
        )


@dataclass(frozen=True)
class ClassValues:
    """The counts of a sensitive column's values in each class, and the figures computed from them."""

    release: exp.Table
    source: exp.Table
    keys: Sequence[str]
    column: str

    def violations_by_count(self, figure: exp.Expr, violated: exp.Expr) -> exp.Select:
        """The classes whose figure over ``row_count`` violates a requirement."""
        return self._violations(self._counts(), figure, violated)

    def violations_by_rank(self, figure: exp.Expr, violated: exp.Expr) -> exp.Select:
        """The classes whose figure over ``row_count`` and ``place`` (1: the most frequent) violates a requirement."""
        ranked = template("""
            SELECT :keys, row_count, row_number() OVER (PARTITION BY :keys ORDER BY row_count DESC) AS place
            FROM :counts AS c
        """)
        return self._violations(ranked(keys=self._keys(), counts=self._counts()), figure, violated)

    def violations_by_share(self, figure: exp.Expr, violated: exp.Expr) -> exp.Select:
        """The classes whose figure over ``p``, ``q`` and ``values`` (the number in the source) violates one."""
        with_shares = template("""
            SELECT :class_keys, c.p, s.q, s.values
            FROM (
                SELECT :keys, value, row_count / nullif(sum(row_count) OVER (PARTITION BY :keys), 0) AS p
                FROM :counts AS c
            ) AS c
            JOIN (
                SELECT value, row_count / nullif(sum(row_count) OVER (), 0) AS q, count(*) OVER () AS values
                FROM :source_counts AS c
            ) AS s ON c.value IS NOT DISTINCT FROM s.value
        """)
        values = with_shares(
            class_keys=[col(quasi_column(i), "c") for i in range(len(self.keys))],
            keys=self._keys(),
            counts=self._counts(),
            source_counts=_count_values(self.source, (), self.column),
        )
        return self._violations(values, figure, violated)

    def _counts(self) -> exp.Select:
        return _count_values(self.release, self.keys, self.column)

    def _keys(self) -> list[exp.Expr]:
        return [col(quasi_column(i)) for i in range(len(self.keys))]

    def _violations(self, values: exp.Select, figure: exp.Expr, violated: exp.Expr) -> exp.Select:
        return template("SELECT :names, :figure AS :figure_name FROM :values AS v GROUP BY :keys HAVING :violated")(
            names=[as_column(col(quasi_column(i)), key) for i, key in enumerate(self.keys)],
            figure=figure,
            figure_name=ident(unused_name("figure", self.keys)),
            values=values,
            keys=self._keys(),
            violated=violated,
        )


def _count_values(relation: exp.Table, keys: Sequence[str], attribute: str) -> exp.Select:
    # The inner query renames the columns: a grouped column could have the name of something else.
    return template("""
        SELECT :keys, value, count(*)::DOUBLE AS row_count
        FROM (SELECT :renamed, :attribute AS value FROM :relation) AS r
        GROUP BY :keys, value
    """)(
        keys=[col(quasi_column(i)) for i in range(len(keys))],
        renamed=[as_column(col(key), quasi_column(i)) for i, key in enumerate(keys)],
        attribute=col(attribute),
        relation=relation,
    )


def class_sizes(release: exp.Table, quasi: Sequence[str]) -> exp.Subquery:
    """The ``row_count`` of each class."""
    sizes = template("SELECT count(*) AS row_count FROM :release GROUP BY :columns")
    return subquery(sizes(release=release, columns=[col(name) for name in quasi]), "classes")
