"""Strategy ``flash``: binary searches on paths through the lattice.

A path climbs from the lowest open generalization through others that are open. A binary search finds where it begins to
meet the policy; infeasible generalizations on it wait in a heap, and the next paths start from their open successors.
Every check tags all generalizations above, or all below, so all k-minimal generalizations are checked.

The criteria of the order are height, then mean level over height, then mean share of the leaves under a value (the
paper has the share of distinct values, to the same end).

Source: F. Kohlmayer, F. Prasser, C. Eckert, A. Kemper, K. A. Kuhn, "Flash: efficient, stable and optimal k-anonymity"
(2012), algorithms 1 to 3.
"""

from __future__ import annotations

import heapq
from itertools import pairwise

from sqlanon.strategies.lattice.lattice import Box, BoxQueue
from sqlanon.strategies.lattice.limits import LimitReachedError
from sqlanon.strategies.lattice.outcome import Outcome, PredictiveTags, conclude
from sqlanon.strategies.lattice.search import LatticeSearch
from sqlanon.strategies.lattice.task import lattice_strategy
from sqlanon.support.coding import Levels

LEAF_SHARE_WEIGHT = 1e-6
"""Weight of the share of leaves, which only breaks ties of the mean level."""


def flash(search: LatticeSearch) -> Outcome:
    """Classify the whole lattice by paths; choose the best checked generalization by the measure."""
    stopped = ""
    try:
        if search.check(search.lattice.top):
            _Paths(search).run()
    except LimitReachedError as limit:
        stopped = str(limit)
    return conclude(search, stopped, only_minimal=False)


class _Paths:
    def __init__(self, search: LatticeSearch) -> None:
        self.search = search
        self.tags = PredictiveTags(search)
        self.queue = BoxQueue()
        self.terms = _tie_breakers(search)
        self.prices = [[upper - lower for lower, upper in pairwise(terms)] for terms in self.terms]

    def run(self) -> None:
        self._add_box(self.search.lattice.bottom, self.search.lattice.top)
        while len(self.queue):
            self._decide(self.queue.pop())

    def _add_box(self, low: Levels, high: Levels) -> None:
        if not self.tags.has_feasible_below(low):
            self.queue.add(Box(self._criteria(low), sum(low), low, high))

    def _criteria(self, levels: Levels) -> float:
        """Height first; the other criteria add up to less than one step of it."""
        terms = [terms[level] for terms, level in zip(self.terms, levels, strict=True)]
        return sum(levels) + sum(terms) / (2 * len(levels))

    def _decide(self, box: Box) -> None:
        """Decide the low end of a box, and queue the other parts of it."""
        search, tags = self.search, self.tags
        search.open_count = len(self.queue)
        search.visit(box.low)
        while tags.is_open(box.low):
            self._check_paths(box.low)
        if tags.has_feasible_below(box.low):
            return
        for low, high in search.split_box(box, search.find_pruned_top(box) or box.low):
            self._add_box(low, high)

    def _check_paths(self, start: Levels) -> None:
        """Check paths from an open generalization, and from open successors of infeasible ones."""
        heap: list[tuple[float, Levels]] = []
        self._bisect(start, heap)
        while heap:
            _, levels = heapq.heappop(heap)
            successors = self.search.lattice.successors(levels)
            for successor in sorted(successors, key=lambda levels: (self._criteria(levels), levels)):
                if self.tags.is_open(successor):
                    self._bisect(successor, heap)

    def _bisect(self, start: Levels, heap: list[tuple[float, Levels]]) -> None:
        """Find where a path from an open generalization begins to meet the policy."""
        path = [start, *self.search.lattice.ascend(start, lambda i, level: self.prices[i][level], self.tags.is_open)]
        low, high = 0, len(path)
        while low < high:
            middle = (low + high - 1) // 2
            levels = path[middle]
            self.search.visit(levels)
            if self.tags.check(levels):
                high = middle
            else:
                heapq.heappush(heap, (self._criteria(levels), levels))
                low = middle + 1


def _tie_breakers(search: LatticeSearch) -> list[list[float]]:
    """The terms of the criteria after the height, by attribute and level."""
    marginals = search.measure.marginals
    return [
        [
            level / max(height, 1) + LEAF_SHARE_WEIGHT * leaf_sum / (marginals.rows * max(leaves - 1, 1))
            for level, leaf_sum in enumerate(leaf_sums)
        ]
        for height, leaves, leaf_sums in zip(marginals.heights, marginals.leaves, marginals.leaf_sums, strict=True)
    ]


run = lattice_strategy(flash)
