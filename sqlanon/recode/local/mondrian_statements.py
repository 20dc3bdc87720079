"""The tables of strategy ``mondrian``: the parts that the combinations are in, and how they are divided.

Names of tables and columns, all ours. ``parts`` has the combinations (`nodes.combinations`) of the parts that may
still be cut, with the number of each in ``part``. ``cuts`` are made by the builders of `recode.local.cuts`.
``sides`` has the combinations by each such cut. ``chosen``: for each part the ``attribute`` that it is cut along, and
its ``place`` among the parts that are cut. ``classes`` has the combinations of the parts that are not cut any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from sqlanon.coding import ROWS
from sqlanon.expressions import (
    aliased,
    all_columns,
    all_of,
    cast,
    col,
    is_null,
    is_there,
    named,
    number,
    select,
    subquery,
)
from sqlanon.recode.local.cuts import ATTRIBUTE, GAIN, INSIDE, PART, over, union, with_columns
from sqlanon.recode.local.nodes import COMBINATION, NODE, Tree, node_name, released_name

SIDES = (PART, ATTRIBUTE, INSIDE, GAIN)
"""The columns that tell the sides of all cuts apart, and their gains."""


def several_levels(trees: Sequence[Tree]) -> list[tuple[int, Tree]]:
    """The attributes that may have several values, by number."""
    return [(i, tree) for i, tree in enumerate(trees) if tree.floor < tree.height]


def allowed_nodes(tree: Tree) -> exp.Select:
    """For each node the nearest that may be released, itself or above it, as ``shown``; and the ``highest``.

    Both are NULL where there is none.
    """
    depth = tree.height - tree.floor + 1
    found = [exp.If(this=col("released", f"n{j}"), true=col(NODE, f"n{j}")) for j in range(depth)]
    output: list[exp.Expr] = [
        col(NODE, "n0"),
        named(_first_of(found), "shown"),
        named(_first_of([one.copy() for one in reversed(found)]), "highest"),
    ]
    query = select(output, aliased(tree.nodes, "n0"))
    for j in range(1, depth):
        on = col("parent", f"n{j - 1}").eq(col(NODE, f"n{j}"))
        query = query.join(aliased(tree.nodes, f"n{j}"), on=on, join_type="left", copy=False)
    return query


def first_parts(combinations: exp.Table, trees: Sequence[Tree], bounded: Mapping[int, exp.Table]) -> exp.Select:
    """The parts to begin with: what can be released as one, for what levels and labels are allowed."""
    query = exp.Select().from_(aliased(combinations, "c"), copy=False)
    for i, table in bounded.items():
        on = col(node_name(i, trees[i].floor), "c").eq(col(NODE, f"a{i}"))
        query = query.join(aliased(table, f"a{i}"), on=on, copy=False)
        query = query.where(is_there(col("highest", f"a{i}")), copy=False)
    order: list[exp.Expr] = [exp.Ordered(this=col("highest", f"a{i}")) for i in bounded]
    rank: exp.Expr = number(0)
    if order:
        rank = over(exp.DenseRank(), (), order) - 1
    part = named(cast(rank, "INTEGER"), PART)
    return query.select(col(COMBINATION, "c"), col(ROWS, "c"), part, copy=False)


def good_parts(parts: exp.Table, judged: exp.Select) -> exp.Select:
    """The parts that meet the requirements."""
    kept = select([col(PART)], subquery(judged, "j")).where(col("kept"), copy=False)
    return select([exp.Star()], parts.copy()).where(exp.In(this=col(PART), query=subquery(kept)), copy=False)


def cut_rows(combinations: exp.Table, trees: Sequence[Tree], by_combination: Sequence[bool]) -> exp.Query:
    """``rows``: one for each combination and attribute that has several levels."""
    branches: list[exp.Query] = []
    for i, tree in several_levels(trees):
        node = node_name(i, tree.floor)
        output: list[exp.Expr] = [
            named(number(i), ATTRIBUTE),
            col(COMBINATION),
            named(col(COMBINATION if by_combination[i] else node), "item"),
            named(col(node), NODE),
            col(ROWS),
        ]
        branches.append(select(output, combinations.copy()))
    return union(branches)


def cut_values(trees: Sequence[Tree]) -> exp.Query:
    """``values``: of the attributes' lowest nodes.

    Makes ``attribute``, ``node``, ``low``, ``high`` and ``leaves`` as in `nodes`, ``void`` (whether it is NULL),
    ``top`` (what its tree's root loses), ``scale`` (what a lost leaf counts), and ``ordered``.
    """
    branches: list[exp.Query] = []
    for i, tree in several_levels(trees):
        output: list[exp.Expr] = [
            named(number(i), ATTRIBUTE),
            *(col(name) for name in (NODE, "low", "high", "leaves")),
            named(is_null(col("label")), "void"),
            named(cast(number(tree.leaves - 1), "DOUBLE"), "top"),
            named(cast(number(tree.weight / max(tree.leaves - 1, 1)), "DOUBLE"), "scale"),
            named(exp.true() if tree.ordered else exp.false(), "ordered"),
        ]
        lowest = col("level").eq(number(tree.floor))
        branches.append(select(output, tree.nodes.copy()).where(lowest, copy=False))
    return union(branches)


def cut_ancestors(combinations: exp.Table, trees: Sequence[Tree]) -> exp.Query:
    """``ancestors``: for each lowest node of an attribute that has several levels, itself and those above it."""
    branches: list[exp.Query] = []
    for i, tree in several_levels(trees):
        for level in range(tree.floor, tree.height + 1):
            names = [named(col(node_name(i, tree.floor)), "item"), named(col(node_name(i, level)), NODE)]
            pairs = exp.Select(expressions=names, distinct=exp.Distinct()).from_(combinations.copy(), copy=False)
            output: list[exp.Expr] = [
                named(number(i), ATTRIBUTE),
                col("item", "p"),
                named(number(level), "level"),
                col(NODE, "p"),
                col("leaves", "v"),
                named(cast(number(tree.weight / max(tree.leaves - 1, 1)), "DOUBLE"), "scale"),
            ]
            on = col(NODE, "p").eq(col(NODE, "v"))
            branches.append(select(output, subquery(pairs, "p")).join(aliased(tree.nodes, "v"), on=on, copy=False))
    return union(branches)


def sides(parts: exp.Table, rows: exp.Table, cuts: exp.Table) -> exp.Select:
    """The combinations on the sides of all cuts: one occurs once for each attribute that its part can be cut along."""
    query = select([col(COMBINATION, "r"), col(ROWS, "r"), *(col(key, "c") for key in SIDES)], aliased(rows, "r"))
    return query.join(aliased(parts, "p"), on=col(COMBINATION, "r").eq(col(COMBINATION, "p")), copy=False).join(
        aliased(cuts, "c"),
        on=all_of(
            [
                col(ATTRIBUTE, "r").eq(col(ATTRIBUTE, "c")),
                col("item", "r").eq(col("item", "c")),
                col(PART, "p").eq(col(PART, "c")),
            ]
        ),
        copy=False,
    )


def chosen(judged: exp.Select) -> exp.Select:
    """For each part that can be cut, the attribute along which it is: the greatest gain, then the first attribute."""
    keys = [PART, ATTRIBUTE, GAIN]
    good = select([col(key) for key in keys], subquery(judged, "j"), [col(key) for key in keys])
    good = good.having(exp.LogicalAnd(this=col("kept")), copy=False)
    order: list[exp.Expr] = [exp.Ordered(this=col(GAIN), desc=True), exp.Ordered(this=col(ATTRIBUTE))]
    ranked = with_columns(good, {"rank": over(exp.RowNumber(), [PART], order)})
    best = select([col(PART), col(ATTRIBUTE)], subquery(ranked, "r"))
    best = best.where(col("rank").eq(1), copy=False)
    return with_columns(best, {"place": over(exp.RowNumber(), (), [exp.Ordered(this=col(PART))])})


def divided(sides_: exp.Table, chosen_: exp.Table, last: int) -> exp.Select:
    """The parts after the chosen cuts: what is inside keeps its number, what is not gets one of its own."""
    on = all_of(col(key, "s").eq(col(key, "h")) for key in (PART, ATTRIBUTE))
    new = cast(col("place", "h") + number(last), "INTEGER")
    side = exp.If(this=col(INSIDE, "s"), true=col(PART, "s"), false=new)
    query = select([col(COMBINATION, "s"), col(ROWS, "s"), named(side, PART)], aliased(sides_, "s"))
    return query.join(aliased(chosen_, "h"), on=on, copy=False)


def closed(parts: exp.Table, chosen_: exp.Table) -> exp.Select:
    """The parts that are not cut any more: ``combination`` and ``part``."""
    on = col(PART, "p").eq(col(PART, "h"))
    query = select([col(COMBINATION, "p"), col(PART, "p")], aliased(parts, "p"))
    return query.join(aliased(chosen_, "h"), on=on, join_type="anti", copy=False)


def placed(classes: exp.Table, shown: Sequence[exp.Table]) -> exp.Select:
    """What is released: ``combination`` and ``node_i``; ``shown`` says by attribute and part the node."""
    query = exp.Select().from_(aliased(classes, "c"), copy=False)
    output: list[exp.Expr] = [col(COMBINATION, "c")]
    for i, table in enumerate(shown):
        on = col(PART, f"s{i}").eq(col(PART, "c"))
        query = query.join(aliased(table, f"s{i}"), on=on, copy=False)
        output.append(named(col(NODE, f"s{i}"), released_name(i)))
    return query.select(*output, copy=False)


def greatest_part(parts: exp.Table) -> exp.Select:
    """One number: the greatest of a part; 0 if there is none."""
    return select([exp.Coalesce(this=exp.Max(this=col(PART)), expressions=[number(0)])], parts.copy())


def members(combinations: exp.Table, classes: exp.Table) -> exp.Select:
    """The combinations, with their ``part``."""
    on = col(COMBINATION, "c").eq(col(COMBINATION, "p"))
    query = select([all_columns("c"), col(PART, "p")], aliased(combinations, "c"))
    return query.join(aliased(classes, "p"), on=on, copy=False)


def _first_of(values: Sequence[exp.Expr]) -> exp.Expr:
    return exp.Coalesce(this=values[0], expressions=list(values[1:]))
