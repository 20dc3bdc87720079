"""How many rows a generalization will probably lose: it saves checks, and proves nothing."""

from __future__ import annotations

import math

from sqlanon.measures import Marginals
from sqlanon.support.coding import Levels

PACE = 0.5
"""This share of an error is mended at once."""

MISSED, HIT = 0.15, 0.05
"""So much is drawn back after a miss, and put forward after a hit, in ln(1 + rows lost)."""


class Forecast:
    """Learns from each check: ln(1 + rows lost) is taken for a sum, with a part for each attribute's level.

    The parts begin with the mean number of leaves under a value: twice as many leaves, half as many classes. Each
    error is then spread over the parts that made it (least mean squares). What is asked for is a generalization that
    is just about hopeless: the higher it is, the more it rules out. How far to go is learnt, too: a little further
    after each hit, back after a miss.
    """

    def __init__(self, marginals: Marginals) -> None:
        self._parts = [[-math.log1p(leaves / marginals.rows) for leaves in row] for row in marginals.leaf_sums]
        self._base: float | None = None
        self._margin = 0.0

    def guess(self, levels: Levels) -> float:
        """Ln(1 + rows lost) of a generalization."""
        return (self._base or 0.0) + sum([part[level] for part, level in zip(self._parts, levels, strict=True)])

    def learn(self, levels: Levels, lost: float) -> None:
        """Learn from a generalization that was checked."""
        error = math.log1p(lost) - self.guess(levels)
        if self._base is None:
            self._base = error
            return
        self._base += PACE * error
        shared = PACE * error / len(levels)
        for part, level in zip(self._parts, levels, strict=True):
            part[level] += shared

    def highest(self, path: list[Levels], low: int, high: int, allowed_rows: int) -> int:
        """The index, from ``low`` and below ``high``, of the highest of a path that is probably hopeless; else
        ``low``."""
        border = math.log1p(allowed_rows) + self._margin
        return next((i for i in range(high - 1, low, -1) if self.guess(path[i]) >= border), low)

    def adjust(self, hopeless: bool) -> None:
        """Learn whether what `highest` gave was hopeless."""
        self._margin += -HIT if hopeless else MISSED

    def begin_again(self) -> None:
        """Reset the margin, which was learnt at another border."""
        self._margin = 0.0

    def step(self, attribute: int, level: int) -> float:
        """How much nearer to the border a step up from a level brings: by how much the guess falls."""
        return self._parts[attribute][level] - self._parts[attribute][level + 1]
