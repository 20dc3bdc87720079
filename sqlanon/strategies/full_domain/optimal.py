"""Strategy ``optimal``: the best generalization that meets the policy, with a proof.

Branch and bound over boxes of generalizations, so that the lattice is never enumerated: open boxes wait by a lower
bound on the scores in them, the bound at their low end. The box of least bound is next.

- If a generalization at or above its low end is infeasible, or known to suppress enough rows that all below it scores
  more than the best, then everything at or below that is pruned from the box, and its other parts wait.
- Else the low end starts an ascending path of open generalizations: first those that may still be better than the best,
  then those that may not. An infeasible one prunes everything below it, so the search looks for the highest infeasible
  one, by a forecast of suppressed rows. A check decides; the forecast saves checks, and proves nothing.
- If the low end itself is checked, the other parts of its box wait.

With requirements that are monotone under suppression, what may be feasible is; else each is checked by itself. The
search ends when no bound is at or below the best score; ties are decided by the tie rule. A search that is stopped
proves the least bound of the open boxes.

In a large lattice, `lattice.dive` looks for a good result after the first checks. Then the proof and `lattice.genetic`
take turns: the longer the genetic search gains nothing, the more turns the proof has. If many rows may be suppressed,
bounds rise in steps there: a box whose generalizations suppress too many rows to score below the next step waits at
that step, because no attribute loses less than the share of suppressed rows.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

from sqlanon.strategies.lattice.dive import LARGE, PenalizedCost, dive
from sqlanon.strategies.lattice.genetic import GeneticSearch
from sqlanon.strategies.lattice.lattice import Box, BoxQueue
from sqlanon.strategies.lattice.limits import LimitReachedError
from sqlanon.strategies.lattice.outcome import Outcome
from sqlanon.strategies.lattice.search import TOLERANCE, Aim, LatticeSearch
from sqlanon.strategies.lattice.task import lattice_strategy
from sqlanon.support.coding import Levels

FIRST = 4
"""Checks per attribute before a dive in a large lattice. They find a fair result, or prove the best."""

TURN, BOXES = 20, 600
"""Checks and boxes of a turn of the proof."""

GENERATIONS = 3
"""Generations of a turn of the genetic search. One takes as long as a few checks, because one statement checks it."""

STEP = 0.4
"""In a large lattice, the step by which a bound rises, as a share of the span from the least bound to the best
score."""

AHEAD, TOGETHER = 60, 15
"""With steps, maximum numbers of boxes and of checks that one statement prepares."""


def optimal(search: LatticeSearch) -> Outcome:
    """Find the optimum."""
    if not search.check(search.lattice.top):
        return Outcome(None, optimal=True)
    search.seeks_best_only = True
    return _BranchAndBound(search).run()


class _BranchAndBound:
    def __init__(self, search: LatticeSearch) -> None:
        self.search = search
        self.queue = BoxQueue()
        self.prices = _prices(search)
        self.is_large = search.lattice.size > LARGE
        self.in_steps, search.is_proving = False, not self.is_large
        self.least_bound = self.proven_bound = search.measure.bound(search.lattice.bottom)

    def run(self) -> Outcome:
        search, lattice = self.search, self.search.lattice
        box = whole_lattice = Box(self.least_bound, sum(lattice.bottom), lattice.bottom, lattice.top)
        improvements = _improve_in_turns(search)
        checks_until_turn = FIRST * len(lattice.top) if self.is_large else math.inf
        boxes_until_turn = math.inf
        try:
            while True:
                if len(search.figures) >= checks_until_turn or boxes_until_turn <= 0:
                    search.is_proving = False
                    turns = next(improvements)
                    search.is_proving = True
                    if not self.in_steps and self._aim(whole_lattice) is not None:
                        # The boxes were split to find good results, and are too small for bounds: start again.
                        self.proven_bound = self._bound(box)
                        self.in_steps, self.queue, box = True, BoxQueue(), whole_lattice
                        search.forecast.reset_margin()
                    checks_until_turn, boxes_until_turn = len(search.figures) + turns * TURN, turns * BOXES
                boxes_until_turn -= 1
                if not search.cannot_improve(box.key, box.low):
                    self._decide(box)
                if not len(self.queue):
                    break
                box = self.queue.pop()
        except LimitReachedError as limit:
            return Outcome(search.best, optimal=False, bound=self._bound(box), stopped=str(limit))
        score = 0.0 if search.best is None else search.scores[search.best]
        return Outcome(search.best, optimal=True, bound=score)

    def _bound(self, box: Box) -> float:
        """The proven bound: of this box, all open ones, and the best."""
        bound = max(self.proven_bound, min([box.key, *(waiting.key for waiting in self.queue)]))
        best = self.search.best
        return bound if best is None else min(bound, self.search.scores[best])

    def _decide(self, box: Box) -> None:
        """Decide the low end of a box, and queue the other parts of it."""
        search = self.search
        search.open_count = len(self.queue)
        search.visit(box.low)
        bound = search.bound_from_below(box.low)
        if bound > box.key:
            if not search.cannot_improve(bound, box.low):
                self.queue.add(box._replace(key=bound))
            return
        self._tighten_limit()
        aim, unraised = self._aim(box) if self.in_steps else None, self._without_raised_key(box)
        pruned_top = self._find_pruned_top(box, unraised, aim)
        if pruned_top is None:
            search.check(box.low)
            box, pruned_top = box._replace(key=max(box.key, search.bound_from_below(box.low))), box.low
        elif aim is not None:
            bound = search.raised_bound(unraised, pruned_top)
            if bound < math.inf and not search.cannot_improve(bound, box.low):
                high = tuple(map(min, pruned_top, box.high))
                self.queue.add(box._replace(key=max(box.key, bound), high=high))
        for low, high in search.split_box(box, pruned_top):
            bound = max(box.key, search.measure.bound(low))
            if not search.cannot_improve(bound, low):
                self.queue.add(Box(bound, sum(low), low, high))

    def _find_pruned_top(self, box: Box, unraised: Box, aim: Aim | None) -> Levels | None:
        """The generalization that prunes the low end of a box, by earlier checks or by new ones."""
        search = self.search
        pruned_top = search.find_pruned_top(unraised, aim)
        if pruned_top is None and self.in_steps and not search.falls_short_of(aim, box.low):
            self._check_ahead(box)
            pruned_top = search.find_pruned_top(unraised, aim)
        if pruned_top is None and not search.falls_short_of(aim, box.low):
            search.decide_path(*self._path(box.low, aim), unraised, aim)
            pruned_top = search.find_pruned_top(unraised, aim)
        return pruned_top

    def _aim(self, box: Box) -> Aim | None:
        """The next step of the bound of a box, at most to the best score. None if only generalizations that suppress
        more than the limit score as much: those are pruned anyway."""
        search = self.search
        if search.best is None:
            return None
        best_score = search.scores[search.best]
        score = min(box.key + STEP * (best_score - self.least_bound), best_score + 4 * TOLERANCE * abs(best_score))
        if score <= box.key:
            return None
        row_counts, bound_with = range(search.allowed_rows + 1), search.measure.bound_with
        rows = bisect_left(row_counts, score, key=lambda rows: bound_with(box.low, rows)) - 1
        return Aim(score, rows) if rows < search.allowed_rows else None

    def _without_raised_key(self, box: Box) -> Box:
        """The box with a key that no generalization above has raised, so that no lift counts twice."""
        if not self.in_steps:
            return box
        return box._replace(key=max(self.search.measure.bound(box.low), self.search.bound_from_below(box.low)))

    def _check_ahead(self, first: Box) -> None:
        """Make the first checks of a box and of the next ones in one statement."""
        search = self.search
        batch: list[Levels] = []
        for box in [first, *self.queue.peek(AHEAD)]:
            is_below_batch = any(all(map(operator.le, box.low, levels)) for levels in batch)
            if not is_below_batch and not search.cannot_improve(box.key, box.low):
                batch += self._first_check(box)
            if len(batch) >= TOGETHER:
                break
        search.check_all(batch)

    def _first_check(self, box: Box) -> list[Levels]:
        """The first check that decides the low end of a box, if it is undecided."""
        search, aim = self.search, self._aim(box)
        if search.find_pruned_top(self._without_raised_key(box), aim) is not None or search.falls_short_of(
            aim, box.low
        ):
            return []
        path, _ = self._path(box.low, aim)
        return [path[search.choose_check(path, 0, len(path), aim)]]

    def _tighten_limit(self) -> None:
        """Lower the limit to the rows that a generalization no worse than the best can suppress."""
        search = self.search
        if search.best is not None:
            search.tighten_limit(search.measure.max_suppressed_rows(search.scores[search.best]))

    def _path(self, start: Levels, aim: Aim | None) -> tuple[list[Levels], int]:
        """An ascending path of undecided generalizations, and the number of the first ones that may still be the best,
        or below the aim."""
        search = self.search

        def is_open(levels: Levels) -> bool:
            bound = search.measure.bound(levels)
            if search.cannot_improve(bound, levels) or (aim is not None and bound >= aim.score):
                return False
            return search.can_be_feasible(levels) is not False and not search.falls_short_of(aim, levels)

        path = [start, *search.lattice.ascend(start, lambda i, level: self.prices[i][level], is_open)]
        return [*path, *search.extend_path(path[-1], aim)], len(path)


def _improve_in_turns(search: LatticeSearch) -> Iterator[int]:
    """Look for better results, a turn at a time; yields the number of turns that the proof has next."""
    cost = PenalizedCost(search)
    dive(search, cost)
    yield 1
    genetic_search = GeneticSearch(search, cost)
    while True:
        for _ in range(GENERATIONS):
            genetic_search.run_generation()
        yield 1 + genetic_search.restarts


def _prices(search: LatticeSearch) -> list[list[float]]:
    """The price of a step up by attribute and level: the rise of the bound with all other attributes at the bottom,
    divided by the square root of the share of generalizations that it adds below. (The root took the fewest checks.)"""
    bottom, bound = search.lattice.bottom, search.measure.bound
    prices = []
    for i, (low, top) in enumerate(zip(bottom, search.lattice.top, strict=True)):
        bounds = [bound((*bottom[:i], max(level, low), *bottom[i + 1 :])) for level in range(top + 1)]
        gains = [math.log1p(1 / (max(level - low, 0) + 1)) for level in range(top)]
        prices.append([(b - a) / math.sqrt(gain) for (a, b), gain in zip(pairwise(bounds), gains, strict=True)])
    return prices


run = lattice_strategy(optimal)
