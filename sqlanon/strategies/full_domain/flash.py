"""Strategy ``flash``: paths up the lattice, a binary search on each.

From the lowest generalization of which nothing is known a path climbs, by the criteria, through others of which nothing
is known, as far as it goes. A binary search finds where it begins to satisfy the policy. What does not satisfy waits on
a heap, the least by the criteria first: from its open successors the next paths start. Every check tags all above it,
or all below it. So all k-minimal generalizations are checked on the way.

The criteria are height, then mean level over height, then mean share of the leaves under a value (the paper has the
share of distinct values, which is to the same end).

The choice is the best of all that were checked. As with ``ola``, that is proven to be the best of all where a measure
rises along the lattice, as every measure does where nothing may be suppressed; else a higher generalization, which was
tagged and not checked, can score less. Where the requirements are not monotone under suppression, what does not satisfy
tags those below it only if its figures rule them out.

Source: F. Kohlmayer, F. Prasser, C. Eckert, A. Kemper, K. A. Kuhn, "Flash: efficient, stable and optimal k-anonymity"
(PASSAT 2012), algorithms 1 to 3.
"""

from __future__ import annotations

import heapq
from itertools import pairwise

from sqlanon.strategies.lattice.lattice import Box, Boxes
from sqlanon.strategies.lattice.limits import LimitReachedError
from sqlanon.strategies.lattice.outcome import Outcome, PredictiveTags, conclude
from sqlanon.strategies.lattice.search import LatticeSearch
from sqlanon.strategies.lattice.task import lattice_strategy
from sqlanon.support.coding import Levels

LAST = 1e-6
"""The weight of the last criterion: it only breaks ties of the one before."""


def flash(search: LatticeSearch) -> Outcome:
    """Classify the whole lattice by paths; choose the best by the measure of all that were checked."""
    stopped = ""
    try:
        if search.check(search.lattice.top):
            _Paths(search).run()
    except LimitReachedError as reached:
        stopped = str(reached)
    return conclude(search, stopped, only_minimal=False)


class _Paths:
    def __init__(self, search: LatticeSearch) -> None:
        self.search = search
        self.tags = PredictiveTags(search)
        self.boxes = Boxes()
        self.terms = _terms(search)
        self.steps = [[upper - lower for lower, upper in pairwise(row)] for row in self.terms]

    def run(self) -> None:
        """Start from the lowest open generalization, until none is open."""
        self._wait(self.search.lattice.bottom, self.search.lattice.top)
        while len(self.boxes):
            self._work(self.boxes.next())

    def _wait(self, low: Levels, high: Levels) -> None:
        if not self.tags.is_good(low):
            self.boxes.add(Box(self._criteria(low), sum(low), low, high))

    def _criteria(self, levels: Levels) -> float:
        """Height first: the others together make less than one step of it."""
        terms = [row[level] for row, level in zip(self.terms, levels, strict=True)]
        return sum(levels) + sum(terms) / (2 * len(levels))

    def _work(self, box: Box) -> None:
        """Decide the low end of a box; let the rest of it wait."""
        search, tags = self.search, self.tags
        search.open_count = len(self.boxes)
        search.visit(box.low)
        while tags.is_open(box.low):
            self._spread(box.low)
        if tags.is_good(box.low):
            return
        for low, high in search.split_box(box, search.find_pruned_top(box) or box.low):
            self._wait(low, high)

    def _spread(self, start: Levels) -> None:
        """Check paths from an open generalization, and from the open successors of all that do not satisfy."""
        heap: list[tuple[float, Levels]] = []
        self._bisect(start, heap)
        while heap:
            _, levels = heapq.heappop(heap)
            above = self.search.lattice.above(levels)
            for up in sorted(above, key=lambda one: (self._criteria(one), one)):
                if self.tags.is_open(up):
                    self._bisect(up, heap)

    def _bisect(self, start: Levels, heap: list[tuple[float, Levels]]) -> None:
        """Find where the path from an open generalization begins to satisfy the policy."""
        path = [start, *self.search.lattice.ascend(start, lambda i, level: self.steps[i][level], self.tags.is_open)]
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


def _terms(search: LatticeSearch) -> list[list[float]]:
    """By attribute and level, what the criteria after the height are the mean of."""
    m = search.measure.marginals
    return [
        [level / max(height, 1) + LAST * of / (m.rows * max(leaves - 1, 1)) for level, of in enumerate(sums)]
        for height, leaves, sums in zip(m.heights, m.leaves, m.leaf_sums, strict=True)
    ]


run = lattice_strategy(flash)
