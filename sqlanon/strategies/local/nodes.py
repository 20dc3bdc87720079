"""The private table as local recoding sees it: the nodes of each hierarchy, and the distinct combinations of them.

A *node* is a value of an attribute at a level: what a release may show. Nodes are numbered through all levels of an
attribute. Names of columns, all ours: ``q2_n1`` is the node of attribute 2 at level 1; ``node_2`` the one it is
released as.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.hierarchies.build import released_column
from sqlanon.support.coding import Coded, Levels, code_name
from sqlanon.support.expressions import aliased, all_of, col, fragment, named, number, same, template, text, union_all

COMBINATION = "combination"
NODE = "node"


@dataclass(frozen=True)
class Grid:
    """The cells at whose borders ranges end, made by `recode.local.grid`."""

    table: exp.Table
    level: int | None  # the level whose nodes are the cells; None where they are made of quantiles
    of_dates: bool = False


ENDS = ("lower", "upper", "least", "beyond", "middle", "closed")
CELLS = ("cell_low", "cell_high", *ENDS)
"""The columns of a grid's table that say what a cell is, beside ``node`` and ``cell``."""


@dataclass(frozen=True)
class Tree:
    """An attribute's hierarchy over the values of the source, as local recoding needs it."""

    name: str
    height: int
    floor: int  # the lowest level that may be released
    ceiling: int  # the highest
    offsets: tuple[int, ...]  # by level, from the floor on: node = code + offset; the last is the root itself
    leaves: int
    weight: float
    nodes: exp.Table  # made by `nodes`
    ordered: bool  # numbers or times that may be released: ranges of them mean something
    forbidden: tuple[str, ...] = ()
    open_ends: bool = False  # its lowest nodes may be open ends: ``<18``, ``≥90``
    type: str = "VARCHAR"  # of its column
    grid: Grid | None = None  # of an ordered attribute, unless the ends of ranges are exact
    members: exp.Table | None = None  # of an attribute that may be released as sets, made by `set_members`

    @property
    def root(self) -> int:
        """The node at the top; every other node of the hierarchy has a lower number."""
        return self.offsets[-1]

    @property
    def grid_level(self) -> int:
        """The level whose nodes are the cells of the grid; 0 where there is no such level."""
        return 0 if self.grid is None else self.grid.level or 0


def node_name(attribute: int, level: int) -> str:
    """The column with the node of an attribute at a level."""
    return f"q{attribute}_n{level}"


def released_name(attribute: int) -> str:
    """The column with the node that an attribute is released as."""
    return f"node_{attribute}"


def released_nodes(attributes: int, alias: str | None = None) -> list[exp.Expr]:
    """``node_0``, ``node_1``, ..."""
    return [col(released_name(i), alias) for i in range(attributes)]


def agree(names: Iterable[str], one: str, other: str) -> exp.Expr:
    """Whether rows of two relations have the same in some columns."""
    return all_of(col(name, one).eq(col(name, other)) for name in names)


_COMBINATIONS = template("""
    SELECT (row_number() OVER (ORDER BY :order) - 1)::INTEGER AS combination, :nodes, n
    FROM (SELECT :codes, sum(n)::BIGINT AS n FROM :frequency WHERE known GROUP BY :codes) AS c
    WHERE n > 0
""")
_NODE_OF_CODE = fragment("(:code::INTEGER + :offset)::INTEGER")
_ONLY_NODE = fragment(":node::INTEGER")


def combinations(frequency: exp.Expr, heights: Levels, floor: Levels, offsets: Sequence[Sequence[int]]) -> exp.Select:
    """The distinct combinations of known values, numbered in the order of their codes: ``combination``, ``q{i}_n{l}``
    from the floor to the top, and ``n``, rows."""
    codes: list[exp.Expr] = []
    nodes_: list[exp.Expr] = []
    for i, (low, height) in enumerate(zip(floor, heights, strict=True)):
        for level in range(low, height):
            code = col(code_name(i, level))
            codes.append(code)
            nodes_.append(named(_NODE_OF_CODE(code=code, offset=offsets[i][level - low]), node_name(i, level)))
        nodes_.append(named(_ONLY_NODE(node=offsets[i][height - low]), node_name(i, height)))
    return _COMBINATIONS(order=codes or [number(0)], nodes=nodes_, codes=codes, frequency=frequency)


