"""Cuts of values by their hierarchy.

One child of the lowest common ancestor of a part is cut off the other children: the one that promises to save the most
loss, or several of those. (The paper cuts into all children at once, so that one rare child would keep all of them
together.) The rows inside are promised their child, and if there are two children, the other rows the other child.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.strategies.local.core.nodes import NODE, join_ancestors, level_column
from sqlanon.strategies.local.core.task import LocalTask
from sqlanon.strategies.local.cuts.base import Cuts
from sqlanon.strategies.local.cuts.dimensions import (
    MAX_CUT_OFF,
    Dimension,
    items_of_cuts_without_run,
    items_of_special_cuts,
)
from sqlanon.support.expressions import aliased, as_column, col, fragment, number, template, union_all


class HierarchyCuts(Cuts):
    """The cuts by hierarchies."""

    def __init__(self, task: LocalTask, dimensions: Sequence[Dimension]) -> None:
        self.dimensions = dimensions
        self._paths = {
            dimension.number: task.make(f"mondrian_paths_{dimension.number}", _paths(dimension))
            for dimension in dimensions
        }
        branches = [
            _ancestors(dimension, level, self._paths[dimension.number])
            for dimension in dimensions
            for level in _levels(dimension)
        ]
        self._ancestors = task.make("mondrian_ancestors", union_all(*branches))
        self._limits = {"least_class": task.evaluator.requirements.min_class_rows, "max_cut_off": MAX_CUT_OFF}

    def join_item(self, query: exp.Select, dimension: Dimension) -> tuple[exp.Expr, exp.Select]:
        """The item of the combinations ``c`` along a dimension, and the query with its table."""
        alias, lowest = f"d{dimension.number}", level_column(dimension.attribute, dimension.tree.floor)
        on = col(lowest, "c").eq(col(lowest, alias))
        return col("item", alias), query.join(aliased(self._paths[dimension.number], alias), on=on, copy=False)

    def find(self, parts: exp.Table) -> list[exp.Query]:
        """The cuts that cut off one child."""
        items_of_kind = template("SELECT * FROM items WHERE dimension IN (:dimensions)")(dimensions=self._numbers)
        children = self._children(items_of_kind)
        return [_CUTS_OF_ONE(children=children, **self._limits)]

    def find_special(self, parts: exp.Table) -> list[exp.Query]:
        """The cuts that cut off several children where the first one has too few rows."""
        cut_off_children = self._find_cut_off_children(items_of_special_cuts(dimensions=self._numbers))
        return [_CUTS_OF_SEVERAL(cut_off_children=cut_off_children)]

    def find_items_inside(self) -> list[exp.Query]:
        """The values inside cuts that cut off several children."""
        cut_off_children = self._find_cut_off_children(items_of_cuts_without_run(dimensions=self._numbers))
        return [_ITEMS_OF_CHILDREN(cut_off_children=cut_off_children)]

    def _children(self, items: exp.Select) -> exp.Select:
        return _CHILDREN(items=items, ancestors=self._ancestors)

    def _find_cut_off_children(self, items: exp.Select) -> exp.Select:
        return _CUT_OFF_CHILDREN(children=self._children(items), **self._limits)

    @property
    def _numbers(self) -> list[exp.Expr]:
        return [number(dimension.number) for dimension in self.dimensions]


def _levels(dimension: Dimension) -> range:
    """The levels from the lowest to the highest node that is cut. Cells that are quantiles are one."""
    grid = dimension.tree.grid
    if dimension.of_cells is None or grid is None:
        return dimension.tree.levels
    return range(dimension.tree.floor, (dimension.tree.floor + 1 if grid.level is None else grid.level) + 1)


def _paths(dimension: Dimension) -> exp.Select:
    """The lowest nodes with their ``item``, and the node and its ``leaves`` at each level."""
    tree, levels = dimension.tree, _levels(dimension)
    grid = None if dimension.of_cells is None else tree.grid
    is_of_quantiles = grid is not None and grid.level is None
    nodes: dict[int, tuple[exp.Expr, exp.Expr]] = {
        level: (col(NODE, f"n{level}"), col("leaves", f"n{level}")) for level in levels
    }
    if is_of_quantiles:
        nodes[levels[-1]] = col("cell", "g"), fragment("(g.cell_high - g.cell_low)::DOUBLE")()
    columns = [
        as_column(expression, name)
        for level, pair in nodes.items()
        for expression, name in zip(pair, (level_column(dimension.attribute, level), f"leaves_{level}"), strict=True)
    ]
    lowest = f"n{tree.floor}"
    query = template("""
        SELECT (row_number() OVER (ORDER BY :from_the_top) - 1)::INTEGER AS item, :columns
        FROM :nodes
        WHERE :level = :floor
    """)(
        from_the_top=[nodes[level][0] for level in reversed(levels)],
        columns=columns,
        nodes=aliased(tree.nodes, lowest),
        level=col("level", lowest),
        floor=tree.floor,
    )
    if is_of_quantiles and grid is not None:
        return query.join(aliased(grid.table, "g"), on=col(NODE, "g").eq(col(NODE, lowest)), copy=False)
    return join_ancestors(query, tree, levels[1:])


def _ancestors(dimension: Dimension, level: int, paths: exp.Table) -> exp.Select:
    """The ancestor of each item at a level, and the ``first`` and the ``last`` item under it."""
    return template("""
        SELECT
            :dimension AS dimension,
            item,
            :level AS level,
            :node AS node,
            :leaves AS leaves,
            min(item) OVER (PARTITION BY :node) AS first,
            max(item) OVER (PARTITION BY :node) AS last,
            :scale::DOUBLE AS scale
        FROM :paths
    """)(
        dimension=dimension.number,
        level=level,
        node=col(level_column(dimension.attribute, level)),
        leaves=col(f"leaves_{level}"),
        scale=dimension.scale,
        paths=paths,
    )


# The children of the lowest common ancestor of each part; it is NULL for a part of several cells.
_CHILDREN = template("""
    WITH
        divided AS MATERIALIZED (:items),
        ends AS (
            SELECT dimension, part, min(item) AS first, max(item) AS last, sum(row_count)::BIGINT AS whole
            FROM divided
            GROUP BY dimension, part
            HAVING min(item) < max(item)
        ),
        lowest_common AS (
            SELECT
                e.dimension,
                e.part,
                any_value(e.whole) AS whole,
                min(a.level) AS level,
                arg_min(a.leaves, a.level) AS leaves
            FROM ends AS e
            JOIN :ancestors AS a ON e.dimension = a.dimension AND e.first = a.item
            WHERE e.last <= a.last
            GROUP BY e.dimension, e.part
        )
    SELECT
        i.dimension,
        i.part,
        a.node AS child,
        any_value(a.first) AS first,
        any_value(a.last) AS last,
        any_value(a.scale) AS scale,
        any_value(c.whole) AS whole,
        sum(i.row_count)::BIGINT AS child_rows,
        sum(i.row_count * (c.leaves - a.leaves)) AS saved
    FROM divided AS i
    JOIN lowest_common AS c ON i.dimension = c.dimension AND i.part = c.part
    JOIN :ancestors AS a ON i.dimension = a.dimension AND i.item = a.item AND a.level = c.level - 1
    GROUP BY i.dimension, i.part, a.node
