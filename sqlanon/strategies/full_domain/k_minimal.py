"""Strategy ``k_minimal``: all k-minimal generalizations, and the preferred among them.

A generalization is k-minimal when it satisfies the policy and no strictly lower one does.

Source: P. Samarati, L. Sweeney, "Protecting privacy when disclosing information" (1998), definition of
k-minimal generalization with suppression, and section on preferences.
"""

from __future__ import annotations

import operator

from sqlanon.strategies.lattice.lattice import Box, Boxes, Dominance
from sqlanon.strategies.lattice.limits import LimitReachedError
from sqlanon.strategies.lattice.outcome import Outcome, prove_best
from sqlanon.strategies.lattice.search import LatticeSearch
from sqlanon.strategies.lattice.task import lattice_strategy
from sqlanon.support.coding import Levels


def k_minimal(search: LatticeSearch) -> Outcome:
    """Find all k-minimal generalizations; choose by the measure.

    Walks those that do not satisfy, lowest first, in boxes: what is hopeless is left out with all below it. A
    satisfying one that is met this way, and has no k-minimal one below it, is k-minimal. What lies above it is never
    looked at.

    The bound is what is proven of all that satisfy: each of them lies at or above a k-minimal one, or is still open.
    """
    if not search.check(search.lattice.top):
        return Outcome(None, optimal=False, minimal=())
    return _Walk(search).run()


class _Walk:
    def __init__(self, search: LatticeSearch) -> None:
        self.search = search
        self.boxes = Boxes()
        self.minimal: list[Levels] = []
        self.found = Dominance(search.lattice.top)

    def run(self) -> Outcome:
        lattice, stopped, open_ = self.search.lattice, "", []
        box = self._box(lattice.bottom, lattice.top)
        try:
            while True:
                if not self.found.has_below(box.low):
                    self._work(box)
                if not len(self.boxes):
                    break
                box = self.boxes.next()
        except LimitReachedError as reached:
            stopped, open_ = str(reached), [box, *self.boxes]
        return self._outcome(stopped, open_)

    def _box(self, low: Levels, high: Levels) -> Box:
        return Box(float(sum(low)), sum(low), low, high)

    def _work(self, box: Box) -> None:
        """Decide the low end of a box; let the rest of it wait."""
        search = self.search
        search.open_count = len(self.boxes)
        search.visit(box.low)
        excluded = search.find_pruned_top(box)
        if excluded is None and search.can_satisfy(box.low) is None:
            search.decide_path([box.low, *search.extend_path(box.low)], 1, box)
            excluded = search.find_pruned_top(box)
        if excluded is None:
            if search.satisfies(box.low):
                self.minimal.append(box.low)
                self.found.add(box.low)
                return
            excluded = box.low
        for low, high in search.split_box(box, excluded):
            if not self.found.has_below(low):
                self.boxes.add(self._box(low, high))

    def _outcome(self, stopped: str, open_: list[Box]) -> Outcome:
        search = self.search
        # Below what is no higher than all that is open, nothing is open. Where boxes were worked off depth first, a
        # lower one may have been found later.
        lowest = min((box.height for box in open_), default=sum(search.lattice.top))
        minimal = tuple(sorted(one for one in self.minimal if sum(one) <= lowest and not self._is_above_another(one)))
        best = search.choose_preferred(minimal) or search.best
        measure = search.measure
        known = {one: max(measure.bound(one), measure.bound_above(search.figures[one])) for one in self.minimal}
        if best is not None and not stopped:
            return Outcome(best, *prove_best(search, best, known), minimal)
        bounds = [*known.values()]
        bounds += [measure.bound(box.low) for box in open_]
        bounds += [] if best is None else [search.scores[best]]
        return Outcome(best, optimal=False, bound=min(bounds, default=0.0), minimal=minimal, stopped=stopped)

    def _is_above_another(self, levels: Levels) -> bool:
        return any(one != levels and all(map(operator.le, one, levels)) for one in self.minimal)


run = lattice_strategy(k_minimal)
