"""The lattice of generalizations."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

from sqlanon.queries.coding import Levels


@dataclass(frozen=True)
class Lattice:
    """All generalizations between a bottom and a top, attributes in the policy's order.

    >>> lattice = Lattice(("sex", "age"), (0, 0), (1, 3))
    >>> lattice.size
    8
    """

    attributes: tuple[str, ...]
    bottom: Levels
    top: Levels

    @property
    def size(self) -> int:
        """The number of generalizations."""
        return math.prod(high - low + 1 for low, high in zip(self.bottom, self.top, strict=True))

    def ascend(
        self, levels: Levels, price: Callable[[int, int], float], is_open: Callable[[Levels], bool]
    ) -> list[Levels]:
        """An ascending path from a generalization, without it: the step of the least price first.

        Parameters
        ----------
        price:
            Of a step up, by attribute and level. Prices that are equal go by the attributes' order.
        is_open:
            Whether a generalization may be on the path. Above one that may not, none may.

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
        """Level by attribute."""
        return dict(zip(self.attributes, levels, strict=True))

    @staticmethod
    def _above(levels: Levels, attribute: int) -> Levels:
        return (*levels[:attribute], levels[attribute] + 1, *levels[attribute + 1 :])


Progress = Callable[[int, int, float | None], None]
"""Told how many generalizations are open, how many are checked, and the best score so far."""
