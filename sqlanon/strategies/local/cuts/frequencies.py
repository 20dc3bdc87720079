"""Cuts of values that are released as sets, by their frequency.

The most frequent value is cut off, the first of equals; or several of the most frequent, until they have enough rows. A
set loses the number of its values less one.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.strategies.local.core.nodes import level_column
from sqlanon.strategies.local.core.task import LocalTask
from sqlanon.strategies.local.cuts.base import Cuts
from sqlanon.strategies.local.cuts.dimensions import (
    MAX_CUT_OFF,
    Dimension,
    items_of_cuts_without_run,
    items_of_special_cuts,
)
from sqlanon.support.expressions import col, fragment, is_null, number, template, union_all


class FrequencyCuts(Cuts):
    """The cuts by frequency."""

    def __init__(self, task: LocalTask, dimensions: Sequence[Dimension]) -> None:
        self.dimensions = dimensions
        self._members = task.make("mondrian_set_members", union_all(*map(_set_members, dimensions)))
        self._limits = {"least_class": task.evaluator.requirements.min_class_rows, "max_cut_off": MAX_CUT_OFF}

    def join_item(self, query: exp.Select, dimension: Dimension) -> tuple[exp.Expr, exp.Select]:
        """The item of the combinations ``c`` along a dimension, which is the lowest node, and the query unchanged."""
        return col(level_column(dimension.attribute, dimension.tree.floor), "c"), query

    def find(self, parts: exp.Table) -> list[exp.Query]:
        """The cuts that cut off the most frequent value."""
        return [_CUTS_OF_ONE(members=self._members, dimensions=self._numbers, **self._limits)]

    def find_special(self, parts: exp.Table) -> list[exp.Query]:
        """The cuts that cut off several values where the most frequent one has too few rows."""
        ordered_items = self._order_by_frequency(items_of_special_cuts(dimensions=self._numbers))
        return [
            _CUTS_OF_SEVERAL(
                ordered_items=ordered_items, members=self._members, least_class=self._limits["least_class"]
            )
        ]

    def find_items_inside(self) -> list[exp.Query]:
        """The values inside cuts that cut off several."""
        ordered_items = self._order_by_frequency(items_of_cuts_without_run(dimensions=self._numbers))
        return [
            template("SELECT dimension, part, item FROM (:ordered_items) AS f WHERE is_inside")(
                ordered_items=ordered_items
            )
        ]

    def _order_by_frequency(self, items: exp.Select) -> exp.Select:
        return _ITEMS_BY_FREQUENCY(items=items, **self._limits)

    @property
    def _numbers(self) -> list[exp.Expr]:
        return [number(dimension.number) for dimension in self.dimensions]


def _set_members(dimension: Dimension) -> exp.Select:
    """The lowest nodes as ``item``: the ``size`` that they add to a set, the loss ``leaves`` of each by itself, and
    the ``scale`` of losses. A node that is in no set with others adds all values."""
    tree = dimension.tree
    stands_alone: exp.Expr = is_null(col("label"))
    if tree.set_labels is not None:
        is_member = exp.or_(*(col(f"is_member_{level}") for level in range(tree.floor, tree.height)))
        stands_alone = fragment("node NOT IN (SELECT node FROM :set_labels AS m WHERE :is_member)")(
            set_labels=tree.set_labels, is_member=is_member
        )
    return template("""
        SELECT
            :dimension AS dimension,
            node AS item,
            CASE WHEN :stands_alone THEN :all_leaves ELSE leaves + 1 END AS size,
            leaves,
            :all_leaves - 1 AS root_loss,
            :scale::DOUBLE AS scale
        FROM :nodes
        WHERE level = :floor
    """)(
        dimension=dimension.number,
        stands_alone=stands_alone,
        all_leaves=tree.leaves,
        scale=dimension.scale,
        nodes=tree.nodes,
        floor=tree.floor,
    )


# Among equally frequent values, the maximum is the one with the lowest item.
_CUTS_OF_ONE = template("""
    WITH
        facts AS (
            SELECT
                i.dimension,
                i.part,
                sum(i.row_count)::BIGINT AS whole,
                count(*) AS values,
                sum(m.size) AS size,
                sum(m.leaves) AS leaves,
                max(i.row_count * 2147483648 + 2147483647 - i.item) AS most_frequent
            FROM items AS i
            JOIN :members AS m ON i.dimension = m.dimension AND i.item = m.item
            WHERE i.dimension IN (:dimensions)
            GROUP BY i.dimension, i.part
            HAVING count(*) > 1
        ),
        sides AS (
            SELECT
                *,
                most_frequent // 2147483648 AS rows_inside,
                (2147483647 - most_frequent % 2147483648)::INTEGER AS item
            FROM facts
        )
    SELECT
        s.dimension,
        s.part,
        s.rows_inside,
        s.whole - s.rows_inside AS rows_outside,
        s.item AS low,
        s.item AS high,
        CASE
            WHEN s.rows_inside >= :least_class
                AND s.rows_inside * :max_cut_off >= s.whole
                AND s.whole - s.rows_inside >= :least_class
            THEN round(
                m.scale * (
                    s.whole * least(s.size - 1, m.root_loss)
                    - s.rows_inside * m.leaves
                    - (s.whole - s.rows_inside) * CASE
                        WHEN s.values = 2 THEN s.leaves - m.leaves
                        ELSE least(s.size - m.size - 1, m.root_loss)
                    END
                ),
                9
            )
        END AS gain,
        (s.rows_inside < :least_class OR s.rows_inside * :max_cut_off < s.whole)
            AND s.whole >= 2 * :least_class AS is_special
    FROM sides AS s
    JOIN :members AS m ON s.dimension = m.dimension AND s.item = m.item
