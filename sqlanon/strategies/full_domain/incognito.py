"""Strategy ``incognito``: all generalizations that satisfy the policy, by subsets of the quasi-identifiers.

A generalization of some of the quasi-identifiers stands for the one with all others at the top of their hierarchies
(above a `max_level`, too): that has the same frequency set, rolled up. If it cannot satisfy the policy, nothing can
that has the same levels there. So subsets of one are searched first, then of two, and so on, each breadth first:

- the candidates of a subset are joined from what was left of the subsets with one attribute less (a-priori pruning);
- above what may satisfy everything may, and is not checked; what may not is left out.

Of what is left at the end, the whole set of quasi-identifiers, the best is chosen by the measure: with a proof, for all
are known. Candidates wait by the bound on their scores, and the choice ends where none can be better.

The subset property and the roll-up need requirements that are monotone under suppression. Where they are not, only what
the figures rule out for all below is left out, and at the end each is checked by itself: slower, and as right.

The lists of what is left are as long as the lattice, at worst: this is for lattices of up to some 10^6.

Source: K. LeFevre, D. J. DeWitt, R. Ramakrishnan, "Incognito: efficient full-domain k-anonymity" (SIGMOD 2005),
section 3.1 (the algorithm), and the subset, generalization and rollup properties of section 2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

from sqlanon.strategies.lattice.limits import LimitReachedError
from sqlanon.strategies.lattice.outcome import Outcome, minimal_elements
from sqlanon.strategies.lattice.search import LatticeSearch
from sqlanon.strategies.lattice.task import lattice_strategy
from sqlanon.support.coding import Levels

Subset = tuple[int, ...]
"""Some of the attributes, by their numbers, ascending."""


def incognito(search: LatticeSearch) -> Outcome:
    """Find all generalizations that satisfy the policy; choose the best of them by the measure."""
    satisfying: tuple[Levels, ...] | None = None
    try:
        left = _Subsets(search).run() if search.check(search.lattice.top) else []
        satisfying = tuple(one for one in sorted(left) if search.all_above_satisfy(one) or search.satisfies(one))
        _choose(search, satisfying)
    except LimitReachedError as reached:
        return Outcome(
            search.best, False, search.measure.bound(search.lattice.bottom), stopped=str(reached), satisfying=satisfying
        )
    score = 0.0 if search.best is None else search.scores[search.best]
    return Outcome(search.best, True, score, minimal_elements(search, satisfying), satisfying=satisfying)


def _choose(search: LatticeSearch, satisfying: tuple[Levels, ...]) -> None:
    """Check what may be the best of generalizations that satisfy the policy."""
    for bound, _, levels in sorted((search.measure.bound(one), sum(one), one) for one in satisfying):
        if not search.cannot_improve(max(bound, search.bound_from_below(levels)), levels):
            search.check(levels)


class _Subsets:
    def __init__(self, search: LatticeSearch) -> None:
        self.search = search
        self.tops = search.measure.marginals.heights
        self.left: dict[Subset, list[Levels]] = {}

    def run(self) -> list[Levels]:
        """What may satisfy the policy, of all quasi-identifiers."""
        attributes = range(len(self.tops))
        for size in range(1, len(self.tops) + 1):
            found = {subset: self._searched(subset) for subset in combinations(attributes, size)}
            self.left = found
        return self.left[tuple(attributes)]

    def _searched(self, subset: Subset) -> list[Levels]:
        """The levels of a subset that may satisfy the policy: breadth first, from the lowest."""
        candidates = sorted(self._candidates(subset), key=lambda one: (sum(one), one))
        return [levels for levels in candidates if self._may(subset, levels)]

    def _may(self, subset: Subset, levels: Levels) -> bool:
        asked = list(self.tops)
        for attribute, level in zip(subset, levels, strict=True):
            asked[attribute] = level
        search, whole = self.search, tuple(asked)
        search.visit(whole)
        known = search.can_satisfy(whole)
        return search.check(whole) if known is None else known

    def _candidates(self, subset: Subset) -> Iterator[Levels]:
        """All levels of an attribute; of more, those that are left without the last, and without the one before it,
        joined where they agree. (That no other attribute's absence rules them out is told by what was checked.)"""
        if len(subset) == 1:
            yield from ((level,) for level in self.search.lattice.levels(*subset))
            return
        *shared, one, other = subset
        with_one, with_other = (*shared, one), (*shared, other)
        lasts = defaultdict(list)
        for levels in self.left[with_other]:
            lasts[levels[:-1]].append(levels[-1])
        for levels in self.left[with_one]:
            yield from ((*levels, last) for last in lasts[levels[:-1]])


run = lattice_strategy(incognito)
