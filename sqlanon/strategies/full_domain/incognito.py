"""Strategy ``incognito``: all generalizations that meet the policy, by subsets of the quasi-identifiers.

A generalization of some quasi-identifiers is checked with all others at the top of their hierarchies (also above a
`max_level`). If it is infeasible, so is everything with the same levels of these attributes. The candidates of a subset
are joined from those left of its subsets with one attribute less; everything above a candidate that may be feasible is
kept unchecked. With requirements that are not monotone under suppression, a candidate is dropped only if its figures
prove everything below infeasible, and each of the last ones is checked.

Source: K. LeFevre, D. J. DeWitt, R. Ramakrishnan, "Incognito: efficient full-domain k-anonymity" (2005), section 3.1.
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
"""Indexes of attributes, ascending."""


def incognito(search: LatticeSearch) -> Outcome:
    """Find all generalizations that meet the policy; choose the best by the measure."""
    satisfying: tuple[Levels, ...] | None = None
    try:
        candidates = _SubsetSearch(search).run() if search.check(search.lattice.top) else []
        satisfying = tuple(
            levels for levels in sorted(candidates) if search.is_feasible_above(levels) or search.is_feasible(levels)
        )
        _find_best(search, satisfying)
    except LimitReachedError as limit:
        bound = search.measure.bound(search.lattice.bottom)
        return Outcome(search.best, False, bound, stopped=str(limit), satisfying=satisfying)
    score = 0.0 if search.best is None else search.scores[search.best]
    return Outcome(search.best, True, score, minimal_elements(search, satisfying), satisfying=satisfying)


def _find_best(search: LatticeSearch, satisfying: tuple[Levels, ...]) -> None:
    """Check the generalizations that may be the best of those that meet the policy."""
    for bound, _, levels in sorted((search.measure.bound(levels), sum(levels), levels) for levels in satisfying):
        if not search.cannot_improve(max(bound, search.bound_from_below(levels)), levels):
            search.check(levels)


class _SubsetSearch:
    def __init__(self, search: LatticeSearch) -> None:
        self.search = search
        self.heights = search.measure.marginals.heights
        self.remaining: dict[Subset, list[Levels]] = {}

    def run(self) -> list[Levels]:
        """The generalizations of all quasi-identifiers that may meet the policy."""
        attributes = range(len(self.heights))
        for size in range(1, len(self.heights) + 1):
            self.remaining = {subset: self._search_subset(subset) for subset in combinations(attributes, size)}
        return self.remaining[tuple(attributes)]

    def _search_subset(self, subset: Subset) -> list[Levels]:
        """The levels of a subset that may meet the policy: breadth first, the lowest first."""
        candidates = sorted(self._candidates(subset), key=lambda levels: (sum(levels), levels))
        return [levels for levels in candidates if self._can_satisfy(subset, levels)]

    def _can_satisfy(self, subset: Subset, levels: Levels) -> bool:
        generalization = list(self.heights)
        for attribute, level in zip(subset, levels, strict=True):
            generalization[attribute] = level
        search, checked = self.search, tuple(generalization)
        search.visit(checked)
        verdict = search.can_be_feasible(checked)
        return search.check(checked) if verdict is None else verdict

    def _candidates(self, subset: Subset) -> Iterator[Levels]:
        """All levels of a single attribute. For larger subsets, the join of what remains without the last attribute and
        without the one before it; earlier checks rule out what other subsets exclude."""
        if len(subset) == 1:
            yield from ((level,) for level in self.search.lattice.levels(*subset))
            return
        *shared, second_last, last = subset
        without_second_last, without_last = (*shared, last), (*shared, second_last)
        last_levels = defaultdict(list)
        for levels in self.remaining[without_second_last]:
            last_levels[levels[:-1]].append(levels[-1])
        for levels in self.remaining[without_last]:
            yield from ((*levels, level) for level in last_levels[levels[:-1]])


run = lattice_strategy(incognito)
