"""A strategy in one file outside the package: down from the top, for as long as the policy is met."""

from __future__ import annotations

from sqlanon.policy.strategies import Traits
from sqlanon.search import Outcome, Search
from sqlanon.search.full_domain import on_lattice


def descend(search: Search) -> Outcome:
    """Step down by one attribute at a time, each as far as it goes."""
    levels = search.lattice.top
    if not search.satisfies(levels):
        return Outcome(None, optimal=False)
    for i, bottom in enumerate(search.lattice.bottom):
        while levels[i] > bottom:
            lower = (*levels[:i], levels[i] - 1, *levels[i + 1 :])
            if not search.satisfies(lower):
                break
            levels = lower
    return Outcome(levels, optimal=False, bound=search.measure.bound(search.lattice.bottom))


class Descent:
    """It ends at a generalization below which no single step is possible."""

    name = "descent"
    finds = "one below which no single step is possible"
    traits = Traits()
    run = staticmethod(on_lattice(descend))
