"""Strategy ``k_minimal``: all k-minimal generalizations, and the preferred among them.

A generalization is k-minimal when it satisfies the policy and no strictly lower one does.

Source: P. Samarati, L. Sweeney, "Protecting privacy when disclosing information" (1998), definition of
k-minimal generalization with suppression, and section on preferences.
"""

from __future__ import annotations

from collections import deque

from sqlanon.queries.candidate import Levels
from sqlanon.search.lattice import Outcome, Search


def k_minimal(search: Search) -> Outcome:
    """Find all k-minimal generalizations; choose by the measure.

    Walks the violating ones, lowest first: a satisfying one that is met this way, and has no satisfying one below
    it, is minimal. What lies above it is never looked at.
    """
    lattice = search.lattice
    if not search.ask(lattice.top):
        return Outcome(None, optimal=False, minimal=())
    waiting = deque([lattice.bottom])
    minimal: list[Levels] = []
    while waiting:
        levels = waiting.popleft()
        search.open = len(waiting)
        search.bounds[levels] = search.measure.bound(levels)
        if search.status(levels) is None:
            search.climb(_path(search, levels))
        if not search.status(levels):
            waiting.extend(lattice.children(levels))
        elif not any(search.status(below) for below in lattice.predecessors(levels)):
            minimal.append(levels)
    for levels in minimal:
        search.ask(levels)
    return Outcome(search.preferred(minimal), optimal=False, minimal=tuple(sorted(minimal)))


def _path(search: Search, start: Levels) -> list[Levels]:
    """An ascending path of open generalizations, lowest attributes first."""
    path = [start]
    while up := next((up for up in search.lattice.successors(path[-1]) if search.status(up) is None), None):
        path.append(up)
    return path
