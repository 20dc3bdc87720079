"""Strategy ``optimal``: the best generalization of all that satisfy the policy, with a proof.

Best-first over the lattice, which is never laid out: open generalizations wait by a lower bound on their
score. The least one starts an ascending path of open ones that may still be better than the best; its end is
checked first, then the border between what cannot satisfy and what may is found on it by binary search. Each check
decides everything above, or below. Where the requirements are monotone under suppression, what may satisfy does; else
each is checked by itself. The search ends when no bound is at or below the best score; a bound that ties with it is
decided by the tie rule.
"""

from __future__ import annotations

import heapq
import math

from sqlanon.quality import Suppression
from sqlanon.queries.classes import Levels
from sqlanon.search.lattice import Outcome, Search


def optimal(search: Search) -> Outcome:
    """Find the optimum.

    Parameters
    ----------
    search:
        The task; its memory is filled.
    """
    if not search.ask(search.lattice.top):
        return Outcome(None, optimal=True)
    return _BestFirst(search).run()


class _BestFirst:
    def __init__(self, search: Search) -> None:
        self.search = search
        self.heap: list[tuple[float, int, Levels]] = []

    def run(self) -> Outcome:
        search = self.search
        self._push(search.lattice.bottom, -math.inf)
        while self.heap:
            bound, height, levels = heapq.heappop(self.heap)
            search.open = len(self.heap)
            raised = self._bound(levels)
            if raised > bound:
                heapq.heappush(self.heap, (raised, height, levels))
                continue
            if self._hopeless(bound, levels):
                continue
            self._decide(levels)
            for child in search.lattice.children(levels):
                self._push(child, search.bounds[levels])
        return Outcome(search.best, optimal=True)

    def _push(self, levels: Levels, inherited: float) -> None:
        bound = self.search.bounds[levels] = max(inherited, self.search.measure.bound(levels))
        if not self._hopeless(bound, levels):
            heapq.heappush(self.heap, (bound, sum(levels), levels))

    def _bound(self, levels: Levels) -> float:
        """The best bound known: its own, and those of everything below it."""
        search = self.search
        bound = search.bounds[levels]
        for below in search.lattice.predecessors(levels):
            bound = max(bound, search.bounds.get(below, bound))
        search.bounds[levels] = bound
        return bound

    def _hopeless(self, bound: float, levels: Levels) -> bool:
        """Whether neither this generalization nor anything above it can be preferred to the best."""
        best = self.search.best
        return best is not None and not self.search.precedes(bound, levels, best)

    def _decide(self, levels: Levels) -> None:
        search = self.search
        self._tighten()
        if search.may(levels) is None:
            path = self._path(levels)
            # Near the end of a search most of what may still be better violates: ask the end of the path first.
            # If it is hopeless, so is all of it.
            if search.ask(path[-1]):
                search.climb(path[:-1])
        if search.may(levels):
            search.ask(levels)
        if levels in search.figures:
            after = search.measure.after(search.figures[levels])
            search.bounds[levels] = max(search.bounds[levels], after)

    def _tighten(self) -> None:
        """By the measure `suppression`, what suppresses more rows than the best is of no use: a tighter limit."""
        search = self.search
        if search.best is not None and isinstance(search.measure, Suppression):
            search.tighten(search.figures[search.best].suppressed_rows)

    def _path(self, start: Levels) -> list[Levels]:
        """An ascending path of open generalizations that may still be the best, each the successor with the least
        bound."""
        search, path = self.search, [start]
        while True:
            successors = []
            for up in search.lattice.successors(path[-1]):
                bound = search.measure.bound(up)
                if search.may(up) is None and not self._hopeless(bound, up):
                    successors.append((bound, up))
            if not successors:
                return path
            path.append(min(successors)[1])
