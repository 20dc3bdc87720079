"""Strategy ``datafly``: one step up after the other, each for the attribute with the most distinct values. Greedy.

The weights of a policy decide, too, which attribute is next: the one with the most values for its weight. So an
attribute of twice the weight is generalized as one with half its values would be. The paper has weights by which the
data holder prefers some attributes to others, and gives no formula.

The paper ends when at most k rows are outliers, and suppresses these; it assumes that so many may be suppressed. Here
it ends when what would be suppressed is within the policy's limit, and the policy is met. Nothing is taken back: the
result need not be k-minimal, and its score may be far from the best.

Source: L. Sweeney, "Guaranteeing anonymity when sharing medical data, the Datafly system" (1997), and "Achieving
k-anonymity privacy protection using generalization and suppression" (2002), section on Datafly.
"""

from __future__ import annotations

from sqlanon.strategies.lattice.limits import LimitReachedError
from sqlanon.strategies.lattice.outcome import Outcome, prove_best
from sqlanon.strategies.lattice.search import LatticeSearch
from sqlanon.strategies.lattice.task import lattice_strategy


def datafly(search: LatticeSearch) -> Outcome:
    """Generalize the attribute with the most distinct values until the policy is met.

    Values are counted over all rows, at the attribute's level so far, and divided by the attribute's weight. Of
    attributes that have equally many, the first in the policy's order is generalized; one at its highest allowed level
    never is. If the search is stopped on the way, what is left is the top.
    """
    lattice, stopped = search.lattice, ""
    if not search.check(lattice.top):
        return Outcome(None, optimal=False)
    with search.in_time():
        values = search.source_facts.distinct_values()
    weights = [weight or 1 for weight in search.measure.weights]  # the marks of earlier releases have weight 0
    levels = lattice.lift(lattice.bottom)
    try:
        while not search.satisfies(levels) and levels != lattice.top:
            open_ = [i for i, (level, top) in enumerate(zip(levels, lattice.top, strict=True)) if level < top]
            most = max(open_, key=lambda i: values[i][levels[i]] / weights[i])
            levels = lattice.lift((*levels[:most], levels[most] + 1, *levels[most + 1 :]))
    except LimitReachedError as reached:
        stopped = str(reached)
    best = search.best if stopped else levels
    if best not in search.scores:
        return Outcome(None, optimal=False, stopped=stopped, exhaustive=False)
    optimal, bound = prove_best(search, best, {lattice.bottom: search.measure.bound(lattice.bottom)})
    return Outcome(best, optimal and not stopped, bound, stopped=stopped)


run = lattice_strategy(datafly)
