"""The private table as local recoding sees it: the nodes of each hierarchy, and the distinct combinations of them.

A *node* is a value of an attribute at a level: what a release may show. Nodes are numbered through all levels of an
attribute. Names of columns, all ours: ``q2_n1`` is the node of attribute 2 at level 1; ``node_2`` the one it is
released as.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.coding import KNOWN, ROWS, Coded, Levels, code_name
from sqlanon.expressions import (
    aliased,
    all_of,
    cast,
    col,
    is_there,
    named,
    number,
    same,
    select,
    subquery,
    text,
    total,
    union_all,
)

COMBINATION = "combination"
NODE = "node"


@dataclass(frozen=True)
class Tree:
    """An attribute's hierarchy over the values of the source, as local recoding needs it.

    Attributes
    ----------
    name:
        The attribute.
    height, floor, ceiling:
        Its top level, and the lowest and the highest that may be released.
    offsets:
        By level, from ``floor`` on: what is added to a code to make it a node; the last is the root itself.
    leaves:
        The ground values of the hierarchy.
    weight:
        What the attribute's loss counts.
    nodes:
        Made by `nodes`.
    ordered:
        Whether its values are numbers or times, and may be released: then ranges of them mean something. (Groups of
        values need not follow the order.)
    forbidden:
        Labels that must not be released, whatever they stand for.
    """

    name: str
    height: int
    floor: int
    ceiling: int
    offsets: tuple[int, ...]
    leaves: int
    weight: float
    nodes: exp.Table
    ordered: bool
    forbidden: tuple[str, ...] = ()

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


def combinations(frequency: exp.Expr, heights: Levels, floor: Levels, offsets: Sequence[Sequence[int]]) -> exp.Select:
    """The distinct combinations of known values, numbered in the order of their codes.

    Makes ``combination``, ``q{i}_n{l}`` from the floor to the top, and ``n``, rows.
    """
    codes = [
        code_name(i, level)
        for i, (low, height) in enumerate(zip(floor, heights, strict=True))
        for level in range(low, height)
    ]
    counts = select([*(col(code) for code in codes), named(total(col(ROWS)), ROWS)], frequency.copy())
    counts = counts.where(col(KNOWN), copy=False)
    if codes:
        counts = counts.group_by(*(col(code) for code in codes), copy=False)
    order = [exp.Ordered(this=col(code)) for code in codes] or [exp.Ordered(this=number(0))]
    rank = exp.Window(this=exp.RowNumber(), order=exp.Order(expressions=order))
    output: list[exp.Expr] = [
        named(cast(rank - 1, "INTEGER"), COMBINATION),
        *(
            named(_node_of(i, level, height, offsets[i][level - low]), node_name(i, level))
            for i, (low, height) in enumerate(zip(floor, heights, strict=True))
            for level in range(low, height + 1)
        ),
        col(ROWS),
    ]
    return select(output, subquery(counts, "c")).where(col(ROWS) > 0, copy=False)


def _node_of(attribute: int, level: int, height: int, offset: int) -> exp.Expr:
    if level == height:
        return cast(number(offset), "INTEGER")
    code = cast(col(code_name(attribute, level)), "INTEGER")
    return cast(code + number(offset), "INTEGER")


def in_combinations(
    relation: exp.Expr,
    combinations_: exp.Table,
    heights: Levels,
    floor: Levels,
    offsets: Sequence[Sequence[int]],
    columns: Sequence[str],
) -> exp.Select:
    """Rows of a relation with codes (a frequency set, a distribution) with their combination in place of the codes.

    What has unknown values is in no combination, and left out.
    """
    keys = [
        col(node_name(i, low), "c").eq(exp.Paren(this=_in(i, low, offsets[i][0])))
        for i, (low, height) in enumerate(zip(floor, heights, strict=True))
        if low < height
    ]
    output: list[exp.Expr] = [col(COMBINATION, "c"), *(col(name, "f") for name in columns)]
    query = select(output, aliased(relation, "f"))
    query = query.join(aliased(combinations_, "c"), on=all_of(keys), copy=False)
    return query.where(col(KNOWN, "f"), copy=False)


def _in(attribute: int, level: int, offset: int) -> exp.Expr:
    code = cast(col(code_name(attribute, level), "f"), "INTEGER")
    return code + number(offset)


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
    height = coded.height
    places = _positions(hierarchy, height, order)
    parts = [_of_level(coded, places, level, floor, offsets) for level in range(floor, height)]
    whole = exp.Coalesce(this=total(col("rows")), expressions=[number(0)])
    # Where there is one level only, its one value is released as it stands.
    label: exp.Expr = text(top) if top is not None else exp.Max(this=cast(col("value"), "VARCHAR"))
    root = select(
        [
            named(cast(number(offsets[-1]), "INTEGER"), NODE),
            named(cast(exp.null(), "INTEGER"), "parent"),
            named(number(height), "level"),
            named(label, "label"),
            named(cast(number(tree_leaves - 1), "DOUBLE"), "leaves"),
            named(whole, "rows"),
            named(number(0), "low"),
            named(number(max(tree_leaves - 1, 0)), "high"),
        ],
        coded.table.copy(),
    ).where(col(KNOWN), copy=False)
    every: exp.Query = union_all(*parts, root) if parts else root
    allowed = [col("level") <= number(ceiling), may_be_shown(col("label"), forbidden)]
    return select([exp.Star(), named(all_of(allowed), "released")], subquery(every, "e"))


def may_be_shown(label: exp.Expr, forbidden: Collection[str]) -> exp.Expr:
    """Whether a label is none of those that are forbidden."""
    if not forbidden:
        return exp.true()
    names: list[exp.Expr] = [text(one) for one in sorted(forbidden)]
    is_one = exp.Coalesce(this=exp.In(this=label, expressions=names), expressions=[exp.false()])
    return ~is_one


def _positions(hierarchy: exp.Table, height: int, order: exp.Expr) -> exp.Select:
    """Each ground value with the positions between which its labels reach: ``low_l`` and ``high_l``, by level."""
    terms = [exp.Ordered(this=order.copy(), nulls_first=True), exp.Ordered(this=col("level_0"), nulls_first=True)]
    rank = exp.Window(this=exp.RowNumber(), order=exp.Order(expressions=terms))
    placed = select([exp.Star(), named(rank - 1, "position")], hierarchy.copy())
    output: list[exp.Expr] = [col("level_0")]
    for level in range(height):
        for name, extreme in (("low", exp.Min), ("high", exp.Max)):
            window = exp.Window(this=extreme(this=col("position")), partition_by=[col(f"level_{level}")])
            output.append(named(cast(window, "INTEGER"), f"{name}_{level}"))
    return select(output, subquery(placed, "p"))


def _of_level(coded: Coded, places: exp.Select, level: int, floor: int, offsets: Sequence[int]) -> exp.Select:
    """The nodes of one level below the top."""
    offset, above = offsets[level - floor], offsets[level - floor + 1]
    parent: exp.Expr = number(above)
    if level + 1 < coded.height:
        parent = cast(exp.Max(this=col(f"code_{level + 1}", "v")), "INTEGER") + number(above)
    label: exp.Expr = cast(col("value", "v"), "VARCHAR") if level == 0 else col(f"label_{level}", "v")
    leaves: exp.Expr = number(0) if level == 0 else exp.Max(this=col(f"leaves_{level}", "v"))
    code = cast(col(f"code_{level}", "v"), "INTEGER")
    output: list[exp.Expr] = [
        named(cast(code + number(offset), "INTEGER"), NODE),
        named(cast(parent, "INTEGER"), "parent"),
        named(number(level), "level"),
        named(exp.Max(this=label), "label"),
        named(cast(leaves, "DOUBLE"), "leaves"),
        named(total(col("rows", "v")), "rows"),
        named(exp.Min(this=col(f"low_{level}", "p")), "low"),
        named(exp.Max(this=col(f"high_{level}", "p")), "high"),
    ]
    on = same(col("value", "v"), col("level_0", "p"), coded.nullable)
    query = select(output, aliased(coded.table, "v")).join(subquery(places.copy(), "p"), on=on, copy=False)
    return query.where(col(KNOWN, "v"), copy=False).group_by(col(f"code_{level}", "v"), copy=False)


def are_numbers(values: exp.Table) -> exp.Select:
    """Whether all ground values of a hierarchy are numbers, written as text or not; and there are any."""
    value = cast(col("level_0"), "VARCHAR")
    there = is_there(col("level_0"))
    finite = exp.Anonymous(this="isfinite", expressions=[as_number(value)])
    fine = exp.Coalesce(this=finite, expressions=[exp.false()])
    every = exp.Filter(this=exp.LogicalAnd(this=fine), expression=exp.Where(this=there))
    return select([exp.Coalesce(this=every, expressions=[exp.false()])], values.copy())


def as_number(value: exp.Expr) -> exp.TryCast:
    """A text as a number, or NULL."""
    return exp.TryCast(this=value, to=exp.DataType.build("DOUBLE"))
