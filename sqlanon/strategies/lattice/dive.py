"""A dive: a greedy descent to a good generalization of a large lattice, before branch and bound proves the best.

It steps down from the top, one level of one attribute at a time, always by the best step. Then it makes a few moves of
one level up, one level down, or both, while they improve. Suppression beyond the limit is a penalty: with a hard limit
the dive would end at the first border. Finally it climbs to a generalization that meets the policy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sqlanon.frequency.suppression_limit import SuppressionLimit
from sqlanon.measures import Figures
from sqlanon.strategies.lattice.search import TOLERANCE, LatticeSearch
from sqlanon.support.coding import Levels

LARGE = 1_000_000
"""Number of generalizations above which a dive pays. A smaller lattice is searched to its end first."""

PENALTY = 0.3
"""Cost of the share of rows suppressed beyond the limit, as a share of the span from the least bound to the top's
score. With this value, dives in a table of 16 attributes ended best from every start that was tried."""

SWAPS = 8
"""Maximum number of moves after the descent. With a low suppression limit hundreds more would each gain little;
`lattice.genetic` gains more from there."""

TOGETHER = 4
"""Neighbours that one statement checks: more checks until the first better one, in fewer statements."""


class PenalizedCost:
    """The cost of a generalization, which need not meet the policy. Checks it; the top must have been checked."""

    def __init__(self, search: LatticeSearch) -> None:
        self.search = search
        self.least = search.measure.bound(search.lattice.bottom)
        self.worst = search.measure.score(search.lattice.top, search.figures[search.lattice.top])
        self.limit = search.limit or SuppressionLimit(search.allowed_rows)

    def check_all(self, generalizations: Sequence[Levels]) -> None:
        """Check generalizations whose costs will be needed."""
        self.search.visit(*generalizations)
        self.search.check_all(generalizations)

    def __call__(self, levels: Levels) -> float:
        """The score of a feasible generalization, else an estimate and the penalty; at least the bound."""
        search, measure = self.search, self.search.measure
        search.visit(levels)
        search.check(levels)
        if (score := search.scores.get(levels)) is not None:
            return score
        rows, figures = measure.marginals.rows, search.figures[levels]
        if measure.needs_leaves or measure.needs_entropy:  # counted within the limit only
            cost = measure.bound(levels)
            cost += figures.expected_suppressed / rows * (self.worst - cost)
        else:
            cost = measure.score(levels, figures)
        return cost + PENALTY * (self._excess(figures, rows) or 1.0) * (self.worst - self.least)

    def _excess(self, figures: Figures, rows: int) -> float:
        """The share of rows, or of persons where these are counted, suppressed beyond the limit. Uncounted persons are
        estimated by the rows."""
        limit, suppressed = self.limit, figures.expected_suppressed
        if limit.persons is None or limit.all_persons is None:
            return max(suppressed - limit.rows, 0) / rows
        persons = figures.suppressed_persons
        expected = min(suppressed, limit.all_persons) if persons is None else persons
        return max(expected - limit.persons, 0) / limit.all_persons


def dive(search: LatticeSearch, cost: PenalizedCost) -> None:
    """Check generalizations on the way to a good one; the search keeps the best."""
    _Dive(search, cost).run()


class _Dive:
    def __init__(self, search: LatticeSearch, cost: PenalizedCost) -> None:
        self.search, self.lattice, self._cost = search, search.lattice, cost

    def run(self) -> None:
        levels = self._descend(self.lattice.top)
        for _ in range(SWAPS):
            improved = self._swap(levels)
            if improved == levels:
                break
            levels = improved
        self._climb(levels)

    def _descend(self, levels: Levels) -> Levels:
        """Take the best step down, as long as one improves the score.

        The gain of a step seldom grows further down, so a step is tried again only if its last gain exceeds the current
        gains of the others.
        """
        gains = dict.fromkeys(range(len(levels)), math.inf)
        self._cost.check_all([lower for _, lower in self._predecessors(levels)])
        while True:
            cost, best_step, best_lower = self._cost(levels), -1, levels
            lower = dict(self._predecessors(levels))
            for i in sorted(lower, key=lambda i: -gains[i]):
                if gains[i] <= max(0.0, gains.get(best_step, 0.0)):
                    break
                gains[i] = cost - self._cost(lower[i])
                if gains[i] > max(0.0, gains.get(best_step, 0.0)) or best_step < 0 < gains[i]:
                    best_step, best_lower = i, lower[i]
            if best_step < 0:
                return levels
            levels, gains[best_step] = best_lower, math.inf

    def _swap(self, levels: Levels) -> Levels:
        """The first better generalization, by bound, of those one or two steps away; else the same."""
        cost = self._cost(levels)
        limit = cost - TOLERANCE * abs(cost)
        upper = [successor for _, successor in self._successors(levels)]
        lower = [predecessor for _, predecessor in self._predecessors(levels)]
        siblings = (predecessor for successor in upper for _, predecessor in self._predecessors(successor))
        neighbours = {*upper, *lower, *siblings} - {levels}
        bounds = sorted((self.search.measure.bound(neighbour), neighbour) for neighbour in neighbours)
        promising = [neighbour for bound, neighbour in bounds if bound < limit]
        for i in range(0, len(promising), TOGETHER):
            batch = promising[i : i + TOGETHER]
            self._cost.check_all(batch)
            better = next((neighbour for neighbour in batch if self._cost(neighbour) < limit), None)
            if better is not None:
                return better
        return levels

    def _climb(self, levels: Levels) -> None:
        """Step up to a generalization that meets the policy, by the steps that restore the most rows for their cost."""
        search = self.search
        while not search.is_feasible(levels) and levels != self.lattice.top:
            rows, bound = search.figures[levels].expected_suppressed, search.measure.bound(levels)

            def price(upper: Levels, rows: float = rows, bound: float = bound) -> float:
                self.search.check(upper)
                restored = rows - self.search.figures[upper].expected_suppressed
                return (self.search.measure.bound(upper) - bound) / max(restored, 0.5)

            levels = min((successor for _, successor in self._successors(levels)), key=price)

    def _successors(self, levels: Levels) -> Iterator[tuple[int, Levels]]:
        for i, level in enumerate(levels):
            upper = next((permitted for permitted in self.lattice.levels(i) if permitted > level), None)
            if upper is not None:
                yield i, (*levels[:i], upper, *levels[i + 1 :])

    def _predecessors(self, levels: Levels) -> Iterator[tuple[int, Levels]]:
        for i, level in enumerate(levels):
            lower = next((permitted for permitted in reversed(self.lattice.levels(i)) if permitted < level), None)
            if lower is not None:
                yield i, (*levels[:i], lower, *levels[i + 1 :])
