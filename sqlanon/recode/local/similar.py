"""Strategy ``k-similar``: similar tuples in groups of k to 2k − 1 rows, so that little is lost.

Equal tuples stay together: what is grouped are the distinct combinations, so that one of 2k rows or more is in a
group of its size or more. Groups are made by what they would lose as the lowest nodes that their members have in
common.

- Of at most `FEW` combinations every grouping is tried: by this loss, the result is the best.
- Of more, those that agree at a generalization on a path through the lattice (see `Groups.climb`) are blocks. In a
  block every combination is a group at first. In each round a group that does not hold joins another of its block:
  that with which it has fewer than 2k rows, if there is one, and loses least more. So groups stop to grow once they
  hold. A block that loses less undivided stays whole, whatever its size.

They are released as ``summary`` says: as ranges of numbers and times (``"range"``) or the values of their middle rows
(``"median"``), and other attributes as lowest common ancestors; with ``"set"`` as ranges and sets of values. (A range
shows less than the ancestor only where the hierarchy does not follow the order of the values.)

The least loss is hard to find (Meyerson and Williams, "On the complexity of optimal k-anonymity", 2004), and is
approximated within O(k log k) by their algorithm and within O(k) by that of Aggarwal and others ("Anonymizing
tables", 2005), which look at all pairs of tuples. Here pairs are looked at in blocks only, and no factor is
guaranteed: just that every group holds, and that as lowest common ancestors the groups lose no more than the optimal
full-domain generalization.

Grouping similar combinations: all groups that a few can make, and pairs of groups that cost least together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from sqlanon.coding import ROWS
from sqlanon.expressions import (
    aliased,
    all_columns,
    all_of,
    anonymous,
    cast,
    col,
    ident,
    is_there,
    named,
    number,
    select,
    subquery,
    total,
    union_all,
)
from sqlanon.recode.local import groups as gr
from sqlanon.recode.local.groups import CELL, PRICE, Grouping, Groups, common_price, summed
from sqlanon.recode.local.nodes import COMBINATION, Tree
from sqlanon.recode.local.summaries import PART, allowed_nodes, summarise
from sqlanon.recode.local.task import LocalOutcome, LocalTask, on_combinations
from sqlanon.search import Search
from sqlanon.search.budget import LimitReachedError
from sqlanon.search.classes import KEPT

BLOCK = "block"


def all_groups(combinations: exp.Table, count: int) -> exp.Select:
    """Every group that so many combinations can make: ``combination`` and ``cell``, in which its bit is set."""
    series = exp.Table(
        this=anonymous("range", number(1), number(2**count)),
        alias=exp.TableAlias(this=ident("s"), columns=[ident(CELL)]),
    )
    bit = exp.BitwiseRightShift(this=cast(col(CELL, "s"), "INTEGER"), expression=col(COMBINATION, "c"))
    odd = exp.Paren(this=exp.BitwiseAnd(this=exp.Paren(this=bit), expression=number(1))).eq(1)
    query = select([col(COMBINATION, "c"), named(cast(col(CELL, "s"), "INTEGER"), CELL)], series)
    query = query.join(aliased(combinations, "c"), join_type="cross", copy=False)
    return query.where(odd, copy=False)


def group_prices(classes: exp.Table, judged: exp.Select) -> exp.Select:
    """The groups that hold and may be released: ``cell``, ``n``, and the price of all their rows."""
    on = col(CELL, "g").eq(col(CELL, "j"))
    whole = col(ROWS, "g") * col(PRICE, "g")
    query = select([col(CELL, "g"), col(ROWS, "g"), whole], aliased(classes, "g"))
    query = query.join(subquery(judged, "j"), on=on, copy=False)
    there = is_there(col(PRICE, "g"))
    return query.where(col(KEPT, "j"), there, copy=False)


def in_cells(of: exp.Table, cells: Sequence[int]) -> exp.Select:
    """The members of some groups."""
    query = select([col(COMBINATION), col(CELL)], of.copy())
    return query.where(exp.In(this=col(CELL), expressions=[number(cell) for cell in cells]), copy=False)


def open_blocks(of: exp.Table, classes: exp.Table, rows: int, most: int) -> exp.Select:
    """The members of groups that may be worth dividing: ``combination``, ``block`` (their group), and ``cell``, a group
    of their own.
    """
    together = exp.Window(this=exp.Count(this=exp.Star()), partition_by=[col(CELL, "m")])
    on = col(CELL, "m").eq(col(CELL, "g"))
    output: list[exp.Expr] = [
        col(COMBINATION, "m"),
        named(col(CELL, "m"), BLOCK),
        named(col(COMBINATION, "m"), CELL),
        named(together, "together"),
    ]
    query = select(output, aliased(of, "m")).join(aliased(classes, "g"), on=on, copy=False)
    query = query.where(
        col(ROWS, "g") >= number(rows),
        col(PRICE, "g") > 0,
        copy=False,
    )
    few = col("together") <= number(most)
    return select([col(COMBINATION), col(BLOCK), col(CELL)], subquery(query, "b")).where(few, copy=False)


def proposals(
    classes: exp.Table, judged: exp.Table, of: exp.Table, prices: exp.Table, trees: Sequence[Tree], size: int
) -> exp.Select:
    """For each group that does not hold, ``one``, the ``other`` of its block that it is to join; whether both together
    are ``large``, of at least ``size`` rows; and how much ``more`` they cost.

    Those that are not large come first, then those that cost least.
    """

    def side(alias: str) -> exp.Select:
        output: list[exp.Expr] = [all_columns(alias), col(BLOCK, "b"), col(KEPT, "j")]
        query = select(output, aliased(classes, alias))
        of_block = col(CELL, alias).eq(col(COMBINATION, "b"))
        query = query.join(aliased(of, "b"), on=of_block, copy=False)
        same = col(CELL, alias).eq(col(CELL, "j"))
        return query.join(aliased(judged, "j"), on=same, copy=False)

    price = summed([common_price(i, tree, "y", ("f", "g")) for i, tree in enumerate(trees)])
    output: list[exp.Expr] = [
        named(col(CELL, "f"), "one"),
        named(col(CELL, "g"), "other"),
        named(col(ROWS, "f"), "n_f"),
        named(col(ROWS, "g"), "n_g"),
        named(col(PRICE, "f"), "p_f"),
        named(col(PRICE, "g"), "p_g"),
        named(price, PRICE),
    ]
    query = select(output, subquery(side("f"), "f"))
    pair = all_of(
        [
            col(BLOCK, "f").eq(col(BLOCK, "g")),
            col(CELL, "f").neq(col(CELL, "g")),
        ]
    )
    query = query.join(subquery(side("g"), "g"), on=pair, copy=False)
    for alias, of_side in (("x", "f"), ("y", "g")):
        on = col(CELL, of_side).eq(col(COMBINATION, alias))
        query = query.join(aliased(prices, alias), on=on, copy=False)
    query = query.where(~col(KEPT, "f"), copy=False)
    rows = exp.Paren(this=col("n_f") + col("n_g"))
    before = [(col(f"n_{side}") * col(f"p_{side}")) for side in ("f", "g")]
    more = ((rows * col(PRICE)) - before[0]) - before[1]
    large = rows >= number(size)
    order: list[exp.Expr] = [
        large,
        more,
        *(anonymous(name, col("one"), col("other")) for name in ("LEAST", "GREATEST")),
    ]
    there = is_there(col(PRICE))
    best = [
        named(exp.ArgMin(this=value.copy(), expression=exp.Tuple(expressions=[term.copy() for term in order])), name)
        for value, name in ((col("other"), "other"), (large, "large"), (more, "more"))
    ]
    return select([col("one"), *best], subquery(query, "p"), [col("one")]).where(there, copy=False)


def unions(proposed: exp.Table) -> exp.Query:
    """The groups that are joined in a round: ``cell``, and ``into``, the lesser of both.

    Two that propose each other are; and a group that holds takes in the one that fits it best. No group is in two
    unions.
    """
    low, high = (anonymous(name, col("one", "p"), col("other", "p")) for name in ("LEAST", "GREATEST"))
    mutual = all_of(
        [
            col("other", "p").eq(col("one", "q")),
            col("one", "p").eq(col("other", "q")),
            col("one", "p") < col("one", "q"),
        ]
    )
    both = select([named(high, CELL), named(low, "into")], aliased(proposed, "p"))
    both = both.join(aliased(proposed, "q"), on=mutual, copy=False)
    order = exp.Tuple(expressions=[col("large", "p"), col("more", "p"), col("one", "p")])
    fits = exp.ArgMin(this=col("one", "p"), expression=order)
    on = col("other", "p").eq(col("one", "q"))
    taken = select([named(fits, "one"), col("other", "p")], aliased(proposed, "p"), [col("other", "p")])
    taken = taken.join(aliased(proposed, "q"), on=on, join_type="anti", copy=False)
    low, high = (anonymous(name, col("one"), col("other")) for name in ("LEAST", "GREATEST"))
    one = select([named(high, CELL), named(low, "into")], subquery(taken, "t"))
    return union_all(both, one)


def united(of: exp.Table, joined: exp.Table) -> exp.Select:
    """The combinations with their block and the group that they are in now."""
    on = col(CELL, "m").eq(col(CELL, "u"))
    cell = exp.Coalesce(this=col("into", "u"), expressions=[col(CELL, "m")])
    query = select([col(COMBINATION, "m"), col(BLOCK, "m"), named(cell, CELL)], aliased(of, "m"))
    return query.join(aliased(joined, "u"), on=on, join_type="left", copy=False)


def cheaper(of: exp.Table, classes: exp.Table, before: exp.Table) -> exp.Select:
    """The members of the blocks that cost no more as they are divided: ``combination``, ``block``, ``cell``."""
    on = col(CELL, "g").eq(col(COMBINATION, "m"))
    whole = total(col(ROWS, "g") * col(PRICE, "g"))
    sums = select([col(BLOCK, "m"), named(whole, "whole")], aliased(of, "m"), [col(BLOCK, "m")])
    sums = sums.join(aliased(classes, "g"), on=on, copy=False)
    old = col(ROWS, "b") * col(PRICE, "b")
    query = select([all_columns("o")], aliased(of, "o"))
    query = query.join(subquery(sums, "s"), on=col(BLOCK, "o").eq(col(BLOCK, "s")), copy=False)
    query = query.join(aliased(before, "b"), on=col(BLOCK, "o").eq(col(CELL, "b")), copy=False)
    return query.where(col("whole", "s") <= old, copy=False)


def divided(of: exp.Table, better: exp.Table) -> exp.Select:
    """The members of all groups, where some are divided: ``combination`` and ``cell``."""
    on = col(COMBINATION, "m").eq(col(COMBINATION, "d"))
    cell = exp.Coalesce(this=col(CELL, "d"), expressions=[col(CELL, "m")])
    query = select([col(COMBINATION, "m"), named(cell, CELL)], aliased(of, "m"))
    return query.join(aliased(better, "d"), on=on, join_type="left", copy=False)


FEW = 10
"""Of so many combinations every grouping is tried: 1,023 groups, and 3¹⁰ steps."""

MOST_TOGETHER = 500
"""Blocks of more combinations are not divided: pairs are compared."""


def k_similar(task: LocalTask) -> LocalOutcome:
    """Group similar combinations.

    It ends sooner at the policy's ``time_limit`` or ``max_checks``: at any time there are groups that hold.
    """
    search, start, best, rounds = grouped(task)
    if best is start and task.prepared.requirements.shields:
        # What is less than the generalization might break what the shields ask of some attributes.
        nodes = gr.placed(best.members, best.classes, len(task.trees))
        return LocalOutcome(task, task.steps.make(task.work("similar_placed"), nodes), rounds=rounds, search=search)
    columns: list[exp.Expr] = [col(COMBINATION), named(col(gr.CELL), PART)]
    parts = task.steps.make(task.work("similar_parts"), select(columns, best.members.copy()))
    shown = summarise(task, parts, allowed_nodes(task, "similar"), "similar", rounds)
    return replace(shown, search=search)


def grouped(task: LocalTask) -> tuple[Search, Grouping, Grouping, int]:
    """The search for the full-domain optimum, its classes, the best groups, and how many rounds they took."""
    search, levels = task.start()
    similar = _Similar(task)
    start = similar.groups.at(levels)
    return search, start, similar.run(start), similar.groups.rounds


class _Similar:
    def __init__(self, task: LocalTask) -> None:
        self.task = task
        self.groups = Groups(task, "similar")

    def run(self, start: Grouping) -> Grouping:
        groups, best = self.groups, start
        count = self.task.steps.count(self.task.combinations)
        try:
            if count <= FEW:
                return groups.better(best, self._best_of_all(count))
            best = groups.better(best, groups.grouping(groups.climb(groups.prices)))
            best = groups.better(best, self._divided(best))
        except LimitReachedError:
            pass
        return best

    def _best_of_all(self, count: int) -> Grouping:
        """Of all groupings of few combinations, numbered from 0, the one that costs least."""
        groups, task = self.groups, self.task
        groups.refuse_late()
        every = groups.make(all_groups(task.combinations, count))
        classes = groups.tight(every).classes
        judged = task.judged(subquery(gr.sized(every, groups.prices), "s"), [gr.CELL])
        rows = {cell: (n, price) for cell, n, price in task.engine.rows(group_prices(classes, judged))}
        chosen = best_grouping(count, rows, task.rows - task.allowed_rows)
        return groups.tight(groups.make(in_cells(every, chosen)))

    def _divided(self, whole: Grouping) -> Grouping:
        groups, task, least = self.groups, self.task, self.task.members.requirements.least_class
        now = groups.make(open_blocks(whole.members, whole.classes, 2 * least, MOST_TOGETHER))
        while True:
            groups.refuse_late()
            classes = groups.tight(now).classes
            judged = groups.make(task.judged(subquery(gr.sized(now, groups.prices), "s"), [gr.CELL]))
            proposed = groups.make(proposals(classes, judged, now, groups.prices, task.trees, 2 * least))
            if not task.steps.count(proposed):
                break
            now = groups.make(united(now, groups.make(unions(proposed))))
        better = groups.make(cheaper(now, classes, whole.classes))
        return groups.tight(groups.make(divided(whole.members, better)))


def best_grouping(count: int, groups: dict[int, tuple[int, int]], needed: int) -> list[int]:
    """The groups that cost least together and have enough rows; none if there are no such.

    >>> best_grouping(3, {0b011: (5, 7), 0b100: (4, 0), 0b111: (9, 20)}, 9)
    [3, 4]
    """
    # By things, as bits: their rows, the least cost of groups of just these, and the groups.
    best: dict[int, tuple[int, int, list[int]]] = {0: (0, 0, [])}
    for things in range(1, 2**count):
        low = things & -things
        others = part = things ^ low
        options = []
        while True:  # the group of the first thing: with each part of the others
            if part | low in groups and others ^ part in best:
                rows, cost, chosen = best[others ^ part]
                more_rows, more_cost = groups[part | low]
                options.append((rows + more_rows, cost + more_cost, [part | low, *chosen]))
            if not part:
                break
            part = (part - 1) & others
        if options:
            best[things] = min(options, key=lambda one: one[1:])
    enough = [one for one in best.values() if one[0] >= needed]
    return min(enough, key=lambda one: (one[1] - one[0] * gr.UNIT, one[2]), default=(0, 0, []))[2]


run = on_combinations(k_similar)
