"""Cuts of hierarchies: each ground value of an attribute is released as one node above it, or as itself, in all rows.

A *cutting* is a table of the combinations with the nodes that a cut of each attribute's hierarchy gives them. Names of
columns, all ours: ``combination``, ``n``, the ground nodes ``q{i}_n{floor}``, the released ones ``node_i``, and
``cost``: the loss of a row, in whole numbers, so that sums of it do not depend on their order.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.coding import ROWS, Levels
from sqlanon.expressions import (
    aliased,
    all_of,
    cast,
    col,
    is_there,
    named,
    number,
    select,
    subquery,
    total,
    union_all,
    where,
)
from sqlanon.recode.local.nodes import COMBINATION, NODE, Tree, node_name, released_name
from sqlanon.requirements.base import CLASS_SIZE
from sqlanon.search.classes import KEPT

SCALE = 10**12
"""The cost of a row that shows nothing. Beside its loss a value costs 1 for each level, so that of two nodes that stand
for the same ground values the lower one is released."""

COST, EXTRA, GROUND, OTHER, SPLIT = "cost", "extra", "ground", "other", "split"
PRICE, LOST = "price", "lost"


def suppressed_cost(trees: Sequence[Tree]) -> int:
    """What a suppressed row costs: more than one that shows nothing."""
    return SCALE + sum(tree.height for tree in trees) + 1


def _costs(trees: Sequence[Tree], attribute: int) -> exp.Select:
    """The nodes of an attribute with what they cost: ``node``, ``cost``, ``released``."""
    tree = trees[attribute]
    share = tree.weight / sum(one.weight for one in trees)
    each = SCALE * share / (tree.leaves - 1) if tree.leaves > 1 else 0.0
    rounded = cast(exp.Round(this=exp.Mul(this=col("leaves"), expression=number(each))), "BIGINT")
    cost = exp.Add(this=rounded, expression=col("level"))
    return select([col(NODE), named(cost, COST), col("released")], tree.nodes.copy())


def ground_name(trees: Sequence[Tree], attribute: int) -> str:
    """The column with an attribute's ground nodes."""
    return node_name(attribute, trees[attribute].floor)


def _columns(trees: Sequence[Tree], alias: str) -> list[exp.Expr]:
    grounds = [col(ground_name(trees, i), alias) for i in range(len(trees))]
    return [col(COMBINATION, alias), col(ROWS, alias), *grounds]


def cutting_at(combinations: exp.Table, trees: Sequence[Tree], levels: Levels) -> exp.Select:
    """The cutting of a generalization."""
    query = exp.Select().from_(aliased(combinations, "c"), copy=False)
    nodes: list[exp.Expr] = []
    cost: exp.Expr = number(0)
    for i, level in enumerate(levels):
        node = col(node_name(i, level), "c")
        on = exp.EQ(this=node.copy(), expression=col(NODE, f"v{i}"))
        query = query.join(subquery(_costs(trees, i), f"v{i}"), on=on, copy=False)
        nodes.append(named(node, released_name(i)))
        cost = exp.Add(this=cost, expression=col(COST, f"v{i}"))
    return query.select(*_columns(trees, "c"), *nodes, named(cost, COST), copy=False)


def splits(combinations: exp.Table, trees: Sequence[Tree], attribute: int) -> exp.Query:
    """How the nodes of an attribute are split: ``node``, ``ground``, ``other`` (the highest node below that may be
    released and that stands for the ground value), ``extra`` (what that costs beside the node, below 0).

    Only nodes all of whose ground values have such a node can be split.
    """
    tree = trees[attribute]
    parts = [
        _pairs(combinations, trees, attribute, level, range(level - 1, tree.floor - 1, -1))
        for level in range(tree.floor + 1, tree.height + 1)
    ]
    if not parts:
        return _none()
    possible = exp.Window(this=exp.LogicalAnd(this=_is_there(OTHER)), partition_by=[col(NODE)])
    marked = select([exp.Star(), named(possible, "possible")], subquery(_union(parts), "s"))
    output: list[exp.Expr] = [col(name) for name in (NODE, GROUND, OTHER, EXTRA)]
    return select(output, subquery(marked, "m")).where(col("possible"), copy=False)


