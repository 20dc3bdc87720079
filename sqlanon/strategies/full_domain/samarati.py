"""Strategy ``samarati``: the k-minimal generalizations by distance vectors, and the preferred one.

A kept outlier shares its class with other combinations, so the generalization is at or above its vectors to all of
them. The paper therefore arranges the vectors as a directed acyclic graph, and follows each path upward to the first
generalization that meets the policy (a *local minimal* one). Its theorem does not hold in general: a k-minimal
generalization may be a join of vectors, or the lowest generalization (docs/reference/strategies.md has an example). The
graph here also has these, which misses none if `SourceFacts.joins_suffice`.

Source: P. Samarati, L. Sweeney, "Protecting privacy when disclosing information" (1998), section on computing a
preferred generalization.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from sqlanon.strategies.lattice.lattice import DominanceIndex
from sqlanon.strategies.lattice.limits import LimitReachedError
from sqlanon.strategies.lattice.outcome import Outcome, conclude
from sqlanon.strategies.lattice.search import LatticeSearch
from sqlanon.strategies.lattice.task import lattice_strategy
from sqlanon.support.coding import Levels


def samarati(search: LatticeSearch) -> Outcome:
    """Find the k-minimal generalizations among joins of distance vectors; choose by the measure.

    If joins do not suffice, more generalizations may be k-minimal: the outcome then has only those that certainly are,
    and no proof of the best.
    """
    if not search.check(search.lattice.top):
        return Outcome(None, optimal=False, minimal=())
    try:
        _Paths(search).follow()
    except LimitReachedError as limit:
        return conclude(search, str(limit), only_minimal=True)
    if search.source_facts.joins_suffice:
        return conclude(search, "", only_minimal=True)
    return replace(conclude(search, "joins do not suffice", only_minimal=True), stopped="", exhaustive=False)


class _Paths:
    def __init__(self, search: LatticeSearch) -> None:
        self.search = search
        self.start = search.lattice.lift(search.lattice.bottom)
        self.local_minimal = DominanceIndex(search.lattice.top)

    def _find_vectors(self) -> set[Levels]:
        """The vectors, each lifted to the lowest permitted generalization at or above it; or those with one attribute,
        if all others are joins of them."""
        search, lattice, start = self.search, self.search.lattice, self.start
        single = {(*start[:i], level, *start[i + 1 :]) for i in range(len(start)) for level in lattice.levels(i)}
        vectors: set[Levels] = set()
        with search.in_time():
            for part in search.source_facts.vectors():
                vectors.update(map(lattice.lift, part))
                search.visit()
                if vectors >= single - {start}:
                    return single
        return vectors

    def follow(self) -> None:
        """Follow all paths upward from the lowest generalization."""
        search = self.search
        vectors = irreducible(self._find_vectors(), self.start, search.lattice.top, search.visit)
        waiting, visited = [self.start], {self.start}
        while waiting:
            search.open_count = len(waiting)
            levels = waiting.pop()
            search.visit(levels)
            if self.local_minimal.has_below(levels):
                continue
            if search.can_be_feasible(levels) is not False and search.is_feasible(levels):
                self.local_minimal.add(levels)
                continue
            for successor in reversed(self._successors(levels, vectors)):
                if successor not in visited:
                    visited.add(successor)
                    waiting.append(successor)

    def _successors(self, levels: Levels, vectors: list[Levels]) -> list[Levels]:
        """The direct successors of a generalization in the graph."""
        joins = {tuple(map(max, levels, vector)) for vector in vectors} - {levels}
        index, successors = DominanceIndex(self.search.lattice.top), []
        for join in sorted(joins, key=lambda join: (sum(join), join)):
            self.search.visit()
            if not index.has_below(join):
                index.add(join)
                successors.append(join)
        return successors


def irreducible(
    vectors: Iterable[Levels], bottom: Levels, top: Levels, visit: Callable[[], None] = lambda: None
) -> list[Levels]:
    """The vectors that are not joins of others; they have the same joins.

    >>> irreducible([(1, 1), (0, 1), (1, 0), (2, 2), (0, 0)], (0, 0), (2, 2))
    [(0, 1), (1, 0), (2, 2)]
    """
    generators, index = [], DominanceIndex(top)
    for vector in sorted(vectors, key=lambda vector: (sum(vector), vector)):
        visit()
        join = bottom
        for lower in index.below(vector):
            join = tuple(map(max, join, lower))
            if join == vector:
                break
        if join != vector:
            generators.append(vector)
            index.add(vector)
    return generators


run = lattice_strategy(samarati)
