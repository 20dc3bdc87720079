"""Groups of combinations that hold, found on a path through the lattice; what two local strategies share.

A group has a number, ``cell``: the least combination that was in it when it was made. It is released as the lowest
nodes that its members have in common and that may be released. Combinations may go to another group where that costs
less. Prices are whole numbers, so that sums of them are the same in any order: the loss of a row, in units of 10⁻⁹.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.coding import ROWS, Levels
from sqlanon.expressions import (
    aliased,
    all_of,
    cast,
    col,
    drop_table,
    is_null,
    is_there,
    named,
    number,
    select,
    subquery,
    total,
    union_all,
)
from sqlanon.measures import Loss
from sqlanon.recode.local.nodes import COMBINATION, NODE, Tree, node_name, released_name
from sqlanon.recode.local.task import LocalTask
from sqlanon.requirements.base import CLASS_SIZE
from sqlanon.search.classes import KEPT
from sqlanon.search.lattice import Lattice

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
        on = col(ground, "c").eq(col(ground, f"a{i}"))
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
            on = col("parent", f"n{level - 1}").eq(col(NODE, of))
            query = query.join(aliased(tree.nodes, of), on=on, copy=False)
        node = _signed(col(NODE, of), of) if level > tree.floor else col(NODE, of)
        price = cast(exp.Round(this=col("leaves", of) * number(share)), "BIGINT")
        output += [named(node, node_name(attribute, level)), named(price, price_name(attribute, level))]
    ground = col("level", f"n{tree.floor}").eq(number(tree.floor))
    return query.select(*output, copy=False).where(ground, copy=False)


def _signed(node: exp.Expr, of: str) -> exp.Expr:
    marked = exp.Neg(this=node.copy()) - 1
    return exp.If(this=col("released", of), true=node, false=marked)


def rest_of(grouped: exp.Table) -> exp.Select:
    """The combinations of a step that no group has."""
    return exp.select("*").from_(grouped.copy()).where(is_null(col(CELL)), copy=False)


def offered(rest: exp.Table, levels: Levels) -> exp.Select:
    """What is left, with the nodes at which a generalization would release it, where it may."""
    keys = [node_name(i, level) for i, level in enumerate(levels)]
    query = select([col(COMBINATION), col(ROWS), *(col(key) for key in keys)], rest.copy())
    allowed = [(col(key) >= 0) for key in keys]
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
    on = all_of(col(key, "r").eq(col(key, "j")) for key in keys)
    least = exp.Window(this=exp.Min(this=col(COMBINATION, "r")), partition_by=[col(key, "r") for key in keys])
    cell = exp.If(this=exp.Coalesce(this=col(KEPT, "j"), expressions=[exp.false()]), true=least, false=exp.null())
    columns = [COMBINATION, ROWS, *(node_name(i, level) for i, level in _levels(trees))]
    query = select([*(col(name, "r") for name in columns), named(cell, CELL)], subquery(rest_of(rest), "r"))
    return query.join(subquery(judged, "j"), on=on, join_type="left", copy=False)


def group_members(grouped: Sequence[exp.Table]) -> exp.Query:
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
        same = exp.Min(this=col(node, "p")).eq(exp.Max(this=col(node, "p")))
        shown = exp.Min(this=col(node, "p")) >= 0
        common = exp.If(this=all_of([same, shown]), true=exp.Min(this=col(node, "p")), false=exp.null())
        inner += [named(common, node), named(exp.Min(this=col(price, "p")), price)]
    on = col(COMBINATION, "m").eq(col(COMBINATION, "p"))
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
        added = added + term
    return exp.Paren(this=added)


def costs(classes: exp.Table) -> exp.Select:
    """One row: the price of all groups, their rows, and how many they are."""
    price = col(PRICE) * col(ROWS)
    none = number(0)
    return select(
        [
            exp.Coalesce(this=total(price), expressions=[none]),
            exp.Coalesce(this=total(col(ROWS)), expressions=[none.copy()]),
            exp.Count(this=exp.Star()),
        ],
        classes.copy(),
    )


def in_no_group(prices: exp.Table, of: exp.Table) -> exp.Select:
    """The combinations that are in no group."""
    on = col(COMBINATION, "p").eq(col(COMBINATION, "m"))
    query = exp.select("*").from_(aliased(prices, "p"), copy=False)
    return query.join(aliased(of, "m"), on=on, join_type="anti", copy=False)


def kept_cells(found: exp.Table, judged: exp.Select) -> exp.Select:
    """The members that a relation has of groups that hold."""
    on = col(CELL, "m").eq(col(CELL, "j"))
    query = select([col(COMBINATION, "m"), col(CELL, "m")], aliased(found, "m"))
    return query.join(subquery(judged, "j"), on=on, copy=False).where(col(KEPT, "j"), copy=False)


def sized(of: exp.Table, prices: exp.Table) -> exp.Select:
    """The combinations that have a group, with their rows: what can be judged by ``cell``."""
    on = col(COMBINATION, "m").eq(col(COMBINATION, "p"))
    query = select([col(COMBINATION, "m"), col(CELL, "m"), col(ROWS, "p")], aliased(of, "m"))
    return query.join(aliased(prices, "p"), on=on, copy=False)


def placed(of: exp.Table, classes: exp.Table, count: int) -> exp.Select:
    """Each combination with the nodes that its group is released as."""
    on = col(CELL, "m").eq(col(CELL, "g"))
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
        conditions: list[exp.Expr] = [col(name, "x").eq(col(name, of))]
        for group in released:
            conditions.append(col(name, of) >= col(released_name(attribute), group))
        price = price.when(all_of(conditions), col(price_name(attribute, level), of), copy=False)
    return price


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
    at = col(CELL, "g").eq(col(COMBINATION, "r"))
    query = query.join(aliased(classes, "g"), join_type="cross", copy=False)
    query = query.join(aliased(prices, "r"), on=at, copy=False)
    both = exp.Paren(this=col("there") + col("coming"))
    before = col("there") * col("before")
    more = (both * col("after")) - before
    best = exp.ArgMin(this=col(CELL), expression=exp.Tuple(expressions=[more, col(CELL)]))
    output: list[exp.Expr] = [col(COMBINATION), named(best, CELL), named(exp.Min(this=more.copy()), "more")]
    chosen = select(output, subquery(query, "x"), [col(COMBINATION)])
    return chosen.where(is_there(col("after")), copy=False)


def threshold(classes: exp.Table, rows: int) -> exp.Select:
    """One number: the least price that is no more than that of so many rows in groups."""
    window = exp.Window(this=exp.Sum(this=col(ROWS)), order=exp.Order(expressions=[exp.Ordered(this=col(PRICE))]))
    sums = select([col(PRICE), named(cast(window, "BIGINT"), "below")], classes.copy())
    enough = col("below") >= number(rows)
    return select([exp.Min(this=col(PRICE))], subquery(sums, "s")).where(enough, copy=False)


def within(of: exp.Table, classes: exp.Table, price: int) -> exp.Select:
    """The members of the groups whose rows cost no more than a price."""
    on = col(CELL, "m").eq(col(CELL, "g"))
    query = select([col(COMBINATION, "m"), col(CELL, "m")], aliased(of, "m"))
    query = query.join(aliased(classes, "g"), on=on, copy=False)
    return query.where(col(PRICE, "g") <= number(price), copy=False)


def cheap(classes: exp.Table, price: int) -> exp.Select:
    """The groups whose rows cost no more than a price."""
    query = exp.select("*").from_(classes.copy())
    return query.where(col(PRICE) <= number(price), copy=False)


def moves(offers: exp.Table, of: exp.Table, classes: exp.Table, prices: exp.Table, least: int) -> exp.Select:
    """What makes a release cheaper: ``combination`` and ``cell``, to which it goes.

    A group goes as a whole, if all of its members cost less elsewhere than they do together. Of another, the member
    goes that saves most, if the rest has enough rows.
    """
    whole = col(ROWS, "g") * col(PRICE, "g")
    every = _at_home(exp.Count(this=col("more", "o"))).eq(_at_home(exp.Count(this=exp.Star())))
    less = _at_home(exp.Sum(this=col("more", "o"))) < whole
    saved = (col(ROWS, "p") * col(PRICE, "g")) - col("more", "o")
    stay = col(ROWS, "g") - col(ROWS, "p")
    may = all_of([saved > 0, stay >= number(least)])
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
        on = col(key, "m").eq(col(key, alias))
        query = query.join(aliased(relation, alias), on=on, join_type=side, copy=False)
    alone = all_of([col("may"), col("place").eq(1)])
    goes = col("leaves") | exp.Paren(this=alone)
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
    on = col(COMBINATION, "m").eq(col(COMBINATION, "o"))
    cell = exp.Coalesce(this=col(CELL, "o"), expressions=[col(CELL, "m")])
    query = select([col(COMBINATION, "m"), named(cell, CELL)], aliased(of, "m"))
    query = query.join(aliased(going, "o"), on=on, join_type="left", copy=False)
    least = exp.Window(this=exp.Min(this=col(COMBINATION)), partition_by=[col(CELL)])
    return select([col(COMBINATION), named(least, CELL)], subquery(query, "q"))


def failing(judged: exp.Select) -> exp.Select:
    """One number: the groups that do not hold."""
    return select([exp.Count(this=exp.Star())], subquery(judged, "j")).where(~col(KEPT), copy=False)


MOST_PAIRS = 20_000_000
"""So many pairs of a loose combination and a group are compared by one statement, at most: in about two seconds."""

LEAST_SHARE = 0.02
"""A generalization beside the path must hold more than this share of the rows that are left, to be worth its time."""


@dataclass(frozen=True)
class Grouping:
    """Groups that hold.

    Attributes
    ----------
    members, classes:
        See `members` and `tightened`.
    price:
        Of all rows, in units of 10⁻⁹; a row that is in no group has the price of one of which nothing is shown.
    rows:
        In groups.
    """

    members: exp.Table
    classes: exp.Table
    price: int
    rows: int


class Groups:
    """Makes groups, and counts its rounds.

    Attributes
    ----------
    prices:
        The combinations, made by `priced`.
    rounds:
        The steps taken and statements that compared all groups.
    """

    def __init__(self, task: LocalTask, prefix: str) -> None:
        self.task = task
        self.rounds = 0
        self._prefix = prefix
        self._count = 0
        self._made: list[exp.Table] = []
        weights = [tree.weight for tree in task.trees]
        self._cost = Loss(task.prepared.marginals, weights).bound
        self.prices = self.make(priced(task.combinations, task.trees))
        self._made.clear()

    def make(self, query: exp.Query) -> exp.Table:
        """Make a table under a name of its own."""
        self._count += 1
        target = self.task.steps.make(self.task.work(f"{self._prefix}_{self._count}"), query)
        self._made.append(target)
        return target

    def better(self, best: Grouping, other: Grouping) -> Grouping:
        """The one that costs less and suppresses no more rows than may be; all else that was made is let go of."""
        if other.price < best.price and self.task.rows - other.rows <= self.task.allowed_rows:
            best = other
        kept = (best.members, best.classes)
        for target in self._made:
            if target not in kept:
                self.task.engine.execute(drop_table(target.copy()))
        self._made = list(kept)
        self.task.progress(0, self.rounds, best.price / (self.task.rows * UNIT))
        return best

    def refuse_late(self) -> None:
        """Count a round."""
        self.task.clock.spend()
        self.rounds += 1

    def at(self, levels: Levels) -> Grouping:
        """The classes of a generalization that hold."""
        prepared, members = self.task.prepared, self.task.members
        # Groups as large as shields ask may be released as less than the generalization; smaller ones must not.
        lowest = levels if prepared.requirements.shields else self.task.floor
        exact = replace(self.task, members=replace(members, requirements=prepared.requirements))
        return self.tight(self.make(group_members([self._step(exact, self.prices, levels)])), lowest)

    def climb(self, loose: exp.Table) -> list[exp.Table]:
        """Group loose combinations on a path from the lowest levels to the highest: what holds stays, the rest goes on.

        Of the generalizations one level above, the one that holds most rows for what it costs more is next. Those that
        were passed by come in between, once they cost no more than it, the cheapest first.
        """
        # With the levels at which not all labels are allowed: those nodes are released that may be.
        floor, ceiling = self.task.floor, tuple(tree.ceiling for tree in self.task.trees)
        lattice = Lattice(self.task.prepared.lattice.attributes, floor, ceiling)
        levels = lattice.bottom
        self.refuse_late()
        steps = [self._step(self.task, loose, levels)]
        passed: set[Levels] = set()
        while levels != lattice.top:
            higher = lattice.above(levels)
            held, _ = self._held(steps[-1], higher)
            levels = max(higher, key=lambda one: ((held[one] + 0.5) / (self._more(levels, one) + 1e-6), one))
            passed = (passed | {one for one in higher if held[one]}) - {levels}
            due = {one for one in passed if self._cost(one) <= self._cost(levels)}
            passed -= due
            for one in [*self._worth_it(steps[-1], due), *([levels] if held[levels] else [])]:
                self.refuse_late()
                steps.append(self._step(self.task, steps[-1], one))
        return steps

    def _worth_it(self, rest: exp.Table, passed: Collection[Levels]) -> list[Levels]:
        """Of generalizations beside the path those that hold much of what is left, the cheapest first."""
        if not passed:
            return []
        held, left = self._held(rest, sorted(passed))
        found = [one for one in passed if held[one] > LEAST_SHARE * left]
        return sorted(found, key=lambda one: (self._cost(one), one))

    def _more(self, levels: Levels, higher: Levels) -> float:
        return self._cost(higher) - self._cost(levels)

    def _step(self, task: LocalTask, rest: exp.Table, levels: Levels) -> exp.Table:
        judged = self._judged(task, rest, levels)
        return self.make(stepped(rest, judged, levels, self.task.trees))

    def _judged(self, task: LocalTask, rest: exp.Table, levels: Levels) -> exp.Select:
        keys = [node_name(i, level) for i, level in enumerate(levels)]
        return task.judged(subquery(offered(rest, levels), "o"), keys)

    def _held(self, rest: exp.Table, candidates: Sequence[Levels]) -> tuple[dict[Levels, int], int]:
        """How many rows of what is left are in groups that hold, by generalization; and how many are left."""
        rows = self.task.engine.rows(held_rows([self._judged(self.task, rest, one) for one in candidates]))
        return {candidates[i]: held for i, held, _ in rows}, max(left for _, _, left in rows)

    def grouping(self, steps: Sequence[exp.Table]) -> Grouping:
        """The groups that tables with ``combination`` and ``cell`` have together; what is in none of them is taken in
        by the group that it costs least, where that still holds then."""
        found = self.tight(self.make(group_members(steps)))
        loose = self.make(in_no_group(self.prices, found.members))
        pairs = self.task.steps.count(loose) * self.task.steps.count(found.classes)
        if not 0 < pairs <= MOST_PAIRS:
            return found
        self.refuse_late()
        coming = self.make(taken_in(loose, found.classes, self.prices, self.task.trees))
        both = self.make(group_members([found.members, coming]))
        judged = self.task.judged(subquery(sized(both, self.prices), "s"), [CELL])
        taken = self.make(kept_cells(coming, judged))
        return self.tight(self.make(group_members([found.members, taken])))

    def tight(self, found: exp.Table, lowest: Levels | None = None) -> Grouping:
        """The groups, as what they are released as (from some levels up), and their price."""
        classes = self.make(tightened(found, self.prices, self.task.trees, lowest or self.task.floor))
        price, rows, _ = self.task.engine.rows(costs(classes))[0]
        return Grouping(found, classes, price + (self.task.rows - rows) * UNIT, rows)