""")

_CUTS_OF_ONE = template("""
    WITH
        choices AS (
            SELECT
                dimension,
                part,
                any_value(whole) AS whole,
                any_value(scale) AS scale,
                count(*) AS children,
                sum(saved) AS saved,
                max({'saved': saved, 'order': -child, 'rows': child_rows, 'first': first, 'last': last})
                    FILTER (WHERE child_rows >= :least_class AND child_rows <= whole - :least_class) AS child
            FROM (:children) AS children
            GROUP BY dimension, part
        )
    SELECT
        dimension,
        part,
        child.rows AS rows_inside,
        whole - child.rows AS rows_outside,
        child.first AS low,
        child.last AS high,
        CASE
            WHEN child.rows * :max_cut_off >= whole
            THEN round(scale * CASE WHEN children = 2 THEN saved ELSE child.saved END, 9)
        END AS gain,
        coalesce(child.rows * :max_cut_off < whole, FALSE) AS is_special
    FROM choices
""")

# The children that are cut off, those that save most first, until they have one of ``max_cut_off`` parts of the rows.
_CUT_OFF_CHILDREN = template("""
    SELECT *
    FROM (
        SELECT
            *,
            sum(child_rows) OVER (PARTITION BY dimension, part ORDER BY saved DESC, child) AS so_far
        FROM (:children) AS children
        WHERE child_rows >= :least_class AND child_rows <= whole - :least_class
    ) AS ordered
    WHERE so_far <= whole - :least_class AND (so_far - child_rows) * :max_cut_off < whole
""")

_CUTS_OF_SEVERAL = template("""
    SELECT
        dimension,
        part,
        sum(child_rows)::BIGINT AS rows_inside,
        any_value(whole) - sum(child_rows)::BIGINT AS rows_outside,
        NULL AS low,
        NULL AS high,
        round(any_value(scale) * sum(saved), 9) AS gain,
        FALSE AS is_special
    FROM (:cut_off_children) AS c
    GROUP BY dimension, part
""")

_ITEMS_OF_CHILDREN = template("""
    SELECT i.dimension, i.part, i.item
    FROM items AS i
    JOIN (:cut_off_children) AS t ON i.dimension = t.dimension AND i.part = t.part AND i.item BETWEEN t.first AND t.last
""")
