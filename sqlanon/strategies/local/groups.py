"""Groups of combinations that hold, found on a path through the lattice; what two local strategies share.

A group has a number, ``cell``: the least combination that was in it when it was formed. It is released as the lowest
nodes that its members have in common and that may be released. Combinations may go to another group where that costs
less. Prices are whole numbers, so that sums of them are the same in any order: the loss of a row, in units of 10⁻⁹.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.measures import Loss
from sqlanon.strategies.lattice.lattice import Lattice
from sqlanon.strategies.local.mondrian import Cutting
from sqlanon.strategies.local.nodes import COMBINATION, NODE, Tree, agree, node_name, released_name, released_nodes
from sqlanon.strategies.local.summaries import allowed_nodes
from sqlanon.strategies.local.task import LocalTask
from sqlanon.support.coding import ROWS, Levels
from sqlanon.support.expressions import aliased, all_of, col, fragment, named, subquery, template, union_all

CELL = "cell"
UNIT = 1_000_000_000
"""The price of a row of which nothing is shown."""


def price_name(attribute: int, level: int) -> str:
    """The column with the price of a row whose attribute is released at a level."""
    return f"q{attribute}_p{level}"


_PRICED = template("SELECT c.combination, c.n, NULL::INTEGER AS cell FROM :combinations AS c")
_PRICE_OF_NODE = fragment("round(:leaves * :share)::BIGINT")
_SIGNED = fragment("CASE WHEN :released THEN :node ELSE -:node - 1 END")


def priced(combinations: exp.Table, trees: Sequence[Tree]) -> exp.Select:
    """The combinations with the price of each of their nodes, in no group yet: ``cell`` is NULL.

    Nodes that must not be released are the number less one below zero.
    """
    weights = sum(tree.weight for tree in trees) or 1.0
    query = _PRICED(combinations=combinations)
    for i, tree in enumerate(trees):
        attribute = _priced_nodes(tree, i, tree.weight / weights * UNIT / max(tree.leaves - 1, 1))
        ground = node_name(i, tree.floor)
        on = col(ground, "c").eq(col(ground, f"a{i}"))
        query = query.join(subquery(attribute, f"a{i}"), on=on, copy=False)
        names = [price_name(i, tree.floor)]
        for level in range(tree.floor + 1, tree.height + 1):
            names += [node_name(i, level), price_name(i, level)]
        signed = _SIGNED(released=col("released", f"a{i}"), node=col(ground, "c"))
        query = query.select(*(col(name, f"a{i}") for name in names), named(signed, ground), copy=False)
    return query


_GROUND_NODES = template("SELECT :released FROM :nodes WHERE :level = :floor")


def _priced_nodes(tree: Tree, attribute: int, share: float) -> exp.Select:
    """The nodes of an attribute at its floor, with those above them, and the price of each."""
    first = f"n{tree.floor}"
    query = _GROUND_NODES(
        released=col("released", first), nodes=aliased(tree.nodes, first), level=col("level", first), floor=tree.floor
    )
    for level in range(tree.floor, tree.height + 1):
        of = f"n{level}"
        node: exp.Expr = col(NODE, of)
        if level > tree.floor:
            on = col("parent", f"n{level - 1}").eq(col(NODE, of))
            query = query.join(aliased(tree.nodes, of), on=on, copy=False)
            node = _SIGNED(released=col("released", of), node=node)
        price = _PRICE_OF_NODE(leaves=col("leaves", of), share=share)
        names = node_name(attribute, level), price_name(attribute, level)
        query = query.select(named(node, names[0]), named(price, names[1]), copy=False)
    return query


# What is left, with the nodes at which a generalization would release it, where it may.
_OFFERED = template("SELECT combination, n, :nodes FROM :rest WHERE cell IS NULL")


# How many rows are in groups that hold, and in all groups.
_HELD_ROWS = template("""
    SELECT
        :candidate AS candidate,
        coalesce((sum(class_size) FILTER (WHERE kept))::BIGINT, 0) AS held,
        coalesce(sum(class_size)::BIGINT, 0) AS "left"
    FROM :judged AS j
""")


# What is left, with the groups in which a generalization holds.
_STEPPED = template("""
    SELECT
        :columns,
        CASE WHEN coalesce(j.kept, FALSE) THEN min(r.combination) OVER (PARTITION BY :keys) ELSE NULL END AS cell
    FROM (SELECT * FROM :rest WHERE cell IS NULL) AS r
    LEFT JOIN :judged AS j ON :same
