"""Cuts of numbers and times along their order.

A part is cut at the mean or, where one side would have too few rows, at the nearest border that leaves enough on both
sides. (The paper cuts at the median. The mean separates few far values sooner, and lost less on most tables that were
tried.) A range loses its width, from its first position to its last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from sqlanon.strategies.local.core.nodes import NODE, level_column
from sqlanon.strategies.local.core.task import LocalTask
from sqlanon.strategies.local.cuts.base import Cuts
from sqlanon.strategies.local.cuts.dimensions import Dimension
from sqlanon.support.expressions import aliased, col, fragment, is_null, template, union_all

ITEMS_OF_POSITION = 2**31
"""With relaxed cuts an item is the position of a value, times this number, plus the combination."""


class OrderCuts(Cuts):
    """The cuts along orders."""

    def __init__(self, task: LocalTask, dimensions: Sequence[Dimension]) -> None:
        self.dimensions = dimensions
        self._least_class = task.evaluator.requirements.min_class_rows
        self._positions = {
            dimension.number: task.make(f"mondrian_positions_{dimension.number}", _positions(dimension))
            for dimension in dimensions
        }
        widths = (_WIDTHS(dimension=number, positions=table) for number, table in self._positions.items())
        self._widths = task.make("mondrian_widths", union_all(*widths))

    def join_item(self, query: exp.Select, dimension: Dimension) -> tuple[exp.Expr, exp.Select]:
        """The item of the combinations ``c`` along a dimension, and the query with its table."""
        alias = f"d{dimension.number}"
        on = col(level_column(dimension.attribute, dimension.tree.floor), "c").eq(col(NODE, alias))
        query = query.join(aliased(self._positions[dimension.number], alias), on=on, copy=False)
        position = col("position", alias)
        if dimension.is_relaxed:
            return _RELAXED_ITEM(position=position, items_of_position=ITEMS_OF_POSITION), query
        return position, query

    def spread(self, parts: exp.Table) -> exp.Query:
        """``spreads``: by ``dimension`` and ``part`` of several positions its ``first`` and ``last`` item, the ``mean``
        after which it is cut, and its rows ``whole``."""
        return union_all(*(self._spread(parts, dimension) for dimension in self.dimensions))

    def _spread(self, parts: exp.Table, dimension: Dimension) -> exp.Select:
        item = col(dimension.item_column, "p")
        mean: exp.Expr = _MEAN(position=_position(dimension, item))
        if dimension.is_relaxed:  # after the last combination of the position
            mean = fragment("((:mean + 1) * :items_of_position - 1)")(mean=mean, items_of_position=ITEMS_OF_POSITION)
        return _SPREADS(
            dimension=dimension.number,
            item=item,
            has_several=dimension.has_several,
            mean=mean,
            root_loss=dimension.tree.leaves - 1,
            scale=dimension.scale,
            first=_position(dimension, exp.Min(this=item)),
            last=_position(dimension, exp.Max(this=item)),
            parts=parts,
        )

    def find(self, parts: exp.Table) -> list[exp.Query]:
        """The cuts at the means."""
        return [self._cut(_CUTS_AT_MEANS, parts, dimension) for dimension in self.dimensions]

    def find_special(self, parts: exp.Table) -> list[exp.Query]:
        """The cuts nearest to the means where these leave too few rows on a side."""
        return [self._cut(_NEAREST_CUTS, parts, dimension) for dimension in self.dimensions]

    def _cut(self, cuts: Callable[..., exp.Select], parts: exp.Table, dimension: Dimension) -> exp.Select:
        return cuts(
            dimension=dimension.number,
            item=col(dimension.item_column, "p"),
            parts=parts,
            gain=_gain(dimension),
            border=_position(dimension, col("border", "b")),
            last=_position(dimension, col("last", "s")),
            widths=self._widths,
            least_class=self._least_class,
        )

    def find_items_inside(self) -> list[exp.Query]:
        """Return None: the items inside are runs."""
        return []


def _position(dimension: Dimension, item: exp.Expr) -> exp.Expr:
    if not dimension.is_relaxed:
        return item
    return fragment("(:item // :items_of_position)")(item=item, items_of_position=ITEMS_OF_POSITION)


def _gain(dimension: Dimension) -> exp.Expr:
    return _GAIN(first=_position(dimension, col("first", "s")), beyond=_position(dimension, col("beyond", "b")))


_RELAXED_ITEM = fragment("(:position::BIGINT * :items_of_position + c.combination)")
_MEAN = fragment("(sum(row_count * :position)::HUGEINT // sum(row_count)::HUGEINT)::BIGINT")


def _positions(dimension: Dimension) -> exp.Select:
    """The ``position`` of each lowest node, from 0 on.

    A value that is in no range with others (NULL, NaN) is the first or the last one. Its distance from the next value
    is the width of the whole domain, as much as a label for both would lose.
    """
    tree = dimension.tree
    values = template("SELECT node, low, high, :stands_alone AS stands_alone FROM :nodes WHERE level = :floor")(
        stands_alone=is_null(col("label")), nodes=tree.nodes, floor=tree.floor
    )
    if tree.grid is not None:
        values = template("""
            SELECT node, cell_low AS low, cell_high AS high, lower IS NULL AND upper IS NULL AS stands_alone
            FROM :grid AS g
        """)(grid=tree.grid.table)
    return _POSITIONS(values=values, leaves=tree.leaves)


_POSITIONS = template("""
    WITH
        ends AS (
            SELECT
                *,
                min(low) FILTER (WHERE NOT stands_alone) OVER () AS first,
                max(low) FILTER (WHERE NOT stands_alone) OVER () AS last
            FROM (:values) AS v
        ),
        moved AS (
            SELECT
                node,
                CASE
                    WHEN NOT stands_alone OR first IS NULL THEN low::BIGINT
                    WHEN low < first THEN low - (first - low)::BIGINT * :leaves
                    ELSE low + (low - last)::BIGINT * :leaves
                END AS position,
                high - low AS width
            FROM ends
        )
    SELECT node, (position - min(position) OVER ())::BIGINT AS position, width
    FROM moved
