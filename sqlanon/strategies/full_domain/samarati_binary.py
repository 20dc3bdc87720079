"""Strategy ``samarati-binary``: the least height at which a generalization satisfies, by binary search on height.

Where something of a height satisfies, so does something of every greater height, as far as requirements are monotone.
With MaxSup, the limit of suppressed rows, as in the paper. The paper takes any that satisfies at the least height; here
all of that height are looked at, and the preferred one by the policy's measure is taken.

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
    """Find the least height; choose by the measure among all that satisfy there.

    With the measure `height` it is proven to be the best, if requirements are monotone.
    """
    lattice, measure, stopped = search.lattice, search.measure, ""
    if not search.check(lattice.top):
        return Outcome(None, optimal=False)
    low, high = sum(lattice.bottom), sum(lattice.top)
    left = [lattice.bottom]
    try:
        while low < high:
            middle = (low + high) // 2
            if any(search.satisfies(levels) for levels in _open(search, middle, [])):
                high = middle
            else:
                low = middle + 1
        above: list[Levels] = []
        for levels in _open(search, low, above):
            search.satisfies(levels)
        if not any(True for _ in _open(search, low - 1, [])):
            left = above
    except LimitReachedError as reached:
        stopped = str(reached)
    least = min(map(sum, search.scores), default=0)
    best = search.choose_preferred(levels for levels in search.scores if sum(levels) == least)
    if best is None:
        return Outcome(None, optimal=False, stopped=stopped, exhaustive=False)
    optimal, bound = prove_best(search, best, {levels: measure.bound(levels) for levels in left})
    return Outcome(best, optimal and not stopped, bound, stopped=stopped)


def _open(search: LatticeSearch, height: int, above: list[Levels]) -> Iterator[Levels]:
    """Generalizations of at most a height that are not hopeless; all of that very height among them.

    Works through the lattice in boxes: what is hopeless is left out with all below it, and so is what is below one
    that was told of.
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
        excluded = search.find_pruned_top(box)
        if excluded is None and search.can_satisfy(levels) is None:
            # A hopeless one further up rules out more of this height than the one that is asked about.
            search.decide_path([levels, *search.extend_path(levels)], 1, box)
            excluded = search.find_pruned_top(box)
        if excluded is None:
            yield levels
            excluded = levels
        waiting += search.split_box(box._replace(low=low), excluded)


def _climb(lattice: Lattice, low: Levels, high: Levels, height: int) -> Levels:
    """A generalization of a box, of at most a height, as high as the steps of the attributes, one by one, lead."""
    left = height - sum(low)
    levels = []
    for i, (least, most) in enumerate(zip(low, high, strict=True)):
        levels.append(max(level for level in lattice.levels(i) if least <= level <= min(most, least + left)))
        left -= levels[-1] - least
    return tuple(levels)


run = lattice_strategy(samarati_binary)
