"""Groups of combinations that hold, found on a path through the lattice; what two local strategies share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.coding import Levels
from sqlanon.expressions import drop_table, subquery
from sqlanon.measures import MEASURES
from sqlanon.recode.local import groups_statements as gr
from sqlanon.recode.local import moves as mv
from sqlanon.recode.local.nodes import node_name
from sqlanon.recode.local.task import LocalTask
from sqlanon.search.lattice import Lattice

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
        See `recode.local.groups_statements.members` and `recode.local.groups_statements.tightened`.
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
        The combinations, made by `recode.local.groups_statements.priced`.
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
        self._cost = MEASURES["loss"](task.prepared.marginals, weights).bound
        self.prices = self.make(gr.priced(task.combinations, task.trees))
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
        self.task.progress(0, self.rounds, best.price / (self.task.rows * gr.UNIT))
        return best

    def refuse_late(self) -> None:
        """Count a round.

        Raises
        ------
        LimitReachedError
            A limit of the search says that there may be no more.
        """
        self.task.clock.spend()
        self.rounds += 1

    def at(self, levels: Levels) -> Grouping:
        """The classes of a generalization that hold."""
        prepared, members = self.task.prepared, self.task.members
        # Groups as large as shields ask may be released as less than the generalization; smaller ones must not.
        lowest = levels if prepared.requirements.shields else self.task.floor
        exact = replace(self.task, members=replace(members, requirements=prepared.requirements))
        return self.tight(self.make(gr.members([self._step(exact, self.prices, levels)])), lowest)

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
        return self.make(gr.stepped(rest, judged, levels, self.task.trees))

    def _judged(self, task: LocalTask, rest: exp.Table, levels: Levels) -> exp.Select:
        keys = [node_name(i, level) for i, level in enumerate(levels)]
        return task.judged(subquery(gr.offered(rest, levels), "o"), keys)

    def _held(self, rest: exp.Table, candidates: Sequence[Levels]) -> tuple[dict[Levels, int], int]:
        """How many rows of what is left are in groups that hold, by generalization; and how many are left."""
        rows = self.task.engine.rows(gr.held_rows([self._judged(self.task, rest, one) for one in candidates]))
        return {candidates[i]: held for i, held, _ in rows}, max(left for _, _, left in rows)

    def grouping(self, steps: Sequence[exp.Table]) -> Grouping:
        """The groups that tables with ``combination`` and ``cell`` have together; what is in none of them is taken in
        by the group that it costs least, where that still holds then."""
        found = self.tight(self.make(gr.members(steps)))
        loose = self.make(gr.loose(self.prices, found.members))
        pairs = self.task.steps.count(loose) * self.task.steps.count(found.classes)
        if not 0 < pairs <= MOST_PAIRS:
            return found
        self.refuse_late()
        coming = self.make(mv.taken_in(loose, found.classes, self.prices, self.task.trees))
        both = self.make(gr.members([found.members, coming]))
        judged = self.task.judged(subquery(gr.sized(both, self.prices), "s"), [gr.CELL])
        taken = self.make(gr.kept_cells(coming, judged))
        return self.tight(self.make(gr.members([found.members, taken])))

    def tight(self, found: exp.Table, lowest: Levels | None = None) -> Grouping:
        """The groups, as what they are released as (from some levels up), and their price."""
        classes = self.make(gr.tightened(found, self.prices, self.task.trees, lowest or self.task.floor))
        price, rows, _ = self.task.engine.rows(gr.costs(classes))[0]
        return Grouping(found, classes, price + (self.task.rows - rows) * gr.UNIT, rows)
