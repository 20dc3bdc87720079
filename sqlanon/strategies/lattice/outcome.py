"""What a strategy found, and what the border of what satisfies the policy proves of it: the k-minimal generalizations,
and the bounds of all above them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlanon.strategies.lattice.lattice import Dominance
from sqlanon.strategies.lattice.search import LatticeSearch
from sqlanon.support.coding import Levels


@dataclass(frozen=True)
class Outcome:
    """What a search of the lattice found: with what it learnt, a `search.result.SearchResult`."""

    levels: Levels | None  # the chosen generalization; None where nothing satisfies the policy
    optimal: bool  # whether it is proven to be the best by the measure
    # No generalization that satisfies the policy scores less. Its own score, if it is proven to be the best.
    bound: float = 0.0
    minimal: tuple[Levels, ...] | None = None
    """The k-minimal generalizations that were found, where the strategy looks for them: all, unless it stopped."""
    stopped: str = ""  # the limit that ended the search before it was done; empty if none did
    # All generalizations that satisfy the policy, where the strategy finds them all, and did not stop.
    satisfying: tuple[Levels, ...] | None = None
    exhaustive: bool = True
    """Where nothing was found: whether it is ruled out that anything satisfies the policy."""


def minimal_elements(search: LatticeSearch, among: Iterable[Levels]) -> tuple[Levels, ...]:
    """Those of some generalizations that none of the others is strictly below, in lexicographic order."""
    found, seen = [], Dominance(search.lattice.top)
    for levels in sorted(among, key=lambda one: (sum(one), one)):
        if not seen.has_below(levels):
            seen.add(levels)
            found.append(levels)
    return tuple(sorted(found))


def conclude(search: LatticeSearch, stopped: str, *, only_minimal: bool) -> Outcome:
    """What a strategy has found that checks every k-minimal generalization, by itself.

    Each generalization that satisfies the policy is at or above a k-minimal one. So the best is proven to be the best
    of all where nothing above a k-minimal generalization can score less: by the bounds that follow from the
    attributes' own counts and from the check of the k-minimal one. They always tell with `height` and
    `relative_height`; with the other measures where nothing may be suppressed, for then the scores rise with every
    step up; else seldom: a higher generalization suppresses fewer rows.
    """
    minimal = minimal_elements(search, search.scores)
    measure = search.measure
    if stopped:
        minimal = tuple(one for one in minimal if _is_certain(search, one))
        best = search.choose_preferred(minimal if only_minimal and minimal else search.scores)
        return Outcome(best, False, measure.bound(search.lattice.bottom), minimal, stopped)
    best = search.choose_preferred(minimal if only_minimal else search.scores)
    if best is None:
        return Outcome(None, optimal=False, minimal=())
    bounds = {one: max(measure.bound(one), measure.bound_above(search.figures[one])) for one in minimal}
    return Outcome(best, *prove_best(search, best, bounds), minimal)


def prove_best(search: LatticeSearch, best: Levels, bounds: Mapping[Levels, float]) -> tuple[bool, float]:
    """Whether a generalization is proven to be the best; and what nothing that satisfies the policy scores less
    than.
    """
    score = search.scores[best]
    if any(search.precedes(bound, one, best) for one, bound in bounds.items()):
        return False, min(score, *bounds.values())
    return True, score


def _is_certain(search: LatticeSearch, levels: Levels) -> bool:
    """Whether nothing below a generalization satisfies the policy, as far as the checks tell."""
    floor = search.lattice.bottom
    lower = [(*levels[:i], level - 1, *levels[i + 1 :]) for i, level in enumerate(levels) if level > floor[i]]
    return all(search.can_satisfy(one) is False for one in lower)


class PredictiveTags:
    """What the checks of a search tell of k-minimality: predictive tagging."""

    def __init__(self, search: LatticeSearch) -> None:
        self.search = search
        self._good = Dominance(search.lattice.top)

    def is_good(self, levels: Levels) -> bool:
        """Whether a generalization, or one below it, is known to satisfy the policy: nothing above is k-minimal."""
        return self._good.has_below(levels)

    def is_bad(self, levels: Levels) -> bool:
        """Whether neither a generalization nor anything below it can satisfy the policy."""
        return self.search.can_satisfy(levels) is False

    def is_open(self, levels: Levels) -> bool:
        """Whether a generalization is still to be checked."""
        return not (self.is_good(levels) or levels in self.search.figures or self.is_bad(levels))

    def check(self, levels: Levels) -> bool:
        """Check a generalization; whether it satisfies the policy."""
        good = self.search.satisfies(levels)
        if good:
            self._good.add(levels)
        return good
