"""Strategy ``k_minimal``: all k-minimal generalizations, and the preferred one.

A generalization is k-minimal if it meets the policy and no strictly lower one does.

Source: P. Samarati, L. Sweeney, "Protecting privacy when disclosing information" (1998), definition of
k-minimal generalization with suppression, and section on preferences.
"""

from __future__ import annotations

import operator

from sqlanon.strategies.lattice.lattice import Box, BoxQueue, DominanceIndex
from sqlanon.strategies.lattice.limits import LimitReachedError
from sqlanon.strategies.lattice.outcome import Outcome, prove_best
from sqlanon.strategies.lattice.search import LatticeSearch
from sqlanon.strategies.lattice.task import lattice_strategy
from sqlanon.support.coding import Levels


def k_minimal(search: LatticeSearch) -> Outcome:
    """Find all k-minimal generalizations; choose by the measure.

    Walks the infeasible generalizations in boxes, lowest first, and prunes what the checks exclude. A feasible one that
    it meets with no k-minimal one below is k-minimal; everything above it is skipped.

    The bound holds for all feasible generalizations: each is at or above a k-minimal one, or still open.
    """
    if not search.check(search.lattice.top):
        return Outcome(None, optimal=False, minimal=())
    return _Walk(search).run()


class _Walk:
    def __init__(self, search: LatticeSearch) -> None:
        self.search = search
        self.queue = BoxQueue()
        self.minimal: list[Levels] = []
        self.minimal_index = DominanceIndex(search.lattice.top)

    def run(self) -> Outcome:
        lattice, stopped = self.search.lattice, ""
        open_boxes: list[Box] = []
        box = _box(lattice.bottom, lattice.top)
        try:
            while True:
                if not self.minimal_index.has_below(box.low):
                    self._decide(box)
                if not len(self.queue):
                    break
                box = self.queue.pop()
        except LimitReachedError as limit:
            stopped, open_boxes = str(limit), [box, *self.queue]
        return self._outcome(stopped, open_boxes)

    def _decide(self, box: Box) -> None:
        """Decide the low end of a box, and queue the other parts of it."""
        search = self.search
        search.open_count = len(self.queue)
        search.visit(box.low)
        pruned_top = search.find_pruned_top(box)
        if pruned_top is None and search.can_be_feasible(box.low) is None:
            search.decide_path([box.low, *search.extend_path(box.low)], 1, box)
            pruned_top = search.find_pruned_top(box)
        if pruned_top is None:
            if search.is_feasible(box.low):
                self.minimal.append(box.low)
                self.minimal_index.add(box.low)
                return
            pruned_top = box.low
        for low, high in search.split_box(box, pruned_top):
            if not self.minimal_index.has_below(low):
                self.queue.add(_box(low, high))

    def _outcome(self, stopped: str, open_boxes: list[Box]) -> Outcome:
        search, measure = self.search, self.search.measure
        # Nothing is open below the lowest open box. In depth-first search, a lower k-minimal one may come later.
        lowest_open = min((box.height for box in open_boxes), default=sum(search.lattice.top))
        minimal = tuple(
            sorted(
                levels for levels in self.minimal if sum(levels) <= lowest_open and not self._is_above_another(levels)
            )
        )
        best = search.choose_preferred(minimal) or search.best
        bounds = {
            levels: max(measure.bound(levels), measure.bound_above(search.figures[levels])) for levels in self.minimal
        }
        if best is not None and not stopped:
            return Outcome(best, *prove_best(search, best, bounds), minimal)
        open_bounds = [measure.bound(box.low) for box in open_boxes]
        best_score = [] if best is None else [search.scores[best]]
        bound = min([*bounds.values(), *open_bounds, *best_score], default=0.0)
        return Outcome(best, optimal=False, bound=bound, minimal=minimal, stopped=stopped)

    def _is_above_another(self, levels: Levels) -> bool:
        return any(lower != levels and all(map(operator.le, lower, levels)) for lower in self.minimal)


def _box(low: Levels, high: Levels) -> Box:
    return Box(float(sum(low)), sum(low), low, high)


run = lattice_strategy(k_minimal)
