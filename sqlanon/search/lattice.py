"""The lattice of generalizations."""

from __future__ import annotations

import heapq
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass

from sqlanon.coding import Levels
from sqlanon.sources.earlier import EARLIER


@dataclass(frozen=True)
class Lattice:
    """All generalizations between a bottom and a top, attributes in the policy's order.

    Attributes
    ----------
    attributes, bottom, top:
        The quasi-identifiers, and the lowest and the highest level of each.
    holes:
        Levels between these that no release may have, by attribute; empty if there are none. A search may learn from
        such a generalization, and never chooses it.

    >>> lattice = Lattice(("sex", "age"), (0, 0), (1, 3), (frozenset(), frozenset({1, 2})))
    >>> lattice.size, lattice.permits((0, 1)), lattice.lift((0, 1))
    (4, False, (0, 3))
    """

    attributes: tuple[str, ...]
    bottom: Levels
    top: Levels
    holes: tuple[frozenset[int], ...] = ()

    @property
    def size(self) -> int:
        """The number of generalizations."""
        return math.prod(len(self.levels(attribute)) for attribute in range(len(self.top)))

    def levels(self, attribute: int) -> list[int]:
        """The levels that a release may have of an attribute, the lowest first."""
        hole = self.holes[attribute] if self.holes else ()
        return [level for level in range(self.bottom[attribute], self.top[attribute] + 1) if level not in hole]

    def above(self, levels: Levels) -> list[Levels]:
        """The direct successors of a generalization."""
        return [self._above(levels, i) for i, level in enumerate(levels) if level < self.top[i]]

    def permits(self, levels: Levels) -> bool:
        """Whether a generalization is one of the lattice: between bottom and top, and in no hole."""
        inside = all(map(operator.le, self.bottom, levels)) and all(map(operator.le, levels, self.top))
        return inside and not any(map(operator.contains, self.holes, levels))

    def lift(self, levels: Levels) -> Levels:
        """The lowest of the lattice at or above levels that are between bottom and top."""
        if not self.holes:
            return levels
        lifted = []
        for level, hole in zip(levels, self.holes, strict=True):
            while level in hole:
                level += 1  # noqa: PLW2901 - the top is in no hole
            lifted.append(level)
        return tuple(lifted)

    def ascend(
        self, levels: Levels, price: Callable[[int, int], float], is_open: Callable[[Levels], bool]
    ) -> list[Levels]:
        """An ascending path from a generalization, without it: the step of the least price first.

        >>> lattice = Lattice(("sex", "age"), (0, 0), (1, 3))
        >>> lattice.ascend((0, 0), lambda attribute, level: level, lambda levels: levels[1] < 2)
        [(1, 0), (1, 1)]
        """
        path: list[Levels] = []
        steps = [(price(i, level), i) for i, level in enumerate(levels) if level < self.top[i]]
        heapq.heapify(steps)
        while steps:
            i = steps[0][1]
            up = self._above(levels, i)
            if not is_open(up):
                heapq.heappop(steps)
                continue
            path.append(up)
            levels = up
            if levels[i] < self.top[i]:
                heapq.heapreplace(steps, (price(i, levels[i]), i))
            else:
                heapq.heappop(steps)
        return path

    def named(self, levels: Levels) -> dict[str, int]:
        """Level by attribute of the policy."""
        return {name: level for name, level in zip(self.attributes, levels, strict=True) if name != EARLIER}

    @staticmethod
    def _above(levels: Levels, attribute: int) -> Levels:
        return (*levels[:attribute], levels[attribute] + 1, *levels[attribute + 1 :])


Progress = Callable[[int, int, float | None], None]
"""Told how many generalizations are open, how many are checked, and the best score so far."""
