"""Nodes of the hierarchies, and the distinct combinations of them: the tables that local strategies work on.

A *node* is a label of an attribute at a level. Nodes are numbered through all levels of an attribute, so that ancestors
have higher numbers. The node of attribute 2 at level 1 is in column ``node_2_level_1``; the node that attribute 2 is
released as in ``node_2``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.hierarchies import Hierarchy
from sqlanon.hierarchies.build import released_column
from sqlanon.support.coding import KNOWN, CodedAttribute, code_column
from sqlanon.support.expressions import (
    aliased,
    all_of,
    as_column,
    cast,
    col,
    fragment,
    is_not_null,
    null_safe_equal,
    number,
    subquery,
    template,
    text,
    union_all,
)

COMBINATION = "combination"
NODE = "node"


@dataclass(frozen=True)
class Grid:
    """The cells at whose borders ranges end, made by `grid.make_grid`."""

    table: exp.Table
    level: int | None  # the level whose nodes are the cells; None for cells made of quantiles
    holds_dates: bool = False


END_COLUMNS = ("lower", "upper", "least", "beyond", "middle", "closed")
CELL_COLUMNS = ("cell_low", "cell_high", *END_COLUMNS)
"""Columns of a grid's table other than ``node`` and ``cell``."""


@dataclass(frozen=True)
class Tree:
    """An attribute's hierarchy over the values of the source."""

    name: str
    height: int
    floor: int  # lowest level that may be released
    ceiling: int  # highest level that may be released
    offsets: tuple[int, ...]  # by level from the floor: node = code + offset; the last is the root itself
    leaves: int
    weight: float
    nodes: exp.Table  # made by `hierarchy_nodes`
    is_ordered: bool  # numbers or times at the ground: ranges of them are meaningful
    forbidden: tuple[str, ...] = ()
    open_ends: bool = False  # the lowest nodes may be open ends: ``<18``, ``≥90``
    column_type: str = "VARCHAR"
    grid: Grid | None = None  # for ordered attributes, unless ranges have exact ends
    set_labels: exp.Table | None = None  # for attributes released as sets; made by `set_labels`

    @property
    def root(self) -> int:
        """The node at the top, with the highest number of the hierarchy."""
        return self.offsets[-1]

    @property
    def grid_level(self) -> int:
        """The level whose nodes are the cells of the grid; 0 without such a level."""
        return 0 if self.grid is None else self.grid.level or 0

    @property
    def levels(self) -> range:
        """The levels from the floor to the top."""
        return range(self.floor, self.height + 1)

    def count_nodes(self, level: int) -> int:
        """The number of nodes at a level from the floor up."""
        position = level - self.floor
        return 1 if level == self.height else self.offsets[position + 1] - self.offsets[position]


def level_column(attribute: int, level: int) -> str:
    """The column with the node of an attribute at a level."""
    return f"node_{attribute}_level_{level}"


def node_column(attribute: int) -> str:
    """The column with the node that an attribute is released as."""
    return f"node_{attribute}"


def node_columns(attribute_count: int, alias: str | None = None) -> list[exp.Expr]:
    """``node_0``, ``node_1``, ..."""
    return [col(node_column(i), alias) for i in range(attribute_count)]


def equal_columns(names: Iterable[str], left: str, right: str) -> exp.Expr:
    """A join condition: two relations agree in some columns."""
    return all_of(col(name, left).eq(col(name, right)) for name in names)


def join_ancestors(query: exp.Select, tree: Tree, levels: range, join_type: str = "") -> exp.Select:
    """Join ``n{level}``, the parents of the nodes ``n{level - 1}``, level by level."""
    for level in levels:
        on = col("parent", f"n{level - 1}").eq(col(NODE, f"n{level}"))
        query = query.join(aliased(tree.nodes, f"n{level}"), on=on, join_type=join_type, copy=False)
    return query


def ancestors_of_lowest(tree: Tree, levels: Collection[int]) -> exp.Select:
    """By the lowest nodes of an attribute, ``ground``: their ancestors at some levels, ``node_LEVEL``, from the joined
    tables ``nLEVEL``."""
    lowest = f"n{tree.floor}"
    query = template("SELECT :node AS ground FROM :nodes WHERE :level = :floor")(
        node=col(NODE, lowest), nodes=aliased(tree.nodes, lowest), level=col("level", lowest), floor=tree.floor
    )
    query = join_ancestors(query, tree, range(tree.floor + 1, max(levels) + 1))
    return query.select(*(as_column(col(NODE, f"n{level}"), f"node_{level}") for level in levels), copy=False)


