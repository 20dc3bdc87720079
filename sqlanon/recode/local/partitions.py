"""Every way to part a few classes into blocks, and what blanks it takes to make each block one class.

Names of columns, all ours, beside those of `recode.local.cells_statements`: ``way`` numbers the ways, ``block`` the
blocks of a way from 1 on. Block 0 is suppressed.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.coding import ROWS
from sqlanon.expressions import (
    aliased,
    all_of,
    anonymous,
    cast,
    col,
    greatest,
    is_there,
    named,
    number,
    select,
    star,
    subquery,
    total,
    union_all,
)
from sqlanon.recode.local.cells_statements import CLASS, agree, nodes_of
from sqlanon.recode.local.nodes import Tree, released_name
from sqlanon.search.classes import KEPT

WAY, BLOCK, LAST = "way", "block", "last"


def first_ways() -> exp.Select:
    """No way yet, before the first class: ``last`` is the number of blocks."""
    return exp.Select(expressions=[named(number(0), LAST)])


def more_ways(ways: exp.Table, classes: int) -> exp.Select:
    """The ways to part classes into blocks, with one class more: it is in a block that is there, in one of its own, or
    in none, block 0, which is suppressed."""
    block = cast(col("range", "b"), "INTEGER")
    last = greatest(col(LAST, "w"), block)
    output: list[exp.Expr] = [col(f"block_{i}", "w") for i in range(classes)]
    output.append(named(block.copy(), f"block_{classes}"))
    every = aliased(exp.Table(this=anonymous("range", number(classes + 2))), "b")
    on = exp.LTE(this=col("range", "b"), expression=exp.Add(this=col(LAST, "w"), expression=number(1)))
    return select([*output, named(last, LAST)], aliased(ways, "w")).join(every, on=on, copy=False)


def parted(ways: exp.Table, classes: int) -> exp.Select:
    """The ways, a row for each class: ``way``, ``class`` and ``block``."""
    order = exp.Order(expressions=[exp.Ordered(this=col(f"block_{i}")) for i in range(classes)])
    numbered = select([exp.Star(), named(exp.Window(this=exp.RowNumber(), order=order), WAY)], ways.copy())
    each = [
        select([col(WAY), named(number(i + 1), CLASS), named(col(f"block_{i}"), BLOCK)], subquery(numbered.copy(), "n"))
        for i in range(classes)
    ]
    query: exp.Query = each[0] if classes == 1 else union_all(*each)
    return star(subquery(query, "e"))


def blocks(parts: exp.Table, rows: exp.Table, trees: Sequence[Tree], blankable: Sequence[int]) -> exp.Select:
    """Where the ways place each class: ``way``, ``class`` and ``node_i``, with blanks where its block differs.

    A block that differs in what cannot be blanked is left out.
    """
    names = [CLASS, *(released_name(i) for i in range(len(trees)))]
    each = exp.Select(expressions=[col(name) for name in names], distinct=exp.Distinct()).from_(rows.copy())
    query = exp.Select().from_(aliased(parts, "p"), copy=False)
    query = query.join(subquery(each, "r"), on=exp.EQ(this=col(CLASS, "p"), expression=col(CLASS, "r")), copy=False)
    output: list[exp.Expr] = [col(WAY, "p"), col(CLASS, "p")]
    conditions: list[exp.Expr] = []
    for i, tree in enumerate(trees):
        low, high = (
            exp.Window(this=extreme(this=col(released_name(i), "r")), partition_by=[col(WAY, "p"), col(BLOCK, "p")])
            for extreme in (exp.Min, exp.Max)
        )
        blank = number(tree.root) if i in blankable else exp.null()
        node = exp.If(this=exp.EQ(this=low, expression=high), true=low.copy(), false=blank)
        output.append(named(node, released_name(i)))
        conditions.append(is_there(col(released_name(i))))
    query = query.select(*output, copy=False).where(exp.GT(this=col(BLOCK, "p"), expression=number(0)), copy=False)
    return star(subquery(query, "b")).where(*conditions, copy=False)


def best_way(
    parts: exp.Table, placed: exp.Table, judged: exp.Query, rows: exp.Table, trees: Sequence[Tree]
) -> exp.Select:
    """The number of the way that blanks least, a suppressed row counting as one that is all blank.

    Of equals, the one that suppresses fewest rows; then the first.
    """
    count = len(trees)
    keys: list[exp.Expr] = [col(CLASS), *nodes_of(count)]
    sizes = select([*keys, named(total(col(ROWS)), ROWS)], rows.copy(), [key.copy() for key in keys])
    query = exp.Select().from_(aliased(parts, "p"), copy=False)
    query = query.join(subquery(sizes, "r"), on=exp.EQ(this=col(CLASS, "p"), expression=col(CLASS, "r")), copy=False)
    on = all_of(exp.EQ(this=col(name, "p"), expression=col(name, "b")) for name in (WAY, CLASS))
    query = query.join(aliased(placed, "b"), on=on, join_type="left", copy=False)
    in_class = exp.And(this=exp.EQ(this=col(WAY, "b"), expression=col(WAY, "j")), expression=agree(count, "b", "j"))
    query = query.join(subquery(judged, "j"), on=in_class, join_type="left", copy=False)
    blanks: exp.Expr = number(0.0)
    for i, tree in enumerate(trees):
        is_blank = exp.NEQ(this=col(released_name(i), "b"), expression=col(released_name(i), "r"))
        blanks = exp.Add(
            this=blanks, expression=exp.If(this=is_blank, true=number(float(tree.weight)), false=number(0.0))
        )
    kept = exp.Coalesce(this=col(KEPT, "j"), expressions=[exp.false()])
    all_blank = number(float(sum(tree.weight for tree in trees)))
    each = exp.Mul(this=col(ROWS, "r"), expression=exp.If(this=kept, true=blanks, false=all_blank))
    lost = exp.Sum(this=exp.If(this=kept.copy(), true=number(0), false=col(ROWS, "r")))
    query = query.select(col(WAY, "p"), copy=False).group_by(col(WAY, "p"), copy=False)
    price = exp.Round(this=exp.Sum(this=each), decimals=number(6))
    query = query.order_by(exp.Ordered(this=price), exp.Ordered(this=lost), col(WAY, "p"), copy=False)
    return query.limit(1, copy=False)


def of_way(placed: exp.Table, judged: exp.Query, way: int, attributes: int) -> exp.Select:
    """What a way places, where it is in a class that meets the policy: a choice."""
    query = select([col(CLASS, "b"), *nodes_of(attributes, "b")], aliased(placed, "b"))
    in_class = [exp.EQ(this=col(WAY, "b"), expression=col(WAY, "j")), agree(attributes, "b", "j")]
    query = query.join(subquery(judged, "j"), on=all_of(in_class), copy=False)
    return query.where(exp.EQ(this=col(WAY, "b"), expression=number(way)), col(KEPT, "j"), copy=False)
