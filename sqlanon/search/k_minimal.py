"""Strategy ``k_minimal``: all k-minimal generalizations, and the preferred among them.

A generalization is k-minimal when it satisfies the policy and no strictly lower one does.

Source: P. Samarati, L. Sweeney, "Protecting privacy when disclosing information" (1998), definition of
k-minimal generalization with suppression, and section on preferences.
"""

from __future__ import annotations

from collections import deque

from sqlanon.queries.classes import Levels
from sqlanon.search.border import Dominance
from sqlanon.search.lattice import Outcome, Search


def k_minimal(search: Search) -> Outcome:
    """Find all k-minimal generalizations; choose by the measure.

    Walks those that do not satisfy, lowest first: a satisfying one that is met this way, and has no k-minimal one below
    it, is k-minimal. What lies above it is never looked at.
    """
    lattice = search.lattice
    if not search.ask(lattice.top):
        return Outcome(None, optimal=False, minimal=())
    waiting = deque([lattice.bottom])
    minimal: list[Levels] = []
    found = Dominance(lattice.top)
    while waiting:
        levels = waiting.popleft()
        search.open = len(waiting)
        search.bounds[levels] = search.measure.bound(levels)
        if search.may(levels) is None:
            search.climb(_path(search, levels))
        if search.may(levels):
            if found.has_below(levels):
                continue
            if search.satisfies(levels):
                minimal.append(levels)
                found.add(levels)
                continue
        waiting.extend(lattice.children(levels))
    return Outcome(search.preferred(minimal), optimal=False, minimal=tuple(sorted(minimal)))


def _path(search: Search, start: Levels) -> list[Levels]:
    """An ascending path of generalizations of which nothing is told, lowest attributes first."""
    path = [start]
    while up := next((up for up in search.lattice.successors(path[-1]) if search.may(up) is None), None):
        path.append(up)
    return path
