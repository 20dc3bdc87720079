"""Strategy ``datafly``: greedy steps up, each for the attribute with the most distinct values, divided by its weight.

The paper ends when at most k rows are outliers. Here the search ends when the policy, with its suppression limit, is
met. No step is taken back, so the result need not be k-minimal.

Source: L. Sweeney, "Guaranteeing anonymity when sharing medical data, the Datafly system" (1997).
"""

from __future__ import annotations

from sqlanon.strategies.lattice.limits import LimitReachedError
from sqlanon.strategies.lattice.outcome import Outcome, prove_best
from sqlanon.strategies.lattice.search import LatticeSearch
from sqlanon.strategies.lattice.task import lattice_strategy


def datafly(search: LatticeSearch) -> Outcome:
    """Generalize the attribute with the most distinct values until the policy is met.

    Values are counted over all rows at the attribute's current level, and divided by its weight. Ties go to the first
    attribute in the policy's order. If a limit ends the search, the top remains.
    """
    lattice, stopped = search.lattice, ""
    if not search.check(lattice.top):
        return Outcome(None, optimal=False)
    with search.in_time():
        value_counts = search.source_facts.distinct_values()
    weights = [weight or 1 for weight in search.measure.weights]  # marks of earlier releases have weight 0
    levels = lattice.lift(lattice.bottom)
    try:
        while not search.is_feasible(levels) and levels != lattice.top:
            below_top = [i for i, (level, top) in enumerate(zip(levels, lattice.top, strict=True)) if level < top]
            most_distinct = max(below_top, key=lambda i: value_counts[i][levels[i]] / weights[i])
            levels = lattice.lift((*levels[:most_distinct], levels[most_distinct] + 1, *levels[most_distinct + 1 :]))
    except LimitReachedError as limit:
        stopped = str(limit)
    best = search.best if stopped else levels
    if best not in search.scores:
        return Outcome(None, optimal=False, stopped=stopped, exhaustive=False)
    optimal, bound = prove_best(search, best, {lattice.bottom: search.measure.bound(lattice.bottom)})
    return Outcome(best, optimal and not stopped, bound, stopped=stopped)


run = lattice_strategy(datafly)
