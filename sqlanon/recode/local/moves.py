"""Combinations that go to another group: what that costs, and what is worth it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.coding import ROWS
from sqlanon.expressions import aliased, all_of, cast, col, is_there, named, number, select, subquery
from sqlanon.recode.local.groups_statements import CELL, PRICE, common_price, summed
from sqlanon.recode.local.nodes import COMBINATION, Tree
from sqlanon.search.classes import KEPT


def taken_in(loose: exp.Table, classes: exp.Table, prices: exp.Table, trees: Sequence[Tree]) -> exp.Select:
    """Loose combinations, each in the group that costs least more with it: ``combination``, ``cell``, and how much
    ``more``.

    Each is looked at by itself, as if no other one came in.
    """
    price = summed([common_price(i, tree, "r", ["g"]) for i, tree in enumerate(trees)])
    query = select(
        [
            col(COMBINATION, "x"),
            col(CELL, "g"),
            named(col(ROWS, "x"), "coming"),
            named(col(ROWS, "g"), "there"),
            named(col(PRICE, "g"), "before"),
            named(price, "after"),
        ],
        aliased(loose, "x"),
    )
    at = exp.EQ(this=col(CELL, "g"), expression=col(COMBINATION, "r"))
    query = query.join(aliased(classes, "g"), join_type="cross", copy=False)
    query = query.join(aliased(prices, "r"), on=at, copy=False)
    both = exp.Paren(this=exp.Add(this=col("there"), expression=col("coming")))
    before = exp.Mul(this=col("there"), expression=col("before"))
    more = exp.Sub(this=exp.Mul(this=both, expression=col("after")), expression=before)
    best = exp.ArgMin(this=col(CELL), expression=exp.Tuple(expressions=[more, col(CELL)]))
    output: list[exp.Expr] = [col(COMBINATION), named(best, CELL), named(exp.Min(this=more.copy()), "more")]
    chosen = select(output, subquery(query, "x"), [col(COMBINATION)])
    return chosen.where(is_there(col("after")), copy=False)


def threshold(classes: exp.Table, rows: int) -> exp.Select:
    """One number: the least price that is no more than that of so many rows in groups."""
    window = exp.Window(this=exp.Sum(this=col(ROWS)), order=exp.Order(expressions=[exp.Ordered(this=col(PRICE))]))
    sums = select([col(PRICE), named(cast(window, "BIGINT"), "below")], classes.copy())
    enough = exp.GTE(this=col("below"), expression=number(rows))
    return select([exp.Min(this=col(PRICE))], subquery(sums, "s")).where(enough, copy=False)


def within(of: exp.Table, classes: exp.Table, price: int) -> exp.Select:
    """The members of the groups whose rows cost no more than a price."""
    on = exp.EQ(this=col(CELL, "m"), expression=col(CELL, "g"))
    query = select([col(COMBINATION, "m"), col(CELL, "m")], aliased(of, "m"))
    query = query.join(aliased(classes, "g"), on=on, copy=False)
    return query.where(exp.LTE(this=col(PRICE, "g"), expression=number(price)), copy=False)


def cheap(classes: exp.Table, price: int) -> exp.Select:
    """The groups whose rows cost no more than a price."""
    query = exp.select("*").from_(classes.copy())
    return query.where(exp.LTE(this=col(PRICE), expression=number(price)), copy=False)


def moves(offers: exp.Table, of: exp.Table, classes: exp.Table, prices: exp.Table, least: int) -> exp.Select:
    """What makes a release cheaper: ``combination`` and ``cell``, to which it goes.

    A group goes as a whole, if all of its members cost less elsewhere than they do together. Of another, the member
    goes that saves most, if the rest has enough rows.

    Parameters
    ----------
    offers:
        Made by `taken_in`.
    of, classes, prices:
        The groups, and the combinations with their prices.
    least:
        So many rows must stay.
    """
    whole = exp.Mul(this=col(ROWS, "g"), expression=col(PRICE, "g"))
    every = exp.EQ(this=_at_home(exp.Count(this=col("more", "o"))), expression=_at_home(exp.Count(this=exp.Star())))
    less = exp.LT(this=_at_home(exp.Sum(this=col("more", "o"))), expression=whole)
    saved = exp.Sub(this=exp.Mul(this=col(ROWS, "p"), expression=col(PRICE, "g")), expression=col("more", "o"))
    stay = exp.Sub(this=col(ROWS, "g"), expression=col(ROWS, "p"))
    may = all_of([exp.GT(this=saved, expression=number(0)), exp.GTE(this=stay, expression=number(least))])
    gain = exp.If(this=may, true=saved.copy(), false=number(0))
    order = [exp.Ordered(this=gain, desc=True), exp.Ordered(this=col(COMBINATION, "m"))]
    first = _at_home(exp.RowNumber(), order)
    output: list[exp.Expr] = [
        col(COMBINATION, "m"),
        col(CELL, "o"),
        named(exp.Coalesce(this=all_of([every, less]), expressions=[exp.false()]), "leaves"),
        named(exp.Coalesce(this=may.copy(), expressions=[exp.false()]), "may"),
        named(first, "place"),
    ]
    query = select(output, aliased(of, "m"))
    for relation, alias, key, side in (
        (classes, "g", CELL, ""),
        (prices, "p", COMBINATION, ""),
        (offers, "o", COMBINATION, "left"),
    ):
        on = exp.EQ(this=col(key, "m"), expression=col(key, alias))
        query = query.join(aliased(relation, alias), on=on, join_type=side, copy=False)
    alone = all_of([col("may"), exp.EQ(this=col("place"), expression=number(1))])
    goes = exp.Or(this=col("leaves"), expression=exp.Paren(this=alone))
    return select([col(COMBINATION), col(CELL)], subquery(query, "q")).where(exp.Paren(this=goes), copy=False)


def _at_home(function: exp.Expr, order: list[exp.Ordered] | None = None) -> exp.Window:
    """A window over the members of the same group."""
    return exp.Window(
        this=function,
        partition_by=[col(CELL, "m")],
        order=exp.Order(expressions=order) if order else None,
    )


def moved(of: exp.Table, going: exp.Table) -> exp.Select:
    """The groups after some moves, numbered anew: ``combination`` and ``cell``."""
    on = exp.EQ(this=col(COMBINATION, "m"), expression=col(COMBINATION, "o"))
    cell = exp.Coalesce(this=col(CELL, "o"), expressions=[col(CELL, "m")])
    query = select([col(COMBINATION, "m"), named(cell, CELL)], aliased(of, "m"))
    query = query.join(aliased(going, "o"), on=on, join_type="left", copy=False)
    least = exp.Window(this=exp.Min(this=col(COMBINATION)), partition_by=[col(CELL)])
    return select([col(COMBINATION), named(least, CELL)], subquery(query, "q"))


def failing(judged: exp.Select) -> exp.Select:
    """One number: the groups that do not hold."""
    return select([exp.Count(this=exp.Star())], subquery(judged, "j")).where(exp.Not(this=col(KEPT)), copy=False)