def raises(combinations: exp.Table, trees: Sequence[Tree], attribute: int) -> exp.Query:
    """Each node of an attribute with each above it that may be released: columns as in `splits`."""
    tree = trees[attribute]
    levels = range(tree.floor, tree.height + 1)
    parts = [_pairs(combinations, trees, attribute, low, [high]) for low in levels for high in levels if low < high]
    return select([exp.Star()], subquery(_union(parts), "s")).where(_is_there(OTHER), copy=False) if parts else _none()


def _pairs(
    combinations: exp.Table, trees: Sequence[Tree], attribute: int, level: int, others: Sequence[int]
) -> exp.Select:
    """The nodes at a level, and for each ground value the first of the nodes at other levels that may be released
    and stands for other values."""
    ground, nodes = ground_name(trees, attribute), {one: node_name(attribute, one) for one in (level, *others)}
    names = dict.fromkeys([ground, *nodes.values()])
    paths = exp.Select(expressions=[col(name) for name in names], distinct=exp.Distinct())
    query = exp.Select().from_(subquery(paths.from_(combinations.copy(), copy=False), "c"), copy=False)
    for one, name in nodes.items():
        on = exp.EQ(this=col(name, "c"), expression=col(NODE, f"v{one}"))
        query = query.join(subquery(_costs(trees, attribute), f"v{one}"), on=on, copy=False)
    other, cost = exp.Case(), exp.Case()
    for one in others:
        # A node that costs the same stands for the same values.
        differs = exp.NEQ(this=col(COST, f"v{one}"), expression=col(COST, f"v{level}"))
        is_other = exp.And(this=col("released", f"v{one}"), expression=differs)
        other = other.when(is_other, col(nodes[one], "c"))
        cost = cost.when(is_other.copy(), col(COST, f"v{one}"))
    extra = exp.Sub(this=cost, expression=col(COST, f"v{level}"))
    output: list[exp.Expr] = [
        named(col(nodes[level], "c"), NODE),
        named(col(ground, "c"), GROUND),
        named(other, OTHER),
        named(extra, EXTRA),
    ]
    return query.select(*output, copy=False).where(col("released", f"v{level}"), copy=False)


def _is_there(name: str) -> exp.Expr:
    return is_there(col(name))


def _none() -> exp.Select:
    """No moves: of an attribute whose hierarchy has one level."""
    columns = [(name, "INTEGER") for name in (NODE, GROUND, OTHER)] + [(EXTRA, "BIGINT")]
    output: list[exp.Expr] = [named(cast(exp.null(), type_), name) for name, type_ in columns]
    return exp.Select(expressions=output).where(exp.false(), copy=False)


def _union(parts: Sequence[exp.Select]) -> exp.Query:
    query: exp.Query = union_all(*parts)
    return query


def _same_value(trees: Sequence[Tree], attribute: int) -> list[exp.Expr]:
    """A row ``p`` of a cutting and a move ``s`` of its node."""
    return [
        exp.EQ(this=col(NODE, "s"), expression=col(released_name(attribute), "p")),
        exp.EQ(this=col(GROUND, "s"), expression=col(ground_name(trees, attribute), "p")),
    ]


def all_split(cutting: exp.Table, trees: Sequence[Tree], attribute: int, moves: exp.Table) -> exp.Select:
    """The rows of a cutting whose nodes of an attribute can be split, with all of them split.

    ``split`` has the former node.
    """
    nodes: list[exp.Expr] = [col(released_name(i), "p") for i in range(len(trees))]
    split = named(nodes[attribute], SPLIT)
    nodes[attribute] = named(col(OTHER, "s"), released_name(attribute))
    cost = named(exp.Add(this=col(COST, "p"), expression=col(EXTRA, "s")), COST)
    query = select([*_columns(trees, "p"), *nodes, split, cost], aliased(cutting, "p"))
    return query.join(aliased(moves, "s"), on=all_of(_same_value(trees, attribute)), copy=False)


