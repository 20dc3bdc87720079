"""The private table as local recoding sees it: the nodes of each hierarchy, and the distinct combinations of them.

A *node* is a value of an attribute at a level: what a release may show. Nodes are numbered through all levels of an
attribute. Names of columns, all ours: ``q2_n1`` is the node of attribute 2 at level 1; ``node_2`` the one it is
released as.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sqlglot import exp

from sqlanon.coding import Coded, Levels, code_name
from sqlanon.expressions import aliased, all_of, col, fragment, named, number, same, template, text, union_all
from sqlanon.hierarchies.build import released_column
from sqlanon.records import dataclass

COMBINATION = "combination"
NODE = "node"


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

    @property
    def root(self) -> int:
        """The node at the top; every other node of the hierarchy has a lower number."""
        return self.offsets[-1]


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
    SELECT level_0, :reach
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
    positions = _positions(hierarchy, coded.height, order, coded.open_ends)
    parts = [_of_level(coded, positions, level, floor, offsets) for level in range(floor, coded.height)]
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


def _positions(hierarchy: exp.Table, height: int, order: exp.Expr, open_ends: bool) -> exp.Select:
    """Each ground value with the positions between which its labels reach: ``low_l`` and ``high_l``, by level."""
    reach = []
    for level in range(height):
        label = col(released_column(level, open_ends))
        reach += [named(_FIRST_UNDER(label=label), f"low_{level}"), named(_LAST_UNDER(label=label), f"high_{level}")]
    return _POSITIONS(reach=reach, order=order, hierarchy=hierarchy)


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
        low=col(f"low_{level}", "p"),
        high=col(f"high_{level}", "p"),
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
