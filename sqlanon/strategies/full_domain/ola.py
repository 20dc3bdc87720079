"""Strategy ``ola``, Optimal Lattice Anonymization: all k-minimal generalizations by binary search, and the best one.

A sublattice is all between two generalizations, the upper of which satisfies the policy. Each generalization at half
its height is looked at: if it satisfies, the search goes on in the sublattice below it, else in the one above it. What
was checked tags others: above what satisfies nothing is k-minimal, below what does not nothing satisfies. A sublattice
of two ends the way.

Where it differs from ``optimal``: it chooses among the k-minimal generalizations alone. Where rows may be suppressed, a
higher generalization that suppresses fewer of them can score less than every k-minimal one. It is told whether that is
ruled out: always without suppression, for then every measure rises along the lattice.

Where the requirements are not monotone under suppression, one that does not satisfy rules out nothing below it, unless
its figures do: then both its sublattices are searched.

Source: K. El Emam, F. K. Dankar, R. Issa, E. Jonker, et al., "A globally optimal k-anonymity method for the
de-identification of health data" (JAMIA 16(5), 2009), figure 5 (the algorithm) and its section on predictive tagging.
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
    except LimitReachedError as reached:
        stopped = str(reached)
    return conclude(search, stopped, only_minimal=True)


class _Bisection:
    def __init__(self, search: LatticeSearch) -> None:
        self.search = search
        self.tags = PredictiveTags(search)
        self.seen: set[tuple[Levels, Levels]] = set()

    def split(self, low: Levels, high: Levels) -> None:
        """Check every k-minimal generalization between two."""
        tags = self.tags
        if (low, high) in self.seen or tags.is_good(low) or tags.is_bad(high):
            return
        self.seen.add((low, high))
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
            if not tags.is_bad(node):
                self.split(low, node)
            if not tags.is_good(node):
                self.split(node, high)


def _at_height(low: Levels, high: Levels, height: int) -> Iterator[Levels]:
    """All generalizations between two that are so many steps above the lower, in lexicographic order.

    >>> list(_at_height((0, 0), (1, 2), 2))
    [(0, 2), (1, 1)]
    """
    if not low:
        yield from [()] if height == 0 else []
        return
    room = sum(high[1:]) - sum(low[1:])
    for step in range(max(0, height - room), min(high[0] - low[0], height) + 1):
        for rest in _at_height(low[1:], high[1:], height - step):
            yield (low[0] + step, *rest)


run = lattice_strategy(ola)