""")


_MEMBERS = template("SELECT combination, cell FROM :grouped WHERE cell IS NOT NULL")


_TIGHTENED = template("""
    SELECT cell, n, :released, :price AS price
    FROM (
        SELECT m.cell, sum(p.n)::BIGINT AS n, :facts
        FROM :members AS m
        JOIN :prices AS p ON m.combination = p.combination
        GROUP BY m.cell
    ) AS g
""")
_COMMON_NODE = fragment("CASE WHEN min(:node) = max(:node) AND min(:node) >= 0 THEN min(:node) ELSE NULL END")
_IS_THERE = fragment(":node IS NOT NULL")
_FIRST = fragment("coalesce(:nodes)")


def tightened(of: exp.Table, prices: exp.Table, trees: Sequence[Tree], lowest: Levels) -> exp.Select:
    """The groups, each as what it is released as, from some levels up: ``cell``, ``n`` (rows), ``node_i``, and the
    ``price`` of a row."""
    facts: list[exp.Expr] = []
    released: list[exp.Expr] = []
    costs_: list[exp.Expr] = []
    for i, (low, tree) in enumerate(zip(lowest, trees, strict=True)):
        nodes, cost = [], exp.Case()
        for level in range(low, tree.height + 1):
            node, price = node_name(i, level), price_name(i, level)
            common = _COMMON_NODE(node=col(node, "p"))
            facts += [named(common, node), named(exp.Min(this=col(price, "p")), price)]
            nodes.append(col(node))
            cost = cost.when(_IS_THERE(node=col(node)), col(price), copy=False)
        released.append(named(_FIRST(nodes=nodes) if nodes[1:] else nodes[0], released_name(i)))
        costs_.append(cost)
    return _TIGHTENED(released=released, price=summed(costs_), facts=facts, members=of, prices=prices)


def summed(terms: Sequence[exp.Expr]) -> exp.Expr:
    """A sum of some terms, at least one."""
    added = terms[0]
    for term in terms[1:]:
        added = added + term
    return exp.Paren(this=added)


# One row: the price of all groups, and their rows.
_COSTS = template("SELECT coalesce(sum(price * n)::BIGINT, 0), coalesce(sum(n)::BIGINT, 0) FROM :classes")
# The parts that a table was cut into, each numbered by its least combination.
_CUT = template("SELECT combination, min(combination) OVER (PARTITION BY part) AS cell FROM :parts")
in_no_group = template("SELECT * FROM :prices AS p ANTI JOIN :members AS m ON p.combination = m.combination")
"""The combinations that are in no group."""

_KEPT_CELLS = template("""
    SELECT m.combination, m.cell
    FROM :members AS m
    JOIN :judged AS j ON m.cell = j.cell
    WHERE j.kept
""")
# The combinations that have a group, with their rows: what can be judged by ``cell``.
_SIZED = template("""
    SELECT m.combination, m.cell, p.n
    FROM :members AS m
    JOIN :prices AS p ON m.combination = p.combination
