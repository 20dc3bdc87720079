"""Strategy ``ola``, Optimal Lattice Anonymization: all k-minimal generalizations by binary search, and the best one.

A sublattice has all generalizations between two; the upper one meets the policy. Each one at half its height is
checked: if it is feasible, the search continues in the sublattice below it, else in the one above it. Checks tag
others: nothing above a feasible generalization is k-minimal, and nothing below an infeasible one is feasible. With
requirements that are not monotone under suppression, the figures may prove neither; then both sublattices are searched.

Source: K. El Emam, F. K. Dankar, R. Issa, E. Jonker, et al., "A globally optimal k-anonymity method for the
de-identification of health data" (2009), figure 5 and the section on predictive tagging.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlanon.strategies.lattice.limits import LimitReachedError
from sqlanon.strategies.lattice.outcome import Outcome, PredictiveTags, conclude
from sqlanon.strategies.lattice.search import LatticeSearch
from sqlanon.strategies.lattice.task import lattice_strategy
from sqlanon.support.coding import Levels


def ola(search: LatticeSearch) -> Outcome:
    """Find all k-minimal generalizations; choose the best of them by the measure."""
    stopped = ""
    try:
        if search.check(search.lattice.top):
            _Bisection(search).split(search.lattice.bottom, search.lattice.top)
    except LimitReachedError as limit:
        stopped = str(limit)
    return conclude(search, stopped, only_minimal=True)


class _Bisection:
    def __init__(self, search: LatticeSearch) -> None:
        self.search = search
        self.tags = PredictiveTags(search)
        self.searched: set[tuple[Levels, Levels]] = set()

    def split(self, low: Levels, high: Levels) -> None:
        """Check every k-minimal generalization between two."""
        tags = self.tags
        if (low, high) in self.searched or tags.has_feasible_below(low) or tags.is_infeasible(high):
            return
        self.searched.add((low, high))
        height = sum(high) - sum(low)
        if height <= 1:
            self.search.visit(low, high)
            if not (tags.is_open(low) and tags.check(low)) and tags.is_open(high):
                tags.check(high)
            return
        for node in _at_height(low, high, height // 2):
            self.search.visit(node)
            if tags.is_open(node):
                tags.check(node)
            if not tags.is_infeasible(node):
                self.split(low, node)
            if not tags.has_feasible_below(node):
                self.split(node, high)


def _at_height(low: Levels, high: Levels, height: int) -> Iterator[Levels]:
    """All generalizations between two that are ``height`` steps above the lower, in lexicographic order.

    >>> list(_at_height((0, 0), (1, 2), 2))
    [(0, 2), (1, 1)]
    """
    if not low:
        yield from [()] if height == 0 else []
        return
    max_height_of_others = sum(high[1:]) - sum(low[1:])
    for step in range(max(0, height - max_height_of_others), min(high[0] - low[0], height) + 1):
        for levels in _at_height(low[1:], high[1:], height - step):
            yield (low[0] + step, *levels)


run = lattice_strategy(ola)