_IN_COMBINATIONS = template("SELECT c.combination, :columns FROM :relation AS f")
_IS_KNOWN = fragment("f.known")
_IS_CODE = fragment(":node = (:code::INTEGER + :offset)")


def in_combinations(
    relation: exp.Expr,
    combinations_: exp.Table,
    heights: Levels,
    floor: Levels,
    offsets: Sequence[Sequence[int]],
    columns: Sequence[str],
    unknown: bool = False,
) -> exp.Select:
    """Rows of a relation with codes (a frequency set, a distribution) with their combination in place of the codes;
    without those of unknown values, or with ``unknown`` with NULL for their combination."""
    keys = [
        _IS_CODE(node=col(node_name(i, low), "c"), code=col(code_name(i, low), "f"), offset=offsets[i][0])
        for i, (low, height) in enumerate(zip(floor, heights, strict=True))
        if low < height
    ]
    query = _IN_COMBINATIONS(columns=[col(name, "f") for name in columns], relation=relation)
    on, kind = all_of([*keys, _IS_KNOWN()]), "left" if unknown else ""
    return query.join(aliased(combinations_, "c"), on=on, join_type=kind, copy=False)


_NODES = template("SELECT *, level <= :ceiling AND :allowed AS released FROM :every AS e")
_LEVEL = template("""
    SELECT
        (:code::INTEGER + :offset)::INTEGER AS node,
        :parent::INTEGER AS parent,
        :level AS level,
        max(:label) AS label,
        :leaves::DOUBLE AS leaves,
        sum(v.rows)::BIGINT AS rows,
        min(:low) AS low,
        max(:high) AS high
    FROM :values AS v
    JOIN :positions AS p ON :same
    WHERE v.known
    GROUP BY :code
""")
_ROOT = template("""
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
""")
_POSITIONS = template("""
    SELECT level_0, :first AS low, :last AS high
    FROM (
        SELECT *, row_number() OVER (ORDER BY :order NULLS FIRST, level_0 NULLS FIRST) - 1 AS position
        FROM :hierarchy
    ) AS p
""")
_FIRST_UNDER = fragment("(min(position) OVER (PARTITION BY :label))::INTEGER")
_LAST_UNDER = fragment("(max(position) OVER (PARTITION BY :label))::INTEGER")
_PARENT = fragment("max(:code)::INTEGER + :offset")
_VALUE = fragment("v.value::VARCHAR")
_ONE_VALUE = fragment("max(value::VARCHAR)")


def nodes(
    coded: Coded,
    hierarchy: exp.Table,
    tree_leaves: int,
    top: str | None,
    floor: int,
    ceiling: int,
    offsets: Sequence[int],
    order: exp.Expr,
    forbidden: Collection[str] = (),
) -> exp.Query:
    """Every node of a hierarchy over known values of the source, from a level up.

    Makes ``node``, ``parent`` (NULL at the top), ``level``, ``label`` (NULL for the value NULL below the top),
    ``leaves`` (ground values of the hierarchy under it, less one), ``rows`` (of the source), ``low`` and ``high`` (the
    positions of its first and last ground value, among all ground values in their order), and ``released``: whether it
    may be.
    """
    parts = [
        _of_level(coded, _positions(hierarchy, level, order, coded.open_ends), level, floor, offsets)
        for level in range(floor, coded.height)
    ]
    root = _ROOT(
        node=offsets[-1],
        level=coded.height,
        # Where there is one level only, its one value is released as it stands.
        label=text(top) if top is not None else _ONE_VALUE(),
        leaves=tree_leaves - 1,
        high=max(tree_leaves - 1, 0),
        values=coded.table,
    )
    return _NODES(ceiling=ceiling, allowed=may_be_shown(col("label"), forbidden), every=union_all(*parts, root))


