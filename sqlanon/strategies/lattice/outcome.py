"""The outcome of a search, and what the k-minimal generalizations prove about everything above them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlanon.strategies.lattice.lattice import DominanceIndex
from sqlanon.strategies.lattice.search import LatticeSearch
from sqlanon.support.coding import Levels


@dataclass(frozen=True)
class Outcome:
    """The outcome of a search of the lattice, from which a `lattice.result.SearchResult` is made."""

    levels: Levels | None  # the chosen generalization; None if none was found
    optimal: bool  # whether it is proven to be the best by the measure
    bound: float = 0.0  # nothing that meets the policy scores less; the score itself if it is proven to be the best
    minimal: tuple[Levels, ...] | None = None
    """The k-minimal generalizations that were found, if the strategy looks for them: all, unless it stopped."""
    stopped: str = ""  # the limit that ended the search early
    satisfying: tuple[Levels, ...] | None = None
    """All generalizations that meet the policy, if the strategy finds them all and did not stop."""
    exhaustive: bool = True
    """Without a result: whether it is proven that nothing meets the policy."""


def minimal_elements(search: LatticeSearch, generalizations: Iterable[Levels]) -> tuple[Levels, ...]:
    """The generalizations with none of the others strictly below them, in lexicographic order."""
    minimal, index = [], DominanceIndex(search.lattice.top)
    for levels in sorted(generalizations, key=lambda levels: (sum(levels), levels)):
        if not index.has_below(levels):
            index.add(levels)
            minimal.append(levels)
    return tuple(sorted(minimal))


def conclude(search: LatticeSearch, stopped: str, *, only_minimal: bool) -> Outcome:
    """The outcome of a search that has checked every k-minimal generalization, unless it was stopped.

    Every generalization that meets the policy is at or above a k-minimal one. So the best is proven if nothing above a
    k-minimal generalization can score less, by its bound and by the figures of its check. That always holds for
    `height` and `relative_height`, and for other measures without suppression, where scores rise with every step up.
    With suppression it seldom does, because higher generalizations suppress fewer rows.
    """
    minimal = minimal_elements(search, search.scores)
    measure = search.measure
    if stopped:
        minimal = tuple(levels for levels in minimal if _is_certainly_minimal(search, levels))
        best = search.choose_preferred(minimal if only_minimal and minimal else search.scores)
        return Outcome(best, False, measure.bound(search.lattice.bottom), minimal, stopped)
    best = search.choose_preferred(minimal if only_minimal else search.scores)
    if best is None:
        return Outcome(None, optimal=False, minimal=())
    bounds = {levels: max(measure.bound(levels), measure.bound_above(search.figures[levels])) for levels in minimal}
    return Outcome(best, *prove_best(search, best, bounds), minimal)


def prove_best(search: LatticeSearch, best: Levels, bounds: Mapping[Levels, float]) -> tuple[bool, float]:
    """Whether bounds prove a generalization to be the best, and the bound on all that meet the policy."""
    score = search.scores[best]
    if any(search.precedes(bound, levels, best) for levels, bound in bounds.items()):
        return False, min(score, *bounds.values())
    return True, score


def _is_certainly_minimal(search: LatticeSearch, levels: Levels) -> bool:
    bottom = search.lattice.bottom
    lower = [(*levels[:i], level - 1, *levels[i + 1 :]) for i, level in enumerate(levels) if level > bottom[i]]
    return all(search.can_be_feasible(predecessor) is False for predecessor in lower)


class PredictiveTags:
    """Conclusions about k-minimality from the checks of a search."""

    def __init__(self, search: LatticeSearch) -> None:
        self.search = search
        self._feasible = DominanceIndex(search.lattice.top)

    def has_feasible_below(self, levels: Levels) -> bool:
        """Whether a generalization, or one below it, is known to meet the policy, so nothing above it is k-minimal."""
        return self._feasible.has_below(levels)

    def is_infeasible(self, levels: Levels) -> bool:
        """Whether neither a generalization nor anything below it can meet the policy."""
        return self.search.can_be_feasible(levels) is False

    def is_open(self, levels: Levels) -> bool:
        """Whether a generalization still has to be checked."""
        is_checked = levels in self.search.figures
        return not (is_checked or self.has_feasible_below(levels) or self.is_infeasible(levels))

    def check(self, levels: Levels) -> bool:
        """Check whether a generalization meets the policy."""
        is_feasible = self.search.is_feasible(levels)
        if is_feasible:
            self._feasible.add(levels)
        return is_feasible