""")

_ITEMS_BY_FREQUENCY = template("""
    SELECT *, before < :least_class OR before * :max_cut_off < whole AS is_inside
    FROM (
        SELECT
            *,
            sum(row_count) OVER (PARTITION BY dimension, part ORDER BY row_count DESC, item) - row_count AS before,
            sum(row_count) OVER (PARTITION BY dimension, part) AS whole
        FROM (:items) AS items
    ) AS ordered
""")

_CUTS_OF_SEVERAL = template("""
    WITH
        sides AS (
            SELECT
                f.dimension,
                f.part,
                any_value(f.whole)::BIGINT AS whole,
                (sum(f.row_count) FILTER (WHERE f.is_inside))::BIGINT AS rows_inside,
                sum(m.size) AS size,
                sum(m.size) FILTER (WHERE f.is_inside) AS size_inside,
                sum(m.leaves) FILTER (WHERE f.is_inside) AS leaves_inside,
                sum(m.leaves) FILTER (WHERE NOT f.is_inside) AS leaves_outside,
                count(*) FILTER (WHERE f.is_inside) AS values_inside,
                count(*) FILTER (WHERE NOT f.is_inside) AS values_outside,
                any_value(m.root_loss) AS root_loss,
                any_value(m.scale) AS scale
            FROM (:ordered_items) AS f
            JOIN :members AS m ON f.dimension = m.dimension AND f.item = m.item
            GROUP BY f.dimension, f.part
        )
    SELECT
        dimension,
        part,
        rows_inside,
        whole - rows_inside AS rows_outside,
        NULL AS low,
        NULL AS high,
        round(
            scale * (
                whole * least(size - 1, root_loss)
                - rows_inside * CASE
                    WHEN values_inside = 1 THEN leaves_inside
                    ELSE least(size_inside - 1, root_loss)
                END
                - (whole - rows_inside) * CASE
                    WHEN values_outside = 1 THEN leaves_outside
                    ELSE least(size - size_inside - 1, root_loss)
                END
            ),
            9
        ) AS gain,
        FALSE AS is_special
    FROM sides
    WHERE whole - rows_inside >= :least_class
""")
