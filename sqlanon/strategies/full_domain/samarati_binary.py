"""Strategy ``samarati-binary``: the least height with a feasible generalization, by binary search on height.

With monotone requirements, if a height has a feasible generalization, so has every greater height. The suppression
limit is the paper's MaxSup. The paper takes any feasible generalization at the least height; here all of that height
are checked, and the preferred one by the measure is chosen.

Source: P. Samarati, "Protecting respondents' identities in microdata release" (2001), section on computing a
k-minimal generalization.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlanon.strategies.lattice.lattice import Box, Lattice
from sqlanon.strategies.lattice.limits import LimitReachedError
from sqlanon.strategies.lattice.outcome import Outcome, prove_best
from sqlanon.strategies.lattice.search import LatticeSearch
from sqlanon.strategies.lattice.task import lattice_strategy
from sqlanon.support.coding import Levels


def samarati_binary(search: LatticeSearch) -> Outcome:
    """Find the least height; choose by the measure among all feasible generalizations of that height.

    With the measure `height` and monotone requirements, the choice is proven to be the best.
    """
    lattice, measure, stopped = search.lattice, search.measure, ""
    if not search.check(lattice.top):
        return Outcome(None, optimal=False)
    low, high = sum(lattice.bottom), sum(lattice.top)
    open_lows = [lattice.bottom]
    try:
        while low < high:
            middle = (low + high) // 2
            if any(search.is_feasible(levels) for levels in _iterate_undecided(search, middle, [])):
                high = middle
            else:
                low = middle + 1
        above: list[Levels] = []
        for levels in _iterate_undecided(search, low, above):
            search.is_feasible(levels)
        if not any(True for _ in _iterate_undecided(search, low - 1, [])):
            open_lows = above
    except LimitReachedError as limit:
        stopped = str(limit)
    least_height = min(map(sum, search.scores), default=0)
    best = search.choose_preferred(levels for levels in search.scores if sum(levels) == least_height)
    if best is None:
        return Outcome(None, optimal=False, stopped=stopped, exhaustive=False)
    optimal, bound = prove_best(search, best, {levels: measure.bound(levels) for levels in open_lows})
    return Outcome(best, optimal and not stopped, bound, stopped=stopped)


def _iterate_undecided(search: LatticeSearch, height: int, above: list[Levels]) -> Iterator[Levels]:
    """Generalizations of at most a height that may be feasible, with all of exactly that height among them.

    Walks the lattice in boxes and prunes what the checks exclude, and what is below a generalization already returned.
    Adds the low ends of boxes above the height to ``above``.
    """
    lattice = search.lattice
    waiting = [(lattice.lift(lattice.bottom), lattice.top)]
    while waiting:
        low, high = waiting.pop()
        if sum(low) > height:
            above.append(low)
            continue
        levels = _climb(lattice, low, high, height)
        search.visit(levels)
        box = Box(0.0, sum(levels), levels, high)
        pruned_top = search.find_pruned_top(box)
        if pruned_top is None and search.can_be_feasible(levels) is None:
            # An infeasible generalization further up prunes more of this height.
            search.decide_path([levels, *search.extend_path(levels)], 1, box)
            pruned_top = search.find_pruned_top(box)
        if pruned_top is None:
            yield levels
            pruned_top = levels
        waiting += search.split_box(box._replace(low=low), pruned_top)


def _climb(lattice: Lattice, low: Levels, high: Levels, height: int) -> Levels:
    """The generalization of a box with at most this height that raises one attribute after the other as far as it
    can."""
    steps_left = height - sum(low)
    levels = []
    for i, (least, most) in enumerate(zip(low, high, strict=True)):
        permitted = lattice.levels(i)
        levels.append(max(level for level in permitted if least <= level <= min(most, least + steps_left)))
        steps_left -= levels[-1] - least
    return tuple(levels)


run = lattice_strategy(samarati_binary)
