"""Blanking cells of the rows that a generalization would suppress.

A *blank* is the top label of its attribute, and a value of its own: rows are in one class if they read the same, blanks
and all. Names of columns, all ours: ``class`` numbers the classes that break the policy; ``node_i`` is the node that a
reader sees, so that one whose label is the top label is the root; ``pattern`` is a set of blanked attributes, a bit for
each.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.coding import ROWS, Levels
from sqlanon.expressions import (
    aliased,
    all_of,
    anonymous,
    cast,
    col,
    is_there,
    named,
    number,
    select,
    star,
    subquery,
    union_all,
)
from sqlanon.recode.local.nodes import COMBINATION, NODE, Tree, node_name, released_name
from sqlanon.requirements.base import CLASS_SIZE
from sqlanon.search.classes import KEPT

CLASS, PATTERN, WEIGHT, BUCKET = "class", "pattern", "weight", "bucket"


def nodes_of(attributes: int, alias: str | None = None) -> list[exp.Expr]:
    """``node_0``, ``node_1``, ..."""
    return [col(released_name(i), alias) for i in range(attributes)]


def agree(attributes: int, one: str, other: str) -> exp.Expr:
    """Whether rows of two relations read the same."""
    pairs = zip(nodes_of(attributes, one), nodes_of(attributes, other), strict=True)
    return all_of(exp.EQ(this=a, expression=b) for a, b in pairs)


def as_read(combinations: exp.Table, trees: Sequence[Tree], levels: Levels) -> exp.Select:
    """The combinations at a generalization, as readers see them: ``combination``, ``n``, ``node_i``."""
    query = exp.Select().from_(aliased(combinations, "c"), copy=False)
    nodes: list[exp.Expr] = []
    for i, (tree, level) in enumerate(zip(trees, levels, strict=True)):
        own = col(node_name(i, level), "c")
        query = query.join(aliased(tree.nodes, f"v{i}"), on=exp.EQ(this=own, expression=col(NODE, f"v{i}")), copy=False)
        is_root = exp.EQ(this=col(NODE), expression=number(tree.root))
        top = exp.Subquery(this=select([col("label")], tree.nodes.copy()).where(is_root, copy=False))
        reads_top = exp.EQ(this=col("label", f"v{i}"), expression=top)
        nodes.append(named(exp.If(this=reads_top, true=number(tree.root), false=own.copy()), released_name(i)))
    return query.select(col(COMBINATION, "c"), col(ROWS, "c"), *nodes, copy=False)


def is_released(tree: Tree) -> exp.Select:
    """Whether an attribute may be blanked: its top label may be released."""
    return select([col("released")], tree.nodes.copy()).where(
        exp.EQ(this=col(NODE), expression=number(tree.root)), copy=False
    )


def with_classes(read: exp.Table, judged: exp.Query, attributes: int) -> exp.Select:
    """The combinations as read, with ``kept`` of their class, and the number of the class."""
    order = exp.Order(expressions=[exp.Ordered(this=node) for node in nodes_of(attributes)])
    rank = exp.Window(this=exp.DenseRank(), partition_by=[col(KEPT)], order=order)
    output = [col(COMBINATION, "r"), col(ROWS, "r"), *nodes_of(attributes, "r"), col(KEPT, "j")]
    query = select(output, aliased(read, "r"))
    query = query.join(subquery(judged, "j"), on=agree(attributes, "r", "j"), copy=False)
    return select([exp.Star(), named(cast(rank, "INTEGER"), CLASS)], subquery(query, "w"))


def waiting(read: exp.Table, attributes: int, placed: exp.Table | None = None) -> exp.Select:
    """The rows of failing classes that have no place yet: ``class``, ``combination``, ``n``, ``node_i``."""
    output = [col(CLASS, "r"), col(COMBINATION, "r"), col(ROWS, "r"), *nodes_of(attributes, "r")]
    query = select(output, aliased(read, "r"))
    query = query.where(exp.Not(this=col(KEPT, "r")), copy=False)
    if placed is None:
        return query
    same = exp.EQ(this=col(CLASS, "r"), expression=col(CLASS, "d"))
    return query.join(aliased(placed, "d"), on=same, join_type="anti", copy=False)


def helpers(read: exp.Table, trees: Sequence[Tree], blankable: Sequence[int]) -> exp.Select:
    """The kept rows that read as blank somewhere: blanked rows may be in a class with them."""
    blank: exp.Expr = exp.false()
    for i in blankable:
        blank = exp.Or(this=blank, expression=exp.EQ(this=col(released_name(i)), expression=number(trees[i].root)))
    query = select([col(COMBINATION), col(ROWS), *nodes_of(len(trees))], read.copy())
    return query.where(col(KEPT), exp.Paren(this=blank), copy=False)


def patterns(trees: Sequence[Tree], blankable: Sequence[int]) -> exp.Select:
    """All sets of blanked attributes: ``pattern``, ``weight``, and ``bucket``, the weight in mean weights, rounded up.

    With equal weights the bucket is the number of blanks.
    """
    weight: exp.Expr = number(0.0)
    for i in blankable:
        weight = exp.Add(this=weight, expression=_if_blank(i, number(float(trees[i].weight)), number(0.0)))
    mean = sum(trees[i].weight for i in blankable) / len(blankable)
    bits: exp.Expr = number(0)
    for bit_number, i in enumerate(blankable):
        shifted = exp.BitwiseRightShift(this=col("range"), expression=number(bit_number))
        bit = exp.Paren(this=exp.BitwiseAnd(this=exp.Paren(this=shifted), expression=number(1)))
        bits = exp.Add(this=bits, expression=exp.Mul(this=bit, expression=number(1 << i)))
    every = exp.Table(this=anonymous("range", number(1), number(1 << len(blankable))))
    masks = select([named(cast(bits, "BIGINT"), PATTERN)], every)
    weighed = select([col(PATTERN), named(weight, WEIGHT)], subquery(masks, "m"))
    rounded = exp.Round(this=exp.Div(this=col(WEIGHT), expression=number(mean)), decimals=number(9))
    bucket = named(cast(exp.Ceil(this=rounded), "INTEGER"), BUCKET)
    order = exp.Order(expressions=[exp.Ordered(this=col(name)) for name in (BUCKET, PATTERN)])
    place = named(exp.Window(this=exp.RowNumber(), order=order), "place")
    return select([exp.Star(), place], subquery(select([exp.Star(), bucket], subquery(weighed, "w")), "p"))


def _if_blank(attribute: int, yes: exp.Expr, no: exp.Expr, alias: str | None = None) -> exp.Expr:
    masked = exp.BitwiseAnd(this=col(PATTERN, alias), expression=number(1 << attribute))
    return exp.If(this=exp.NEQ(this=exp.Paren(this=masked), expression=number(0)), true=yes, false=no)


def tries(
    rows: exp.Table, all_patterns: exp.Table, trees: Sequence[Tree], blankable: Sequence[int], first: int, last: int
) -> exp.Select:
    """Waiting rows with some patterns of blanks, those from one place to another: columns as in `waiting`, ``weight``
    and ``pattern``.

    Only what is not blank is blanked.
    """
    nodes: list[exp.Expr] = []
    conditions: list[exp.Expr] = [exp.Between(this=col("place", "p"), low=number(first), high=number(last))]
    for i, tree in enumerate(trees):
        own = col(released_name(i), "w")
        if i in blankable:
            nodes.append(named(_if_blank(i, number(tree.root), own, "p"), released_name(i)))
            shows = exp.NEQ(this=own.copy(), expression=number(tree.root))
            conditions.append(_if_blank(i, shows, exp.true(), "p"))
        else:
            nodes.append(own)
    output = [col(CLASS, "w"), col(COMBINATION, "w"), col(ROWS, "w"), *nodes, col(WEIGHT, "p"), col(PATTERN, "p")]
    query = select(output, aliased(rows, "w"))
    return query.join(aliased(all_patterns, "p"), on=all_of(conditions), copy=False)


def together(tried: exp.Expr, fixed: Sequence[exp.Expr], attributes: int) -> exp.Subquery:
    """What is tried and what has its place: ``combination``, ``n``, ``node_i``."""
    columns = [col(COMBINATION), col(ROWS), *nodes_of(attributes)]
    parts = [select([column.copy() for column in columns], one.copy()) for one in (tried, *fixed)]
    query: exp.Query = union_all(*parts)
    return subquery(query, "t")


def options(tried: exp.Table, judged: exp.Query, attributes: int) -> exp.Select:
    """Where waiting classes may be placed, all of them together: a row for each class and each pattern that would be in
    a class that meets the policy: ``class``, ``node_i``, ``weight``, ``pattern``, ``class_size``."""
    names = [CLASS, *(released_name(i) for i in range(attributes)), WEIGHT, PATTERN]
    each = exp.Select(expressions=[col(name) for name in names], distinct=exp.Distinct())
    query = select([*(col(name, "t") for name in names), col(CLASS_SIZE, "j")], subquery(each.from_(tried.copy()), "t"))
    query = query.join(subquery(judged, "j"), on=agree(attributes, "t", "j"), copy=False)
    return query.where(col(KEPT, "j"), copy=False)


def _best_first(*last: str) -> exp.Order:
    """The least weight; then the largest class, so that many choose the same."""
    weight = exp.Round(this=col(WEIGHT), decimals=number(9))
    size = exp.Ordered(this=col(CLASS_SIZE), desc=True)
    return exp.Order(expressions=[exp.Ordered(this=weight), size, *(exp.Ordered(this=col(name)) for name in last)])


def chosen(possible: exp.Table, attributes: int) -> exp.Select:
    """What each waiting class chooses: ``class`` and ``node_i``."""
    rank = exp.Window(this=exp.RowNumber(), partition_by=[col(CLASS)], order=_best_first(PATTERN))
    ranked = select([exp.Star(), named(rank, "rank")], possible.copy())
    first = exp.EQ(this=col("rank"), expression=number(1))
    return select([col(CLASS), *nodes_of(attributes)], subquery(ranked, "r")).where(first, copy=False)


def placed_rows(rows: exp.Table, choice: exp.Table, attributes: int) -> exp.Select:
    """The rows of the classes of a choice, where it places them."""
    same = exp.EQ(this=col(CLASS, "w"), expression=col(CLASS, "d"))
    query = select([col(COMBINATION, "w"), col(ROWS, "w"), *nodes_of(attributes, "d")], aliased(rows, "w"))
    return query.join(aliased(choice, "d"), on=same, copy=False)


def good(choice: exp.Table, judged: exp.Query, attributes: int) -> exp.Select:
    """What of a choice is in a class that meets the policy."""
    query = select([col(CLASS, "d"), *nodes_of(attributes, "d")], aliased(choice, "d"))
    query = query.join(subquery(judged, "j"), on=agree(attributes, "d", "j"), copy=False)
    return query.where(col(KEPT, "j"), copy=False)


def single_best(possible: exp.Table, attributes: int) -> exp.Select:
    """The best option, with all that would be in one class with it."""
    best = star(possible.copy())
    best.set("order", _best_first(PATTERN, CLASS))
    query = select([col(CLASS, "o"), *nodes_of(attributes, "o")], aliased(possible, "o"))
    one = subquery(best.limit(1, copy=False), "b")
    return query.join(one, on=agree(attributes, "o", "b"), copy=False)


def both(before: exp.Table, accepted: exp.Table) -> exp.Query:
    """Two choices in one."""
    return union_all(star(before.copy()), star(accepted.copy()))


def released(
    combinations: exp.Table, read: exp.Table, choice: exp.Table, trees: Sequence[Tree], levels: Levels
) -> exp.Select:
    """All that is released: the kept rows as they are, and those of a choice with their blanks."""
    query = exp.Select().from_(aliased(combinations, "c"), copy=False)
    same = exp.EQ(this=col(COMBINATION, "c"), expression=col(COMBINATION, "r"))
    query = query.join(aliased(read, "r"), on=same, copy=False)
    in_choice = exp.And(
        this=exp.EQ(this=col(CLASS, "r"), expression=col(CLASS, "d")), expression=exp.Not(this=col(KEPT, "r"))
    )
    query = query.join(aliased(choice, "d"), on=in_choice, join_type="left", copy=False)
    output: list[exp.Expr] = [col(COMBINATION, "c")]
    for i, (tree, level) in enumerate(zip(trees, levels, strict=True)):
        blank = exp.NEQ(this=col(released_name(i), "d"), expression=col(released_name(i), "r"))
        node = exp.If(this=blank, true=number(tree.root), false=col(node_name(i, level), "c"))
        output.append(named(cast(node, "INTEGER"), released_name(i)))
    there = is_there(col(CLASS, "d"))
    either = exp.Or(this=col(KEPT, "r"), expression=there)
    return query.select(*output, copy=False).where(either, copy=False)
