"""Strategy ``samarati``: the k-minimal generalizations by distance vectors, and the preferred among them.

An outlier that is kept shares its class with other combinations, and the generalization is at or above its vectors to
all of them. So the paper looks among the vectors only: it lays them out as a directed acyclic graph, follows each path
upward to the first generalization that satisfies (a *local minimal* one), and never visits one twice. The k-minimal
ones are those local minimal ones that are above no other.

The theorem that this rests on (a k-minimal generalization is the vector of an outlier and some combination) does not
hold in general. Of {(a1, b1), (a2, b1), (c1, d1), (c1, d2)}, where a1 and a2 are siblings, as are d1 and d2, and all
else meets at the top, the vectors are (1, 0), (0, 1) and (2, 2); with k = 2 the minimal generalization is (1, 1). It is
a join of vectors; and where nothing is to be done, the lowest generalization is minimal. So the graph here has the
lowest generalization and all joins, too: with it nothing is missed, as far as `Data.joins_suffice` says.

A path has to go through all that is in the graph below the border of what satisfies: for a large lattice, `k_minimal`
finds the same with fewer checks.

Source: P. Samarati, L. Sweeney, "Protecting privacy when disclosing information" (1998), section on computing a
preferred generalization.

Strategy ``samarati-binary``: the least height at which a generalization satisfies, by binary search on height.

Where something of a height satisfies, so does something of every greater height, as far as requirements are monotone.
With MaxSup, the limit of suppressed rows, as in the paper. The paper takes any that satisfies at the least height; here
all of that height are looked at, and the preferred one by the policy's measure is taken.

Source: P. Samarati, "Protecting respondents' identities in microdata release" (2001), section on computing a
k-minimal generalization.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sqlanon.coding import Levels
from sqlanon.search.border import outcome_of, proven
from sqlanon.search.boxes import Box
from sqlanon.search.budget import LimitReachedError
from sqlanon.search.dominance import Dominance
from sqlanon.search.lattice import Lattice
from sqlanon.search.task import Outcome, Search


def samarati_binary(search: Search) -> Outcome:
    """Find the least height; choose by the measure among all that satisfy there.

    With the measure `height` it is proven to be the best, if requirements are monotone.
    """
    lattice, measure, stopped = search.lattice, search.measure, ""
    if not search.ask(lattice.top):
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
    best = search.preferred(levels for levels in search.scores if sum(levels) == least)
    if best is None:
        return Outcome(None, optimal=False, stopped=stopped, exhaustive=False)
    optimal, bound = proven(search, best, {levels: measure.bound(levels) for levels in left})
    return Outcome(best, optimal and not stopped, bound, stopped=stopped)


def _open(search: Search, height: int, above: list[Levels]) -> Iterator[Levels]:
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
        search.look_at(levels)
        box = Box(0.0, sum(levels), levels, high)
        excluded = search.excluded(box)
        if excluded is None and search.may(levels) is None:
            # A hopeless one further up rules out more of this height than the one that is asked about.
            search.settle([levels, *search.beyond(levels)], 1, box)
            excluded = search.excluded(box)
        if excluded is None:
            yield levels
            excluded = levels
        waiting += search.rest(box._replace(low=low), excluded)


def _climb(lattice: Lattice, low: Levels, high: Levels, height: int) -> Levels:
    """A generalization of a box, of at most a height, as high as the steps of the attributes, one by one, lead."""
    left = height - sum(low)
    levels = []
    for i, (least, most) in enumerate(zip(low, high, strict=True)):
        levels.append(max(level for level in lattice.levels(i) if least <= level <= min(most, least + left)))
        left -= levels[-1] - least
    return tuple(levels)


def samarati(search: Search) -> Outcome:
    """Find the k-minimal generalizations among joins of distance vectors; choose by the measure.

    Where joins do not suffice, more generalizations may be k-minimal: then only those are told of that are certain to
    be, and nothing is proven of the best.
    """
    if not search.ask(search.lattice.top):
        return Outcome(None, optimal=False, minimal=())
    try:
        _Paths(search).follow()
    except LimitReachedError as reached:
        return outcome_of(search, str(reached), only_minimal=True)
    if search.data.joins_suffice:
        return outcome_of(search, "", only_minimal=True)
    return replace(outcome_of(search, "for want of proof", only_minimal=True), stopped="", exhaustive=False)


class _Paths:
    def __init__(self, search: Search) -> None:
        self.search = search
        self.start = search.lattice.lift(search.lattice.bottom)
        self.local = Dominance(search.lattice.top)

    def _vectors(self) -> set[Levels]:
        """The vectors, each as the lowest generalization that a release may have at or above it; or fewer of them, if
        all others are joins of these."""
        search, lattice, start = self.search, self.search.lattice, self.start
        alone = {(*start[:i], level, *start[i + 1 :]) for i in range(len(start)) for level in lattice.levels(i)}
        found: set[Levels] = set()
        for part in search.data.vectors():
            found.update(map(lattice.lift, part))
            search.look_at()
            if alone <= found | {start}:
                return alone
        return found

    def follow(self) -> None:
        """Follow all paths upward from the lowest generalization."""
        search = self.search
        vectors = irreducible(self._vectors(), self.start, search.lattice.top)
        waiting, visited = [self.start], {self.start}
        while waiting:
            search.open = len(waiting)
            levels = waiting.pop()
            search.look_at(levels)
            if self.local.has_below(levels):
                continue
            if search.may(levels) is not False and search.satisfies(levels):
                self.local.add(levels)
                continue
            for up in reversed(self._next(levels, vectors)):
                if up not in visited:
                    visited.add(up)
                    waiting.append(up)

    def _next(self, levels: Levels, vectors: list[Levels]) -> list[Levels]:
        """What comes next above a generalization in the graph."""
        joins = {tuple(map(max, levels, vector)) for vector in vectors} - {levels}
        least, found = Dominance(self.search.lattice.top), []
        for join in sorted(joins, key=lambda one: (sum(one), one)):
            if not least.has_below(join):
                least.add(join)
                found.append(join)
        return found


def irreducible(vectors: Iterable[Levels], bottom: Levels, top: Levels) -> list[Levels]:
    """Those vectors that are no joins of others: they have the same joins.

    >>> irreducible([(1, 1), (0, 1), (1, 0), (2, 2), (0, 0)], (0, 0), (2, 2))
    [(0, 1), (1, 0), (2, 2)]
    """
    found, seen = [], Dominance(top)
    for vector in sorted(vectors, key=lambda one: (sum(one), one)):
        join = bottom
        for lower in seen.below(vector):
            join = tuple(map(max, join, lower))
            if join == vector:
                break
        if join != vector:
            found.append(vector)
            seen.add(vector)
    return found