""")


_PLACED = template("SELECT m.combination, :nodes FROM :members AS m JOIN :classes AS g ON m.cell = g.cell")


def placed(of: exp.Table, classes: exp.Table, count: int) -> exp.Select:
    """Each combination with the nodes that its group is released as."""
    return _PLACED(nodes=released_nodes(count, "g"), members=of, classes=classes)


def common_price(attribute: int, tree: Tree, of: str, released: Sequence[str]) -> exp.Case:
    """The price of the lowest node above both a combination ``x`` and a combination ``of``, that is no lower than what
    some groups are released as.

    Numbers of nodes grow on the way up; the groups must have one of the two combinations each.
    """
    price = exp.Case()
    for level in range(tree.floor, tree.height + 1):
        name = node_name(attribute, level)
        is_common: list[exp.Expr] = [col(name, "x").eq(col(name, of))]
        is_common += [(col(name, of) >= col(released_name(attribute), group)) for group in released]
        price = price.when(all_of(is_common), col(price_name(attribute, level), of), copy=False)
    return price


# What is least is one whole number for each pair, the price before the group: arg_min by several values keeps each best
# one that it met, which takes gigabytes.
_TAKEN_IN = template("""
    SELECT combination, (best % 2147483648)::INTEGER AS cell, (best // 2147483648)::BIGINT AS more
    FROM (
        SELECT combination, min(((there + coming) * after - there * before)::HUGEINT * 2147483648 + cell) AS best
        FROM (
            SELECT x.combination, g.cell, x.n AS coming, g.n AS there, g.price AS before, :price AS after
            FROM :loose AS x
            CROSS JOIN :classes AS g
            JOIN :prices AS r ON g.cell = r.combination
        ) AS x
        WHERE after IS NOT NULL
        GROUP BY combination
    ) AS b
""")


def taken_in(loose: exp.Table, classes: exp.Table, prices: exp.Table, trees: Sequence[Tree]) -> exp.Select:
    """Loose combinations, each in the group that costs least more with it, as if no other one came in: ``combination``,
    ``cell``, and how much ``more``."""
    price = summed([common_price(i, tree, "r", ["g"]) for i, tree in enumerate(trees)])
    return _TAKEN_IN(price=price, loose=loose, classes=classes, prices=prices)


MOST_PAIRS = 20_000_000
"""So many pairs of a loose combination and a group are compared by one statement, at most: in about two seconds."""

LEAST_SHARE = 0.02
"""A generalization beside the path must hold more than this share of the rows that are left, to be worth its time."""


@dataclass(frozen=True)
class Grouping:
    """Groups that hold."""

    members: exp.Table  # made by `Groups._members`
    classes: exp.Table  # made by `tightened`
    price: int  # of all rows; a row in no group has the price of one of which nothing is shown
    rows: int  # in groups


class Groups:
    """Forms groups, and counts its rounds: the steps taken and statements that compared all groups."""

    def __init__(self, task: LocalTask, prefix: str) -> None:
        self.task = task
        self.rounds = 0
        self.best: Grouping | None = None  # the last that `better` chose
        self._prefix = prefix
        self._count = 0
        self._tables: list[exp.Table] = []
        weights = [tree.weight for tree in task.trees]
        self._cost = Loss(task.prepared.marginals, weights).bound
        self.prices = self.make(priced(task.combinations, task.trees))
        self._tables.clear()

    def make(self, query: exp.Query) -> exp.Table:
        """Make a table under a name of its own."""
        self._count += 1
        target = self.task.steps.make(self.task.work(f"{self._prefix}_{self._count}"), query)
        self._tables.append(target)
        return target

    def better(self, best: Grouping, other: Grouping) -> Grouping:
        """The one that costs less and suppresses no more rows than may be; all other tables are dropped."""
        if other.price < best.price and self.task.may_suppress(self.task.rows - other.rows, other.members):
            best = other
        self.best = best  # what is dropped now is no part of it
        kept = (best.members, best.classes)
        self.task.steps.drop(*(target for target in self._tables if target not in kept))
        self._tables = list(kept)
        self.task.progress(0, self.rounds, best.price / (self.task.rows * UNIT))
        return best

    def refuse_over_time(self) -> None:
        """Count a round."""
        self.task.clock.spend()
        self.rounds += 1

    def at(self, levels: Levels) -> Grouping:
        """The classes of a generalization that hold."""
        prepared, members = self.task.prepared, self.task.members
        # Groups as large as shields ask may be released as less than the generalization; smaller ones must not.
        lowest = levels if prepared.requirements.shields else self.task.floor
        exact = replace(self.task, members=replace(members, requirements=prepared.requirements))
        return self.tight(self._members([self._step(exact, self.prices, levels)]), lowest)

    def cut(self, as_ancestors: bool) -> Grouping:
        """The parts that `mondrian` cuts the table into, for the policy's summary or for ancestors alone."""
        cutting = Cutting(self.task, allowed_nodes(self.task, f"{self._prefix}_cut"), as_ancestors)
        parts = cutting.run()
        self.rounds += cutting.rounds
        return self.tight(self.make(_CUT(parts=parts)))

    def climb(self, loose: exp.Table) -> list[exp.Table]:
        """Group loose combinations on a path from the lowest levels to the highest: what holds stays, the rest goes on.

        Of the generalizations one level above, the one that holds most rows for what it costs more is next. Those that
        were passed by come in between, once they cost no more than it, the cheapest first.
        """
        # With the levels at which not all labels are allowed: those nodes are released that may be.
        floor, ceiling = self.task.floor, tuple(tree.ceiling for tree in self.task.trees)
        lattice = Lattice(self.task.prepared.lattice.attributes, floor, ceiling)
        levels = lattice.bottom
        self.refuse_over_time()
        steps = [self._step(self.task, loose, levels)]
        passed: set[Levels] = set()
        while levels != lattice.top:
            higher = lattice.above(levels)
            held, _ = self._held(steps[-1], higher)
            so_far = self._cost(levels)
            levels = max(higher, key=lambda one: ((held[one] + 0.5) / (self._cost(one) - so_far + 1e-6), one))
            passed = (passed | {one for one in higher if held[one]}) - {levels}
            due = {one for one in passed if self._cost(one) <= self._cost(levels)}
            passed -= due
            for one in [*self._worth_it(steps[-1], due), *([levels] if held[levels] else [])]:
                self.refuse_over_time()
                steps.append(self._step(self.task, steps[-1], one))
        return steps

    def _worth_it(self, rest: exp.Table, passed: Collection[Levels]) -> list[Levels]:
        """Of generalizations beside the path those that hold much of what is left, the cheapest first."""
        if not passed:
            return []
        held, left = self._held(rest, sorted(passed))
        found = [one for one in passed if held[one] > LEAST_SHARE * left]
        return sorted(found, key=lambda one: (self._cost(one), one))

    def _step(self, task: LocalTask, rest: exp.Table, levels: Levels) -> exp.Table:
        keys = [node_name(i, level) for i, level in enumerate(levels)]
        trees = enumerate(self.task.trees)
        nodes = [node_name(i, level) for i, tree in trees for level in range(tree.floor, tree.height + 1)]
        stepped = _STEPPED(
            columns=[col(name, "r") for name in (COMBINATION, ROWS, *nodes)],
            keys=[col(key, "r") for key in keys],
            rest=rest,
            judged=subquery(self._judged(task, rest, levels)),
            same=agree(keys, "r", "j"),
        )
        return self.make(stepped)

    def _judged(self, task: LocalTask, rest: exp.Table, levels: Levels) -> exp.Select:
        keys = [node_name(i, level) for i, level in enumerate(levels)]
        nodes = [col(key) for key in keys]
        offered = _OFFERED(nodes=nodes, rest=rest).where(*((node >= 0) for node in nodes), copy=False)
        return task.judged(subquery(offered, "o"), keys)

    def _held(self, rest: exp.Table, candidates: Sequence[Levels]) -> tuple[dict[Levels, int], int]:
        """How many rows of what is left are in groups that hold, by generalization; and how many are left."""
        judged = [subquery(self._judged(self.task, rest, one)) for one in candidates]
        query = union_all(*(_HELD_ROWS(candidate=i, judged=one) for i, one in enumerate(judged)))
        rows = self.task.engine.rows(query)
        return {candidates[i]: held for i, held, _ in rows}, max(left for _, _, left in rows)

    def judged_cells(self, members: exp.Table) -> exp.Select:
        """Groups, given by their members, judged."""
        return self.task.judged(subquery(_SIZED(members=members, prices=self.prices), "s"), [CELL])

    def grouping(self, steps: Sequence[exp.Table]) -> Grouping:
        """The groups that tables with ``combination`` and ``cell`` have together; what is in none of them is taken in
        by the group that it costs least, where that still holds then."""
        found = self.tight(self._members(steps))
        loose = self.make(in_no_group(prices=self.prices, members=found.members))
        pairs = self.task.steps.count(loose) * self.task.steps.count(found.classes)
        if not 0 < pairs <= MOST_PAIRS:
            return found
        self.refuse_over_time()
        coming = self.make(taken_in(loose, found.classes, self.prices, self.task.trees))
        both = self._members([found.members, coming])
        taken = self.make(_KEPT_CELLS(members=coming, judged=subquery(self.judged_cells(both))))
        return self.tight(self._members([found.members, taken]))

    def _members(self, grouped: Sequence[exp.Table]) -> exp.Table:
        """The combinations that have a group: ``combination`` and ``cell``."""
        return self.make(union_all(*(_MEMBERS(grouped=one) for one in grouped)))

    def tight(self, found: exp.Table, lowest: Levels | None = None) -> Grouping:
        """The groups, as what they are released as (from some levels up), and their price."""
        classes = self.make(tightened(found, self.prices, self.task.trees, lowest or self.task.floor))
        price, rows = self.task.engine.rows(_COSTS(classes=classes))[0]
        return Grouping(found, classes, price + (self.task.rows - rows) * UNIT, rows)