_IS_ALLOWED = fragment("NOT coalesce(:label IN (:forbidden), FALSE)")


def may_be_shown(label: exp.Expr, forbidden: Collection[str]) -> exp.Expr:
    """Whether a label is none of those that are forbidden."""
    return _IS_ALLOWED(label=label, forbidden=[text(one) for one in sorted(forbidden)]) if forbidden else exp.true()


def _positions(hierarchy: exp.Table, level: int, order: exp.Expr, open_ends: bool) -> exp.Select:
    """Each ground value with the positions between which its label at a level reaches: ``low`` and ``high``."""
    label = col(released_column(level, open_ends))
    return _POSITIONS(first=_FIRST_UNDER(label=label), last=_LAST_UNDER(label=label), order=order, hierarchy=hierarchy)


def _of_level(coded: Coded, positions: exp.Select, level: int, floor: int, offsets: Sequence[int]) -> exp.Select:
    """The nodes of one level below the top."""
    above = offsets[level - floor + 1]
    is_below_top = level + 1 < coded.height
    return _LEVEL(
        code=col(f"code_{level}", "v"),
        offset=offsets[level - floor],
        parent=_PARENT(code=col(f"code_{level + 1}", "v"), offset=above) if is_below_top else above,
        level=level,
        label=col(f"label_{level}", "v") if level >= coded.lowest_labelled else _VALUE(),
        leaves=exp.Max(this=col(f"leaves_{level}", "v")) if level >= coded.lowest_labelled else 0,
        low=col("low", "p"),
        high=col("high", "p"),
        values=coded.table,
        positions=positions,
        same=same(col("value", "v"), col("level_0", "p"), coded.nullable),
    )


are_numbers = template("""
    SELECT coalesce(
        bool_and(coalesce(isfinite(TRY_CAST(level_0::VARCHAR AS DOUBLE)), FALSE)) FILTER (WHERE level_0 IS NOT NULL),
        FALSE
    )
    FROM :hierarchy
""")
"""Whether all ground values of a hierarchy are numbers, written as text or not; and there are any."""


_MEMBERS = template("SELECT n.node, :is_rare AS is_rare FROM :nodes AS n WHERE n.level = :floor")
_IS_FREQUENT = fragment("(:node IN (SELECT node FROM :frequent AS x))")
_IS_MEMBER = fragment("(:label IS NOT NULL AND :released AND :is_frequent)")
_SIZE_OF_NODE = fragment("(:leaves + 1)::BIGINT")


def set_members(tree: Tree, frequent: exp.Expr, exact: bool) -> exp.Select:
    """What a set may list for each lowest node: by level ``label_l``, ``size_l`` (ground values under it) and
    ``is_member_l``; and whether the node itself ``is_rare``.

    A set lists values, or labels above them, that are ``frequent``: nodes that at least as many rows (or persons) of
    the source have as the smallest class must have. Otherwise a set would show which near-unique values there are. If
    it is to be ``exact``, it lists values, frequent or not.
    """
    rare = exp.Not(this=_IS_FREQUENT(node=col(NODE, "n"), frequent=frequent))
    query = _MEMBERS(is_rare=rare, nodes=tree.nodes, floor=tree.floor)
    for level in range(tree.floor, tree.height):
        of = "n" if level == tree.floor else f"n{level}"
        if level > tree.floor:
            below = "n" if level == tree.floor + 1 else f"n{level - 1}"
            query = query.join(aliased(tree.nodes, of), on=col("parent", below).eq(col(NODE, of)), copy=False)
        if exact:
            is_frequent: exp.Expr = exp.true() if level == tree.floor else exp.false()
        else:
            is_frequent = _IS_FREQUENT(node=col(NODE, of), frequent=frequent)
        label = col("label", of)
        is_member = _IS_MEMBER(label=label, released=col("released", of), is_frequent=is_frequent)
        query = query.select(
            named(label, f"label_{level}"),
            named(_SIZE_OF_NODE(leaves=col("leaves", of)), f"size_{level}"),
            named(is_member, f"is_member_{level}"),
            copy=False,
        )
    return query
