"""A dive for a good generalization of a large lattice, before the branch and bound that proves it: it finds, and proves
nothing.

Down from the top, one level of one attribute at a time, always the step that is best; then moves of one level up, one
level down, or both, as long as one is better, but a few at most. The suppression limit is a penalty on the way: with
the limit itself the dive ends at the first border. Last the way up, to what satisfies the policy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sqlanon.frequency.suppression_limit import SuppressionLimit
from sqlanon.measures import Figures
from sqlanon.strategies.lattice.search import TOLERANCE, LatticeSearch
from sqlanon.support.coding import Levels

LARGE = 1_000_000
"""Generalizations: a smaller lattice is searched to its end before a dive would pay."""

PENALTY = 0.3
"""For the share of the rows that is suppressed beyond the limit, of the span from the least bound to the score of the
top: with this one a table of 16 attributes ends best, from every start that was tried."""

SWAPS = 8
"""At most this number of moves after the descent: with a low suppression limit there may be hundreds beyond it, each
for very little. `search.breeding` finds more from there."""

TOGETHER = 4
"""Neighbours that one statement checks: more than the first that is better, but in fewer statements."""


class PenalizedCost:
    """What a generalization costs that need not satisfy the policy: it is checked. The top has been."""

    def __init__(self, search: LatticeSearch) -> None:
        self.search = search
        self.least = search.measure.bound(search.lattice.bottom)
        self.worst = search.measure.score(search.lattice.top, search.figures[search.lattice.top])
        self.limit = search.limit or SuppressionLimit(search.allowed_rows)

    def ask(self, several: Sequence[Levels]) -> None:
        """Check some that will cost something."""
        self.search.visit(*several)
        self.search.check_all(several)

    def __call__(self, levels: Levels) -> float:
        """Its score if it satisfies the policy; else about that, and the penalty. At least its bound."""
        search, measure = self.search, self.search.measure
        search.visit(levels)
        search.check(levels)
        if (score := search.scores.get(levels)) is not None:
            return score
        rows, figures = measure.marginals.rows, search.figures[levels]
        if measure.needs_leaves or measure.needs_entropy:  # a check counts them only within the limit
            cost = measure.bound(levels)
            cost += figures.expected_suppressed / rows * (self.worst - cost)
        else:
            cost = measure.score(levels, figures)
        return cost + PENALTY * (self._beyond(figures, rows) or 1.0) * (self.worst - self.least)

    def _beyond(self, figures: Figures, rows: int) -> float:
        """The share of the rows that is suppressed beyond the limit; where persons are counted, of the persons. Those
        that are not counted are about as many as the rows."""
        limit, suppressed = self.limit, figures.expected_suppressed
        if limit.persons is None or limit.all_persons is None:
            return max(suppressed - limit.rows, 0) / rows
        persons = figures.suppressed_persons
        expected = min(suppressed, limit.all_persons) if persons is None else persons
        return max(expected - limit.persons, 0) / limit.all_persons


def dive(search: LatticeSearch, cost: PenalizedCost) -> None:
    """Ask about generalizations on the way to a good one; the search remembers the best that satisfies the policy."""
    _Dive(search, cost).run()


class _Dive:
    def __init__(self, search: LatticeSearch, cost: PenalizedCost) -> None:
        self.search, self.lattice, self._cost = search, search.lattice, cost

    def run(self) -> None:
        here = self._descended(self.lattice.top)
        for _ in range(SWAPS):
            here, before = self._swapped(here), here
            if here == before:
                break
        self._climb(here)

    def _descended(self, here: Levels) -> Levels:
        """Down by the best steps, as long as one is better.

        What a step brings seldom grows further down: so a step is tried again only where what it brought the last time
        is more than what others bring now.
        """
        brings = dict.fromkeys(range(len(here)), math.inf)
        self._cost.ask([down for _, down in self._below(here)])
        while True:
            cost, best, found = self._cost(here), -1, here
            below = dict(self._below(here))
            for i in sorted(below, key=lambda i: -brings[i]):
                if brings[i] <= max(0.0, brings.get(best, 0.0)):
                    break
                brings[i] = cost - self._cost(below[i])
                if brings[i] > max(0.0, brings.get(best, 0.0)) or best < 0 < brings[i]:
                    best, found = i, below[i]
            if best < 0:
                return here
            here, brings[best] = found, math.inf

    def _swapped(self, here: Levels) -> Levels:
        """The first better one of those that are a step or two away, by their bounds."""
        cost = self._cost(here)
        most = cost - TOLERANCE * abs(cost)
        above, below = [up for _, up in self._above(here)], [down for _, down in self._below(here)]
        near = {*above, *below, *(one for up in above for _, one in self._below(up))}
        bounds = sorted((self.search.measure.bound(one), one) for one in near - {here})
        left = [one for bound, one in bounds if bound < most]
        for i in range(0, len(left), TOGETHER):
            self._cost.ask(some := left[i : i + TOGETHER])
            if (better := next((one for one in some if self._cost(one) < most), None)) is not None:
                return better
        return here

    def _climb(self, here: Levels) -> None:
        """Up to what satisfies the policy: the step that brings the most rows back for what it costs."""
        search = self.search
        while not search.satisfies(here) and here != self.lattice.top:
            rows, bound = search.figures[here].expected_suppressed, search.measure.bound(here)

            def price(up: Levels, rows: float = rows, bound: float = bound) -> float:
                self.search.check(up)
                gained = rows - self.search.figures[up].expected_suppressed
                return (self.search.measure.bound(up) - bound) / max(gained, 0.5)

            here = min((up for _, up in self._above(here)), key=price)

    def _above(self, levels: Levels) -> Iterator[tuple[int, Levels]]:
        for i, level in enumerate(levels):
            higher = (one for one in self.lattice.levels(i) if one > level)
            if (up := next(higher, None)) is not None:
                yield i, (*levels[:i], up, *levels[i + 1 :])

    def _below(self, levels: Levels) -> Iterator[tuple[int, Levels]]:
        for i, level in enumerate(levels):
            lower = (one for one in reversed(self.lattice.levels(i)) if one < level)
            if (down := next(lower, None)) is not None:
                yield i, (*levels[:i], down, *levels[i + 1 :])
