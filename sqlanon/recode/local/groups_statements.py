"""Groups of combinations: what a group is released as, what that costs, and where else a combination may go.

A group has a number, ``cell``: the least combination that was in it when it was made. It is released as the lowest
nodes that its members have in common and that may be released. Prices are whole numbers, so that sums of them are the
same in any order: the loss of a row, in units of 10⁻⁹.
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
    is_null,
    is_there,
    named,
    number,
    select,
    subquery,
    total,
    union_all,
)
from sqlanon.recode.local.nodes import COMBINATION, NODE, Tree, node_name, released_name
from sqlanon.requirements.base import CLASS_SIZE
from sqlanon.search.classes import KEPT

CELL = "cell"
PRICE = "price"
UNIT = 1_000_000_000
"""The price of a row of which nothing is shown."""


def price_name(attribute: int, level: int) -> str:
    """The column with the price of a row whose attribute is released at a level."""
    return f"q{attribute}_p{level}"


def _levels(trees: Sequence[Tree]) -> list[tuple[int, int]]:
    return [(i, level) for i, tree in enumerate(trees) for level in range(tree.floor, tree.height + 1)]


def priced(combinations: exp.Table, trees: Sequence[Tree]) -> exp.Select:
    """The combinations with the price of each of their nodes, in no group yet.

    Makes the columns of ``combinations``, of nodes that must not be released the number less one below zero; for each
    node its price; and ``cell``, NULL.
    """
    weights = sum(tree.weight for tree in trees) or 1.0
    query = exp.Select().from_(aliased(combinations, "c"), copy=False)
    output: list[exp.Expr] = [col(COMBINATION, "c"), col(ROWS, "c"), named(cast(exp.null(), "INTEGER"), CELL)]
    for i, tree in enumerate(trees):
        attribute = _priced_nodes(tree, i, tree.weight / weights * UNIT / max(tree.leaves - 1, 1))
        ground = node_name(i, tree.floor)
        on = exp.EQ(this=col(ground, "c"), expression=col(ground, f"a{i}"))
        query = query.join(subquery(attribute, f"a{i}"), on=on, copy=False)
        for level in range(tree.floor, tree.height + 1):
            names = [price_name(i, level)] if level == tree.floor else [node_name(i, level), price_name(i, level)]
            output += [col(name, f"a{i}") for name in names]
        output.append(named(_signed(col(ground, "c"), f"a{i}"), ground))
    return query.select(*output, copy=False)


def _priced_nodes(tree: Tree, attribute: int, share: float) -> exp.Select:
    """The nodes of an attribute at its floor, with those above them, and the price of each."""
    query = exp.Select().from_(aliased(tree.nodes, f"n{tree.floor}"), copy=False)
    output: list[exp.Expr] = [col("released", f"n{tree.floor}")]
    for level in range(tree.floor, tree.height + 1):
        of = f"n{level}"
        if level > tree.floor:
            on = exp.EQ(this=col("parent", f"n{level - 1}"), expression=col(NODE, of))
            query = query.join(aliased(tree.nodes, of), on=on, copy=False)
        node = _signed(col(NODE, of), of) if level > tree.floor else col(NODE, of)
        price = cast(exp.Round(this=exp.Mul(this=col("leaves", of), expression=number(share))), "BIGINT")
        output += [named(node, node_name(attribute, level)), named(price, price_name(attribute, level))]
    ground = exp.EQ(this=col("level", f"n{tree.floor}"), expression=number(tree.floor))
    return query.select(*output, copy=False).where(ground, copy=False)


def _signed(node: exp.Expr, of: str) -> exp.Expr:
    marked = exp.Sub(this=exp.Neg(this=node.copy()), expression=number(1))
    return exp.If(this=col("released", of), true=node, false=marked)


def rest_of(grouped: exp.Table) -> exp.Select:
    """The combinations of a step that no group has."""
    return exp.select("*").from_(grouped.copy()).where(is_null(col(CELL)), copy=False)


def offered(rest: exp.Table, levels: Levels) -> exp.Select:
    """What is left, with the nodes at which a generalization would release it, where it may."""
    keys = [node_name(i, level) for i, level in enumerate(levels)]
    query = select([col(COMBINATION), col(ROWS), *(col(key) for key in keys)], rest.copy())
    allowed = [exp.GTE(this=col(key), expression=number(0)) for key in keys]
    return query.where(is_null(col(CELL)), *allowed, copy=False)


def held_rows(judged: Sequence[exp.Select]) -> exp.Query:
    """How many rows are in groups that hold, and in all groups: ``candidate`` (0, 1, ...), ``held`` and ``left``, for
    each of some judgements."""
    sums = [total(col(CLASS_SIZE), col(KEPT)), total(col(CLASS_SIZE))]
    held, left = (exp.Coalesce(this=one, expressions=[number(0)]) for one in sums)
    parts = [
        select(
            [named(number(i), "candidate"), named(held.copy(), "held"), named(left.copy(), "left")], subquery(one, "j")
        )
        for i, one in enumerate(judged)
    ]
    return union_all(*parts)


def stepped(rest: exp.Table, judged: exp.Select, levels: Levels, trees: Sequence[Tree]) -> exp.Select:
    """What is left, with the groups in which a generalization holds."""
    keys = [node_name(i, level) for i, level in enumerate(levels)]
    on = all_of(exp.EQ(this=col(key, "r"), expression=col(key, "j")) for key in keys)
    least = exp.Window(this=exp.Min(this=col(COMBINATION, "r")), partition_by=[col(key, "r") for key in keys])
    cell = exp.If(this=exp.Coalesce(this=col(KEPT, "j"), expressions=[exp.false()]), true=least, false=exp.null())
    columns = [COMBINATION, ROWS, *(node_name(i, level) for i, level in _levels(trees))]
    query = select([*(col(name, "r") for name in columns), named(cell, CELL)], subquery(rest_of(rest), "r"))
    return query.join(subquery(judged, "j"), on=on, join_type="left", copy=False)


def members(grouped: Sequence[exp.Table]) -> exp.Query:
    """The combinations that have a group: ``combination`` and ``cell``."""
    there = is_there(col(CELL))
    parts = [select([col(COMBINATION), col(CELL)], one.copy()).where(there.copy(), copy=False) for one in grouped]
    return union_all(*parts)


def tightened(of: exp.Table, prices: exp.Table, trees: Sequence[Tree], lowest: Levels) -> exp.Select:
    """The groups, each as what it is released as, from some levels up: ``cell``, ``n`` (rows), ``node_i``, and the
    ``price`` of a row."""
    inner: list[exp.Expr] = [col(CELL, "m"), named(total(col(ROWS, "p")), ROWS)]
    levels = [range(low, tree.height + 1) for low, tree in zip(lowest, trees, strict=True)]
    for i, level in [(i, level) for i, each in enumerate(levels) for level in each]:
        node, price = node_name(i, level), price_name(i, level)
        same = exp.EQ(this=exp.Min(this=col(node, "p")), expression=exp.Max(this=col(node, "p")))
        shown = exp.GTE(this=exp.Min(this=col(node, "p")), expression=number(0))
        common = exp.If(this=all_of([same, shown]), true=exp.Min(this=col(node, "p")), false=exp.null())
        inner += [named(common, node), named(exp.Min(this=col(price, "p")), price)]
    on = exp.EQ(this=col(COMBINATION, "m"), expression=col(COMBINATION, "p"))
    groups = select(inner, aliased(of, "m"), [col(CELL, "m")])
    groups = groups.join(aliased(prices, "p"), on=on, copy=False)
    outer: list[exp.Expr] = [col(CELL), col(ROWS)]
    sums: list[exp.Expr] = []
    for i, each in enumerate(levels):
        nodes, cost = [], exp.Case()
        for level in each:
            nodes.append(col(node_name(i, level)))
            there = is_there(col(node_name(i, level)))
            cost = cost.when(there, col(price_name(i, level)), copy=False)
        first = exp.Coalesce(this=nodes[0], expressions=nodes[1:]) if nodes[1:] else nodes[0]
        outer.append(named(first, released_name(i)))
        sums.append(cost)
    return select([*outer, named(summed(sums), PRICE)], subquery(groups, "g"))


def summed(terms: Sequence[exp.Expr]) -> exp.Expr:
    """A sum of some terms, at least one."""
    added = terms[0]
    for term in terms[1:]:
        added = exp.Add(this=added, expression=term)
    return exp.Paren(this=added)


def costs(classes: exp.Table) -> exp.Select:
    """One row: the price of all groups, their rows, and how many they are."""
    price = exp.Mul(this=col(PRICE), expression=col(ROWS))
    none = number(0)
    return select(
        [
            exp.Coalesce(this=total(price), expressions=[none]),
            exp.Coalesce(this=total(col(ROWS)), expressions=[none.copy()]),
            exp.Count(this=exp.Star()),
        ],
        classes.copy(),
    )


def loose(prices: exp.Table, of: exp.Table) -> exp.Select:
    """The combinations that are in no group."""
    on = exp.EQ(this=col(COMBINATION, "p"), expression=col(COMBINATION, "m"))
    query = exp.select("*").from_(aliased(prices, "p"), copy=False)
    return query.join(aliased(of, "m"), on=on, join_type="anti", copy=False)


def kept_cells(found: exp.Table, judged: exp.Select) -> exp.Select:
    """The members that a relation has of groups that hold."""
    on = exp.EQ(this=col(CELL, "m"), expression=col(CELL, "j"))
    query = select([col(COMBINATION, "m"), col(CELL, "m")], aliased(found, "m"))
    return query.join(subquery(judged, "j"), on=on, copy=False).where(col(KEPT, "j"), copy=False)


def sized(of: exp.Table, prices: exp.Table) -> exp.Select:
    """The combinations that have a group, with their rows: what can be judged by ``cell``."""
    on = exp.EQ(this=col(COMBINATION, "m"), expression=col(COMBINATION, "p"))
    query = select([col(COMBINATION, "m"), col(CELL, "m"), col(ROWS, "p")], aliased(of, "m"))
    return query.join(aliased(prices, "p"), on=on, copy=False)


def placed(of: exp.Table, classes: exp.Table, count: int) -> exp.Select:
    """Each combination with the nodes that its group is released as."""
    on = exp.EQ(this=col(CELL, "m"), expression=col(CELL, "g"))
    output: list[exp.Expr] = [col(COMBINATION, "m"), *(col(released_name(i), "g") for i in range(count))]
    return select(output, aliased(of, "m")).join(aliased(classes, "g"), on=on, copy=False)


def common_price(attribute: int, tree: Tree, of: str, released: Sequence[str]) -> exp.Case:
    """The price of the lowest node above both a combination ``x`` and a combination ``of``, that is no lower than what
    some groups are released as.

    Numbers of nodes grow on the way up; the groups must have one of the two combinations each.
    """
    price = exp.Case()
    for level in range(tree.floor, tree.height + 1):
        name = node_name(attribute, level)
        conditions: list[exp.Expr] = [exp.EQ(this=col(name, "x"), expression=col(name, of))]
        for group in released:
            conditions.append(exp.GTE(this=col(name, of), expression=col(released_name(attribute), group)))
        price = price.when(all_of(conditions), col(price_name(attribute, level), of), copy=False)
    return price
