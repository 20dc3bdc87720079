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
stopped before has proven the least bound of what is open. In a large lattice, `search.dive` looks for a good answer
after the first checks; then the proof and `search.breeding`, which looks further, take turns: the longer that finds
nothing better, the more of them are the proof's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from sqlanon.coding import Levels
from sqlanon.search.breeding import Breeding
from sqlanon.search.dive import LARGE, Cost, dive
from sqlanon.search.full_domain import on_lattice
from sqlanon.search.lattice import Box, Boxes
from sqlanon.search.limits import LimitReachedError
from sqlanon.search.memory import Search
from sqlanon.search.outcome import Outcome

FIRST = 4
"""A dive in a large lattice begins after this many checks per attribute: they find a fair answer, or prove the best."""

TURN, BOXES = 10, 200
"""After so many checks or boxes of the proof, it is the turn of generations."""

GENERATIONS = 3
"""So many in a turn: each takes about the time of a few checks, as one statement makes all of its own."""


def optimal(search: Search) -> Outcome:
    """Find the optimum."""
    if not search.ask(search.lattice.top):
        return Outcome(None, optimal=True)
    search.only_best = True
    return _BranchAndBound(search).run()


class _BranchAndBound:
    def __init__(self, search: Search) -> None:
        self.search = search
        self.boxes = Boxes()
        self.prices = _prices(search)

    def run(self) -> Outcome:
        search, lattice = self.search, self.search.lattice
        bound = search.measure.bound(lattice.bottom)
        box = Box(bound, sum(lattice.bottom), lattice.bottom, lattice.top)
        answers = _answers(search)
        checks, boxes = (FIRST * len(lattice.top) if lattice.size > LARGE else math.inf), math.inf
        try:
            while True:
                if len(search.figures) >= checks or boxes <= 0:
                    turns = next(answers)
                    checks, boxes = len(search.figures) + turns * TURN, turns * BOXES
                boxes -= 1
                if not search.is_no_use(box.key, box.low):
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
        bounds = [box.key, *(one.key for one in self.boxes)]
        if self.search.best is not None:
            bounds.append(self.search.scores[self.search.best])
        return min(bounds)

    def _work(self, box: Box) -> None:
        """Decide the low end of a box, or rule it out; let the rest of the box wait."""
        search = self.search
        search.open = len(self.boxes)
        search.look_at(box.low)
        after = search.after(box.low)
        if after > box.key:
            if not search.is_no_use(after, box.low):
                self.boxes.add(box._replace(key=after))
            return
        self._tighten()
        excluded = search.excluded(box)
        if excluded is None and search.may(box.low) is None:
            path = self._path(box.low)
            search.settle([*path, *search.beyond(path[-1])], len(path), box)
            excluded = search.excluded(box)
        if excluded is None:
            search.ask(box.low)
            box, excluded = box._replace(key=max(box.key, search.after(box.low))), box.low
        for low, high in search.rest(box, excluded):
            bound = max(box.key, search.measure.bound(low))
            if not search.is_no_use(bound, low):
                self.boxes.add(Box(bound, sum(low), low, high))

    def _tighten(self) -> None:
        """What must suppress so many rows that it scores more than the best is of no use: a tighter limit."""
        search = self.search
        if search.best is not None:
            search.tighten(search.measure.most_suppressed(search.scores[search.best]))

    def _path(self, start: Levels) -> list[Levels]:
        """An ascending path of generalizations of which nothing is told and that may still be the best, long and with
        much below it."""
        search = self.search

        def is_open(levels: Levels) -> bool:
            bound = search.measure.bound(levels)
            return not search.is_no_use(bound, levels) and search.may(levels) is None

        return [start, *search.lattice.ascend(start, lambda i, level: self.prices[i][level], is_open)]


def _answers(search: Search) -> Iterator[int]:
    """Look for good answers, a turn at a time: after each, so many turns are the proof's."""
    cost = Cost(search)
    dive(search, cost)
    yield 1
    breeding = Breeding(search, cost)
    while True:
        for _ in range(GENERATIONS):
            breeding.go_on()
        yield 1 + breeding.draws


def _prices(search: Search) -> list[list[float]]:
    """By attribute and level: how much the bound rises by a step up, while all other attributes are at the bottom; less
    is asked where a step adds more below it. (The square root is what took the fewest checks.)"""
    bottom, bound = search.lattice.bottom, search.measure.bound
    prices = []
    for i, (low, top) in enumerate(zip(bottom, search.lattice.top, strict=True)):
        bounds = [bound((*bottom[:i], max(level, low), *bottom[i + 1 :])) for level in range(top + 1)]
        gains = [math.log1p(1 / (max(level - low, 0) + 1)) for level in range(top)]
        prices.append([(b - a) / math.sqrt(gain) for (a, b), gain in zip(pairwise(bounds), gains, strict=True)])
    return prices


run = on_lattice(optimal)
