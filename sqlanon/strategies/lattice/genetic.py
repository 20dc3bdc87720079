"""Generations of generalizations, after a dive and beside the proof: the levels of two good ones are mixed, and some
are moved.

A dive ends where no step or two are better; what is better lies further off, and its levels are those of several good
generalizations. The draws are always the same, and so is the answer, unless a limit ends the search.
"""

from __future__ import annotations

import random

from sqlanon.strategies.lattice.dive import PenalizedCost
from sqlanon.strategies.lattice.search import TOLERANCE, LatticeSearch
from sqlanon.support.coding import Levels

POPULATION_SIZE, BEST = 20, 10
"""The generalizations of a generation that stay; as many are made from them, each from one of the best and another."""

MOVES = 1.5
"""The levels of a new generalization that are a step higher or lower, on average."""

IDLE = 15
"""After this number of generations without anything better, others are drawn near the best."""

REDRAWN = 6
"""The levels of the best that are drawn anew for each of them: with all levels drawn anew, they end worse."""


class GeneticSearch:
    """A population: at first the best that was checked, and what is drawn."""

    def __init__(self, search: LatticeSearch, cost: PenalizedCost) -> None:
        self.search, self.cost = search, cost
        self.levels = [search.lattice.levels(i) for i in range(len(search.lattice.top))]
        self.draw = random.Random(0)
        permitted = filter(search.lattice.permits, list(search.figures))
        self.kept = self._least({min(permitted, key=lambda one: (cost(one), one)), *self._drawn()})
        self.idle = self.draws = 0
        """Generations since one was better; draws since the best of all was found."""

    def go_on(self) -> None:
        """One generation: at most `KEPT` checks."""
        best, least = self._best_score(), self.cost(self.kept[0])
        if self.idle >= IDLE:
            self.idle, self.draws = 0, self.draws + 1
            self.kept = self._least(self._near(self.search.best or self.kept[0]))
        else:
            self._add([self._child() for _ in range(POPULATION_SIZE)])
        better = self.cost(self.kept[0]) < least - TOLERANCE * abs(least)
        self.idle = 0 if better else self.idle + 1
        if self._best_score() < best:
            self.draws = 0

    def _best_score(self) -> float:
        best = self.search.best
        return float("inf") if best is None else self.search.scores[best]

    def _least(self, among: set[Levels]) -> list[Levels]:
        """Those of the least cost."""
        self.cost.ask(sorted(among))
        return sorted(among, key=lambda one: (self.cost(one), one))[:POPULATION_SIZE]

    def _add(self, more: list[Levels]) -> None:
        """Add what its bound does not rule out, and keep the best."""
        full, worst = len(self.kept) >= POPULATION_SIZE, self.cost(self.kept[-1])
        good = {one for one in more if not full or self.search.measure.bound(one) < worst}
        self.kept = self._least({*self.kept, *good})

    def _drawn(self) -> list[Levels]:
        return [tuple(self.draw.choice(levels) for levels in self.levels) for _ in range(POPULATION_SIZE)]

    def _near(self, best: Levels) -> set[Levels]:
        near = set()
        for _ in range(POPULATION_SIZE):
            one = list(best)
            for i in self.draw.sample(range(len(one)), min(REDRAWN, len(one))):
                one[i] = self.draw.choice(self.levels[i])
            near.add(tuple(one))
        return near

    def _child(self) -> Levels:
        one, other = self.draw.choice(self.kept[:BEST]), self.draw.choice(self.kept)
        child = [self.draw.choice(both) for both in zip(one, other, strict=True)]
        for i, levels in enumerate(self.levels):
            if self.draw.random() < MOVES / len(child):
                place = levels.index(child[i]) + self.draw.choice((-1, 1))
                child[i] = levels[min(max(place, 0), len(levels) - 1)]
        return tuple(child)