""")

_WIDTHS = template("SELECT DISTINCT :dimension AS dimension, position, width FROM :positions AS p")

_SPREADS = template("""
    SELECT
        :dimension::SMALLINT AS dimension,
        part,
        min(:item) AS first,
        :mean AS mean,
        max(:item) AS last,
        sum(row_count)::BIGINT AS whole,
        :root_loss::DOUBLE AS root_loss,
        :scale::DOUBLE AS scale
    FROM :parts AS p
    WHERE :has_several
    GROUP BY part
    HAVING :first < :last
""")

_GAIN = fragment("""
    round(
        s.scale * (
            s.whole * least(l.position + l.width - :first, s.root_loss)
            - b.rows_inside * least(e.position + e.width - :first, s.root_loss)
            - (s.whole - b.rows_inside) * least(l.position + l.width - :beyond, s.root_loss)
        ),
        9
    )
""")

_CUTS_AT_MEANS = template("""
    WITH
        sides AS (
            SELECT
                p.part,
                (sum(p.row_count) FILTER (WHERE :item <= s.mean))::BIGINT AS rows_inside,
                max(:item) FILTER (WHERE :item <= s.mean) AS border,
                min(:item) FILTER (WHERE :item > s.mean) AS beyond
            FROM :parts AS p
            JOIN spreads AS s ON p.part = s.part AND s.dimension = :dimension
            GROUP BY p.part
        )
    SELECT
        s.dimension,
        s.part,
        b.rows_inside,
        s.whole - b.rows_inside AS rows_outside,
        s.first AS low,
        b.border AS high,
        CASE WHEN b.rows_inside >= :least_class AND s.whole - b.rows_inside >= :least_class THEN :gain END AS gain,
        s.whole >= 2 * :least_class
            AND (b.rows_inside < :least_class OR s.whole - b.rows_inside < :least_class) AS is_special
    FROM spreads AS s
    JOIN sides AS b ON s.part = b.part
    JOIN :widths AS e ON s.dimension = e.dimension AND :border = e.position
    JOIN :widths AS l ON s.dimension = l.dimension AND :last = l.position
    WHERE s.dimension = :dimension
""")

_NEAREST_CUTS = template("""
    WITH
        special AS MATERIALIZED (
            SELECT s.*, c.rows_inside < :least_class AS is_inside_small
            FROM spreads AS s
            JOIN simple_cuts AS c ON s.dimension = c.dimension AND s.part = c.part
            WHERE c.is_special AND c.dimension = :dimension
        ),
        items AS (
            SELECT p.part, :item AS item, sum(p.row_count)::BIGINT AS row_count
            FROM :parts AS p
            SEMI JOIN special AS s ON p.part = s.part
            GROUP BY p.part, :item
        ),
        running AS (
            SELECT
                part,
                item,
                (sum(row_count) OVER (PARTITION BY part ORDER BY item))::BIGINT AS so_far,
                lead(item) OVER (PARTITION BY part ORDER BY item) AS next
            FROM items
        ),
        nearest AS (
            SELECT
                s.part,
                CASE WHEN s.is_inside_small THEN min(r.so_far) ELSE max(r.so_far) END AS rows_inside,
                CASE WHEN s.is_inside_small THEN min(r.item) ELSE max(r.item) END AS border,
                CASE WHEN s.is_inside_small THEN min(r.next) ELSE max(r.next) END AS beyond
            FROM special AS s
            JOIN running AS r ON s.part = r.part
            WHERE r.so_far BETWEEN :least_class AND s.whole - :least_class
            GROUP BY s.part, s.is_inside_small
        )
    SELECT
        s.dimension,
        s.part,
        b.rows_inside,
        s.whole - b.rows_inside AS rows_outside,
        s.first AS low,
        b.border AS high,
        :gain AS gain,
        FALSE AS is_special
    FROM special AS s
    JOIN nearest AS b ON s.part = b.part
    JOIN :widths AS e ON s.dimension = e.dimension AND :border = e.position
    JOIN :widths AS l ON s.dimension = l.dimension AND :last = l.position
""")