def join_levels(query: exp.Select, trees: Sequence[Tree], levels: Sequence[int]) -> tuple[exp.Select, list[exp.Expr]]:
    """Join the ancestors of combinations ``c`` at a generalization; the query, and the nodes."""
    nodes: list[exp.Expr] = []
    for i, (tree, level) in enumerate(zip(trees, levels, strict=True)):
        lowest, alias = col(level_column(i, tree.floor), "c"), f"above_{i}"
        if level in (tree.floor, tree.height):
            nodes.append(lowest if level == tree.floor else cast(number(tree.root), "INTEGER"))
            continue
        ancestors = subquery(ancestors_of_lowest(tree, [level]), alias)
        query = query.join(ancestors, on=lowest.eq(col("ground", alias)), copy=False)
        nodes.append(col(f"node_{level}", alias))
    return query, nodes


NODE_OF_CODE = fragment("(:code::INTEGER + :offset)::INTEGER")


def distinct_combinations(frequency: exp.Expr, trees: Sequence[Tree]) -> exp.Select:
    """The distinct combinations of known values, numbered in the order of their codes: ``combination``, the lowest node
    of each attribute, and ``row_count``, rows."""
    codes: list[exp.Expr] = []
    nodes: list[exp.Expr] = []
    for i, tree in enumerate(trees):
        if tree.floor == tree.height:
            node: exp.Expr = cast(number(tree.root), "INTEGER")
        else:
            code = col(code_column(i, tree.floor))
            codes.append(code)
            node = NODE_OF_CODE(code=code, offset=tree.offsets[0])
        nodes.append(as_column(node, level_column(i, tree.floor)))
    return template("""
        SELECT (row_number() OVER (ORDER BY :order) - 1)::INTEGER AS combination, :nodes, row_count
        FROM (SELECT :codes, sum(row_count)::BIGINT AS row_count FROM :frequency WHERE known GROUP BY :codes) AS c
        WHERE row_count > 0
    """)(order=codes or [number(0)], nodes=nodes, codes=codes, frequency=frequency)


def map_to_combinations(
    relation: exp.Expr,
    combinations: exp.Table,
    trees: Sequence[Tree],
    columns: Sequence[str],
    include_unknown: bool = False,
) -> exp.Select:
    """Replace the codes of a relation (a frequency set, a distribution) by its ``combination``.

    Rows of unknown values are left out, or have NULL for their combination.
    """
    keys = [
        col(level_column(i, tree.floor), "c").eq(
            NODE_OF_CODE(code=col(code_column(i, tree.floor), "f"), offset=tree.offsets[0])
        )
        for i, tree in enumerate(trees)
        if tree.floor < tree.height
    ]
    query = template("SELECT c.combination, :columns FROM :relation AS f")(
        columns=[col(name, "f") for name in columns], relation=relation
    )
    on, kind = all_of([*keys, col(KNOWN, "f")]), "left" if include_unknown else ""
    return query.join(aliased(combinations, "c"), on=on, join_type=kind, copy=False)


_NODES_OF_LEVEL = template("""
    SELECT
        :node AS node,
        :parent::INTEGER AS parent,
        :level AS level,
        max(:label) AS label,
        :leaves::DOUBLE AS leaves,
        sum(v.rows)::BIGINT AS rows,
        min(p.low) AS low,
        max(p.high) AS high
    FROM :values AS v
    JOIN (
        SELECT
            level_0,
            (min(position) OVER (PARTITION BY :label_in_hierarchy))::INTEGER AS low,
            (max(position) OVER (PARTITION BY :label_in_hierarchy))::INTEGER AS high
        FROM (
            SELECT *, row_number() OVER (ORDER BY :order NULLS FIRST, level_0 NULLS FIRST) - 1 AS position
            FROM :hierarchy
        ) AS h
    ) AS p ON :same_value
    WHERE v.known
    GROUP BY :code
""")


