"""Strategy ``optimal``: the best generalization of all that satisfy the policy, with a proof.

Branch and bound over boxes of generalizations, so that the lattice is never laid out: open boxes wait by a lower bound
on the scores in them, the one at their low end. The least box is next.

- If something at or above its low end is hopeless, or is known to suppress so many rows that all below it score more
  than the best, then all at or below that is taken out of the box at once, and the rest waits in smaller boxes.
- Else the low end starts an ascending path of open generalizations: first those that may still be better than the best,
  then on through those that may not. One that is hopeless rules out all below it, so the highest that is hopeless is
  sought, by a forecast of the rows that will be lost. A check decides; the forecast saves checks, and proves nothing.
- Where the low end itself is checked, the rest of its box waits in smaller ones.

Where the requirements are monotone under suppression, what may satisfy does; else each is checked by itself. The search
ends when no bound is at or below the best score; a bound that ties with it is decided by the tie rule. A search that is
stopped proves the least bound among the open boxes. In a large lattice, `search.dive` looks for a good answer after the
first checks; then the proof and `search.breeding`, which looks further, take turns: the longer breeding finds nothing
better, the more turns the proof gets. If many rows may be suppressed, bounds rise in steps there: a box whose
generalizations suppress too many rows to score below the next step waits at that step. (No attribute loses less than
the share of the suppressed rows.)
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

from sqlanon.strategies.lattice.dive import LARGE, PenalizedCost, dive
from sqlanon.strategies.lattice.genetic import GeneticSearch
from sqlanon.strategies.lattice.lattice import Box, Boxes
from sqlanon.strategies.lattice.limits import LimitReachedError
from sqlanon.strategies.lattice.outcome import Outcome
from sqlanon.strategies.lattice.search import TOLERANCE, Aim, LatticeSearch
from sqlanon.strategies.lattice.task import lattice_strategy
from sqlanon.support.coding import Levels

FIRST = 4
"""A dive in a large lattice begins after this many checks per attribute: they find a fair answer, or prove the best."""

TURN, BOXES = 20, 600
"""The checks and the boxes of a turn of the proof; then it is the turn of generations."""

GENERATIONS = 3
"""Generations in a turn. One takes about as long as a few checks, because one statement checks all of it."""

STEP = 0.4
"""In a large lattice a bound rises at once by at most this share of the span from the least bound to the best score."""

AHEAD, TOGETHER = 60, 15
"""With steps, one statement makes the first checks of a box and of the next ones: at most so many boxes, and checks."""


def optimal(search: LatticeSearch) -> Outcome:
    """Find the optimum."""
    if not search.check(search.lattice.top):
        return Outcome(None, optimal=True)
    search.seeks_best_only = True
    return _BranchAndBound(search).run()


class _BranchAndBound:
    def __init__(self, search: LatticeSearch) -> None:
        self.search = search
        self.boxes = Boxes()
        self.prices = _prices(search)
        self.is_large = search.lattice.size > LARGE
        self.in_steps, search.is_proving = False, not self.is_large
        self.least = self.proven = search.measure.bound(search.lattice.bottom)

    def run(self) -> Outcome:
        search, lattice = self.search, self.search.lattice
        box = every = Box(self.least, sum(lattice.bottom), lattice.bottom, lattice.top)
        answers = _answers(search)
        checks, boxes = (FIRST * len(lattice.top) if self.is_large else math.inf), math.inf
        try:
            while True:
                if len(search.figures) >= checks or boxes <= 0:
                    search.is_proving = False
                    turns = next(answers)
                    search.is_proving = True
                    if not self.in_steps and self._aim(every) is not None:
                        # The boxes were cut for good answers, and are too small for bounds.
                        self.proven = self._proven(box)
                        self.in_steps, self.boxes, box = True, Boxes(), every
                        search.forecast.begin_again()
                    checks, boxes = len(search.figures) + turns * TURN, turns * BOXES
                boxes -= 1
                if not search.cannot_improve(box.key, box.low):
                    self._work(box)
                if not len(self.boxes):
                    break
                box = self.boxes.next()
        except LimitReachedError as reached:
            return Outcome(search.best, optimal=False, bound=self._proven(box), stopped=str(reached))
        score = 0.0 if search.best is None else search.scores[search.best]
        return Outcome(search.best, optimal=True, bound=score)

    def _proven(self, box: Box) -> float:
        """Nothing scores less: neither what is open, nor what was found."""
        bound = max(self.proven, min([box.key, *(one.key for one in self.boxes)]))
        best = self.search.best
        return bound if best is None else min(bound, self.search.scores[best])

    def _work(self, box: Box) -> None:
        """Decide the low end of a box, or rule it out; let the rest of the box wait."""
        search = self.search
        search.open_count = len(self.boxes)
        search.visit(box.low)
        after = search.bound_from_below(box.low)
        if after > box.key:
            if not search.cannot_improve(after, box.low):
                self.boxes.add(box._replace(key=after))
            return
        self._tighten()
        aim, plain = self._aim(box) if self.in_steps else None, self._plain(box)
        excluded = self._excluded(box, plain, aim)
        if excluded is None:
            search.check(box.low)
            box, excluded = box._replace(key=max(box.key, search.bound_from_below(box.low))), box.low
        elif aim is not None:
            bound = search.raised_bound(plain, excluded)
            if bound < math.inf and not search.cannot_improve(bound, box.low):
                self.boxes.add(box._replace(key=max(box.key, bound), high=tuple(map(min, excluded, box.high))))
        for low, high in search.split_box(box, excluded):
            bound = max(box.key, search.measure.bound(low))
            if not search.cannot_improve(bound, low):
                self.boxes.add(Box(bound, sum(low), low, high))

    def _excluded(self, box: Box, plain: Box, aim: Aim | None) -> Levels | None:
        """What excludes the low end of a box, by what is known or else is checked for it."""
        search = self.search
        excluded = search.find_pruned_top(plain, aim)
        if excluded is None and self.in_steps and not search.falls_short_of(aim, box.low):
            self._ask_ahead(box)
            excluded = search.find_pruned_top(plain, aim)
        if excluded is None and not search.falls_short_of(aim, box.low):
            search.decide_path(*self._path(box.low, aim), plain, aim)
            excluded = search.find_pruned_top(plain, aim)
        return excluded

    def _aim(self, box: Box) -> Aim | None:
        """How far the bound of a box is to rise at once: further than the best score is no use. None where only what
        suppresses more rows than are allowed scores as much: that is ruled out anyway."""
        search = self.search
        if search.best is None:
            return None
        best = search.scores[search.best]
        score = min(box.key + STEP * (best - self.least), best + 4 * TOLERANCE * abs(best))
        if score <= box.key:
            return None
        every, bound_with = range(search.allowed_rows + 1), search.measure.bound_with
        rows = bisect_left(every, score, key=lambda rows: bound_with(box.low, rows)) - 1
        return Aim(score, rows) if rows < search.allowed_rows else None

    def _plain(self, box: Box) -> Box:
        """A box with a key that nothing above it has raised, so that nothing is counted twice."""
        if not self.in_steps:
            return box
        return box._replace(key=max(self.search.measure.bound(box.low), self.search.bound_from_below(box.low)))

    def _ask_ahead(self, first: Box) -> None:
        """Check for a box and the next ones, in one statement, what each would ask about first."""
        search = self.search
        several: list[Levels] = []
        for box in [first, *self.boxes.first(AHEAD)]:
            below_one = any(all(map(operator.le, box.low, one)) for one in several)
            if not below_one and not search.cannot_improve(box.key, box.low):
                several += self._asked_first(box)
            if len(several) >= TOGETHER:
                break
        search.check_all(several)

    def _asked_first(self, box: Box) -> list[Levels]:
        """What is asked about first to exclude the low end of a box, if anything is."""
        search, aim = self.search, self._aim(box)
        if search.find_pruned_top(self._plain(box), aim) is not None or search.falls_short_of(aim, box.low):
            return []
        path, _ = self._path(box.low, aim)
        return [path[search.choose_check(path, 0, len(path), aim)]]

    def _tighten(self) -> None:
        """What must suppress so many rows that it scores more than the best is of no use: a tighter limit."""
        search = self.search
        if search.best is not None:
            search.tighten_limit(search.measure.most_suppressed(search.scores[search.best]))

    def _path(self, start: Levels, aim: Aim | None) -> tuple[list[Levels], int]:
        """An ascending path of undecided generalizations, long and with much below it; and how many of the first ones
        may still be the best, or below the aim."""
        search = self.search

        def is_open(levels: Levels) -> bool:
            bound = search.measure.bound(levels)
            if search.cannot_improve(bound, levels) or (aim is not None and bound >= aim.score):
                return False
            return search.can_satisfy(levels) is not False and not search.falls_short_of(aim, levels)

        path = [start, *search.lattice.ascend(start, lambda i, level: self.prices[i][level], is_open)]
        return [*path, *search.extend_path(path[-1], aim)], len(path)


def _answers(search: LatticeSearch) -> Iterator[int]:
    """Look for good answers, a turn at a time: after each, so many turns are the proof's."""
    cost = PenalizedCost(search)
    dive(search, cost)
    yield 1
    breeding = GeneticSearch(search, cost)
    while True:
        for _ in range(GENERATIONS):
            breeding.go_on()
        yield 1 + breeding.draws


def _prices(search: LatticeSearch) -> list[list[float]]:
    """By attribute and level: how much the bound rises by a step up, while all other attributes are at the bottom; less
    is asked where a step adds more below it. (The square root is what took the fewest checks.)"""
    bottom, bound = search.lattice.bottom, search.measure.bound
    prices = []
    for i, (low, top) in enumerate(zip(bottom, search.lattice.top, strict=True)):
        bounds = [bound((*bottom[:i], max(level, low), *bottom[i + 1 :])) for level in range(top + 1)]
        gains = [math.log1p(1 / (max(level - low, 0) + 1)) for level in range(top)]
        prices.append([(b - a) / math.sqrt(gain) for (a, b), gain in zip(pairwise(bounds), gains, strict=True)])
    return prices


run = lattice_strategy(optimal)
