"""A genetic search for good generalizations in a large lattice, after the dive and alternating with the proof.

A dive ends where no one or two steps improve. Better generalizations lie further off, and combine levels of several
good ones. The random numbers are the same on every run, and so is the result, unless a limit ends the search.
"""

from __future__ import annotations

import random

from sqlanon.strategies.lattice.dive import PenalizedCost
from sqlanon.strategies.lattice.search import TOLERANCE, LatticeSearch
from sqlanon.support.coding import Levels

POPULATION_SIZE, BEST = 20, 10
"""Size of a population; each child has one parent from its best members and another from all."""

MUTATIONS = 1.5
"""Mean number of levels by which a child is moved up or down."""

PATIENCE = 15
"""Generations without improvement until the population is drawn anew near the best generalization."""

REDRAWN = 6
"""Levels of the best generalization that are drawn anew for each member. Wholly random populations end worse."""


class GeneticSearch:
    """A population of generalizations, at first the best checked one and random ones."""

    def __init__(self, search: LatticeSearch, cost: PenalizedCost) -> None:
        self.search, self.cost = search, cost
        self.levels = [search.lattice.levels(i) for i in range(len(search.lattice.top))]
        self.random = random.Random(0)
        permitted = filter(search.lattice.permits, list(search.figures))
        self.population = self._select({min(permitted, key=lambda levels: (cost(levels), levels)), *self._draw()})
        self.generations_without_gain = 0
        self.restarts = 0
        """Restarts since the best generalization of the search was found."""

    def run_generation(self) -> None:
        """Run one generation: at most `POPULATION_SIZE` checks."""
        best_score, least_cost = self._best_score(), self.cost(self.population[0])
        if self.generations_without_gain >= PATIENCE:
            self.generations_without_gain, self.restarts = 0, self.restarts + 1
            self.population = self._select(self._draw_near(self.search.best or self.population[0]))
        else:
            self._add([self._breed_child() for _ in range(POPULATION_SIZE)])
        has_improved = self.cost(self.population[0]) < least_cost - TOLERANCE * abs(least_cost)
        self.generations_without_gain = 0 if has_improved else self.generations_without_gain + 1
        if self._best_score() < best_score:
            self.restarts = 0

    def _best_score(self) -> float:
        best = self.search.best
        return float("inf") if best is None else self.search.scores[best]

    def _select(self, members: set[Levels]) -> list[Levels]:
        """The members of least cost."""
        self.cost.check_all(sorted(members))
        return sorted(members, key=lambda levels: (self.cost(levels), levels))[:POPULATION_SIZE]

    def _add(self, children: list[Levels]) -> None:
        """Add children unless their bounds exclude them, and keep the best members."""
        is_full, worst = len(self.population) >= POPULATION_SIZE, self.cost(self.population[-1])
        viable = {child for child in children if not is_full or self.search.measure.bound(child) < worst}
        self.population = self._select({*self.population, *viable})

    def _draw(self) -> list[Levels]:
        return [tuple(self.random.choice(levels) for levels in self.levels) for _ in range(POPULATION_SIZE)]

    def _draw_near(self, best: Levels) -> set[Levels]:
        neighbours = set()
        for _ in range(POPULATION_SIZE):
            neighbour = list(best)
            for i in self.random.sample(range(len(best)), min(REDRAWN, len(best))):
                neighbour[i] = self.random.choice(self.levels[i])
            neighbours.add(tuple(neighbour))
        return neighbours

    def _breed_child(self) -> Levels:
        parents = self.random.choice(self.population[:BEST]), self.random.choice(self.population)
        child = [self.random.choice(pair) for pair in zip(*parents, strict=True)]
        for i, levels in enumerate(self.levels):
            if self.random.random() < MUTATIONS / len(child):
                position = levels.index(child[i]) + self.random.choice((-1, 1))
                child[i] = levels[min(max(position, 0), len(levels) - 1)]
        return tuple(child)