def moved(
    cutting: exp.Table, trees: Sequence[Tree], attribute: int, moves: exp.Table, column: str, nodes: Sequence[int]
) -> exp.Select:
    """A cutting with some of an attribute's nodes replaced.

    Parameters
    ----------
    cutting, attribute:
        Where, and whose nodes.
    moves:
        Made by `splits` or `raises`.
    column, nodes:
        Which moves are made: those with these nodes in that column.
    """
    columns: list[exp.Expr] = [col(released_name(i), "p") for i in range(len(trees))]
    new = exp.Coalesce(this=col(OTHER, "s"), expressions=[columns[attribute]])
    columns[attribute] = named(new, released_name(attribute))
    extra = exp.Coalesce(this=col(EXTRA, "s"), expressions=[number(0)])
    cost = named(exp.Add(this=col(COST, "p"), expression=extra), COST)
    only = exp.In(this=col(column, "s"), expressions=[number(node) for node in nodes])
    query = select([*_columns(trees, "p"), *columns, cost], aliased(cutting, "p"))
    on = all_of([*_same_value(trees, attribute), only])
    return query.join(aliased(moves, "s"), on=on, join_type="left", copy=False)


def priced(judged: exp.Query, trees: Sequence[Tree]) -> exp.Select:
    """Judged classes with ``price``, what all their rows cost, and ``lost``, their rows if they are not kept."""
    each = exp.If(this=col(KEPT), true=col(COST), false=number(suppressed_cost(trees)))
    price = exp.Mul(this=cast(col(CLASS_SIZE), "HUGEINT"), expression=each)
    lost = exp.If(this=col(KEPT), true=number(0), false=col(CLASS_SIZE))
    return select([exp.Star(), named(price, PRICE), named(lost, LOST)], subquery(judged, "j"))


def whole(classes: exp.Table) -> exp.Select:
    """One row: the price of all rows, the rows that are lost, and the kept classes."""
    kept_classes = where(exp.Count(this=exp.Star()), col(KEPT))
    lost = exp.Coalesce(this=total(col(LOST)), expressions=[number(0)])
    return select([exp.Sum(this=col(PRICE)), lost, kept_classes], classes.copy())


def gains(split: exp.Query, classes: exp.Table, attribute: int) -> exp.Select:
    """What splitting gains: one row for each node that is worth it, with the price that it saves and the rows that it
    loses beside.

    Parameters
    ----------
    split:
        The classes after all splits of an attribute, made by `priced`, with ``split``. Splits of one attribute are in
        different classes: none changes what another gains.
    classes:
        The classes as they are, made by `priced`.
    attribute:
        Whose nodes are split.
    """

    def sums(key: exp.Expr, source: exp.Expr) -> exp.Select:
        price, lost = named(exp.Sum(this=col(PRICE)), PRICE), named(total(col(LOST)), LOST)
        return select([named(key, NODE), price, lost], source, [key.copy()])

    after = subquery(sums(col(SPLIT), subquery(split, "s")), "a")
    before = subquery(sums(col(released_name(attribute)), classes.copy()), "b")
    gain = exp.Sub(this=col(PRICE, "b"), expression=col(PRICE, "a"))
    lost = exp.Sub(this=col(LOST, "a"), expression=col(LOST, "b"))
    on = exp.EQ(this=col(NODE, "b"), expression=col(NODE, "a"))
    query = select([col(NODE, "b"), gain, lost], before).join(after, on=on, copy=False)
    return query.where(exp.GT(this=gain.copy(), expression=number(0)), copy=False)


def ways_up(cutting: exp.Table, trees: Sequence[Tree], attribute: int, moves: exp.Table) -> exp.Select:
    """The nodes above an attribute's cut, each with what all rows cost more if it replaces what is below it."""
    extra = exp.Mul(this=cast(col(ROWS, "p"), "HUGEINT"), expression=col(EXTRA, "s"))
    query = select([col(OTHER, "s"), exp.Sum(this=extra)], aliased(cutting, "p"))
    query = query.join(aliased(moves, "s"), on=all_of(_same_value(trees, attribute)), copy=False)
    return query.group_by(col(OTHER, "s"), copy=False)


def kept(cutting: exp.Table, classes: exp.Table, attributes: int) -> exp.Select:
    """The combinations of kept classes, with their nodes."""
    names = [released_name(i) for i in range(attributes)]
    on = all_of(exp.EQ(this=col(name, "p"), expression=col(name, "j")) for name in names)
    query = select([col(COMBINATION, "p"), *(col(name, "p") for name in names)], aliased(cutting, "p"))
    return query.join(aliased(classes, "j"), on=on, copy=False).where(col(KEPT, "j"), copy=False)