def hierarchy_nodes(coded: CodedAttribute, hierarchy: Hierarchy, tree: Tree, order: exp.Expr) -> exp.Query:
    """The nodes of a hierarchy over known values of the source, from the floor up.

    Columns: ``node``, ``parent`` (NULL at the top), ``level``, ``label`` (NULL for the value NULL below the top),
    ``leaves`` (number of ground values of the hierarchy under it, less one), ``rows`` of the source, ``low`` and
    ``high`` (positions of its first and last ground value in the order of all ground values), and ``released``: whether
    it may be released.
    """
    levels: list[exp.Query] = []
    for place, level in enumerate(range(tree.floor, tree.height)):
        code, is_labelled = col(f"code_{level}", "v"), level >= coded.lowest_labelled
        parent: exp.Expr = number(tree.root)
        if level + 1 < tree.height:
            parent = NODE_OF_CODE(code=exp.Max(this=col(f"code_{level + 1}", "v")), offset=tree.offsets[place + 1])
        levels.append(
            _NODES_OF_LEVEL(
                code=code,
                node=NODE_OF_CODE(code=code, offset=tree.offsets[place]),
                parent=parent,
                level=level,
                label=col(f"label_{level}", "v") if is_labelled else cast(col("value", "v"), "VARCHAR"),
                leaves=exp.Max(this=col(f"leaves_{level}", "v")) if is_labelled else 0,
                values=coded.table,
                label_in_hierarchy=col(released_column(level, coded.open_ends)),
                order=order,
                hierarchy=hierarchy.table,
                same_value=null_safe_equal(col("value", "v"), col("level_0", "p"), coded.nullable),
            )
        )
    root = template("""
        SELECT
            :node::INTEGER AS node,
            NULL::INTEGER AS parent,
            :level AS level,
            :label AS label,
            :leaves::DOUBLE AS leaves,
            coalesce(sum(rows)::BIGINT, 0) AS rows,
            0 AS low,
            :high AS high
        FROM :values
        WHERE known
    """)(
        node=tree.root,
        level=tree.height,
        # A hierarchy of one level has one value, which is released unchanged.
        label=text(hierarchy.top) if hierarchy.top is not None else exp.Max(this=cast(col("value"), "VARCHAR")),
        leaves=tree.leaves - 1,
        high=max(tree.leaves - 1, 0),
        values=coded.table,
    )
    return template("SELECT *, level <= :ceiling AND :is_allowed AS released FROM :levels AS levels")(
        ceiling=tree.ceiling, is_allowed=is_allowed(col("label"), tree.forbidden), levels=union_all(*levels, root)
    )


def is_allowed(label: exp.Expr, forbidden: Collection[str]) -> exp.Expr:
    """Whether a label is not among the forbidden ones."""
    return (
        fragment("NOT coalesce(:label IN (:forbidden), FALSE)")(
            label=label, forbidden=[text(name) for name in sorted(forbidden)]
        )
        if forbidden
        else exp.true()
    )


are_numbers = template("""
    SELECT coalesce(
        bool_and(coalesce(isfinite(TRY_CAST(level_0::VARCHAR AS DOUBLE)), FALSE)) FILTER (WHERE level_0 IS NOT NULL),
        FALSE
    )
    FROM :hierarchy
""")
"""Whether a hierarchy has ground values, and all of them are numbers, possibly written as text."""

_IS_FREQUENT = fragment("(:node IN (SELECT node FROM :frequent AS f))")


def set_labels(tree: Tree, frequent: exp.Expr, exact: bool) -> exp.Select:
    """The labels that a set may list for each lowest node: by level ``label_l``, ``size_l`` (number of ground values
    under it) and ``is_member_l``; and whether the node itself ``is_rare``.

    Sets list ``frequent`` nodes, or frequent ancestors of the others: nodes with at least as many rows (or persons) of
    the source as the smallest class must have. Otherwise a set would reveal which near-unique values exist. ``exact``
    sets list all values.
    """
    ground = f"n{tree.floor}"
    query = template("SELECT :node, NOT :is_frequent AS is_rare FROM :nodes WHERE :level = :floor")(
        node=col(NODE, ground),
        is_frequent=_IS_FREQUENT(node=col(NODE, ground), frequent=frequent),
        nodes=aliased(tree.nodes, ground),
        level=col("level", ground),
        floor=tree.floor,
    )
    query = join_ancestors(query, tree, range(tree.floor + 1, tree.height))
    for level in range(tree.floor, tree.height):
        node = f"n{level}"
        if exact:
            may_list: exp.Expr = exp.true() if level == tree.floor else exp.false()
        else:
            may_list = _IS_FREQUENT(node=col(NODE, node), frequent=frequent)
        label = col("label", node)
        query = query.select(
            as_column(label, f"label_{level}"),
            as_column(cast(col("leaves", node) + 1, "BIGINT"), f"size_{level}"),
            as_column(all_of([is_not_null(label), col("released", node), may_list]), f"is_member_{level}"),
            copy=False,
        )
    return query
