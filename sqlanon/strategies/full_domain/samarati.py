"""Strategy ``samarati``: the k-minimal generalizations by distance vectors, and the preferred among them.

An outlier that is kept shares its class with other combinations, and the generalization is at or above its vectors to
all of them. So the paper looks among the vectors only: it lays them out as a directed acyclic graph, follows each path
upward to the first generalization that satisfies (a *local minimal* one), and never visits one twice. The k-minimal
ones are those local minimal ones that are above no other.

The theorem that this rests on (a k-minimal generalization is the vector of an outlier and some combination) does not
hold in general. Of {(a1, b1), (a2, b1), (c1, d1), (c1, d2)}, where a1 and a2 are siblings, as are d1 and d2, and all
else meets at the top, the vectors are (1, 0), (0, 1) and (2, 2); with k = 2 the minimal generalization is (1, 1). It is
a join of vectors; and where nothing is to be done, the lowest generalization is minimal. So the graph here has the
lowest generalization and all joins, too: with it nothing is missed, as far as `Data.joins_suffice` says.

A path has to go through all that is in the graph below the border of what satisfies: for a large lattice, `k_minimal`
finds the same with fewer checks.

Source: P. Samarati, L. Sweeney, "Protecting privacy when disclosing information" (1998), section on computing a
preferred generalization.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from sqlanon.strategies.lattice.lattice import Dominance
from sqlanon.strategies.lattice.limits import LimitReachedError
from sqlanon.strategies.lattice.outcome import Outcome, conclude
from sqlanon.strategies.lattice.search import LatticeSearch
from sqlanon.strategies.lattice.task import lattice_strategy
from sqlanon.support.coding import Levels


def samarati(search: LatticeSearch) -> Outcome:
    """Find the k-minimal generalizations among joins of distance vectors; choose by the measure.

    Where joins do not suffice, more generalizations may be k-minimal: then only those are told of that are certain to
    be, and nothing is proven of the best.
    """
    if not search.check(search.lattice.top):
        return Outcome(None, optimal=False, minimal=())
    try:
        _Paths(search).follow()
    except LimitReachedError as reached:
        return conclude(search, str(reached), only_minimal=True)
    if search.source_facts.joins_suffice:
        return conclude(search, "", only_minimal=True)
    return replace(conclude(search, "for want of proof", only_minimal=True), stopped="", exhaustive=False)


class _Paths:
    def __init__(self, search: LatticeSearch) -> None:
        self.search = search
        self.start = search.lattice.lift(search.lattice.bottom)
        self.local = Dominance(search.lattice.top)

    def _vectors(self) -> set[Levels]:
        """The vectors, each as the lowest generalization that a release may have at or above it; or fewer of them, if
        all others are joins of these."""
        search, lattice, start = self.search, self.search.lattice, self.start
        alone = {(*start[:i], level, *start[i + 1 :]) for i in range(len(start)) for level in lattice.levels(i)}
        found: set[Levels] = set()
        with search.in_time():
            for part in search.source_facts.vectors():
                found.update(map(lattice.lift, part))
                search.visit()
                if found >= alone - {start}:
                    return alone
        return found

    def follow(self) -> None:
        """Follow all paths upward from the lowest generalization."""
        search = self.search
        vectors = irreducible(self._vectors(), self.start, search.lattice.top, search.visit)
        waiting, visited = [self.start], {self.start}
        while waiting:
            search.open_count = len(waiting)
            levels = waiting.pop()
            search.visit(levels)
            if self.local.has_below(levels):
                continue
            if search.can_satisfy(levels) is not False and search.satisfies(levels):
                self.local.add(levels)
                continue
            for up in reversed(self._next(levels, vectors)):
                if up not in visited:
                    visited.add(up)
                    waiting.append(up)

    def _next(self, levels: Levels, vectors: list[Levels]) -> list[Levels]:
        """What comes next above a generalization in the graph."""
        joins = {tuple(map(max, levels, vector)) for vector in vectors} - {levels}
        least, found = Dominance(self.search.lattice.top), []
        for join in sorted(joins, key=lambda one: (sum(one), one)):
            self.search.visit()
            if not least.has_below(join):
                least.add(join)
                found.append(join)
        return found


def irreducible(
    vectors: Iterable[Levels], bottom: Levels, top: Levels, look: Callable[[], None] = lambda: None
) -> list[Levels]:
    """Those vectors that are no joins of others: they have the same joins.

    >>> irreducible([(1, 1), (0, 1), (1, 0), (2, 2), (0, 0)], (0, 0), (2, 2))
    [(0, 1), (1, 0), (2, 2)]
    """
    found, seen = [], Dominance(top)
    for vector in sorted(vectors, key=lambda one: (sum(one), one)):
        look()
        join = bottom
        for lower in seen.below(vector):
            join = tuple(map(max, join, lower))
            if join == vector:
                break
        if join != vector:
            found.append(vector)
            seen.add(vector)
    return found


run = lattice_strategy(samarati)
