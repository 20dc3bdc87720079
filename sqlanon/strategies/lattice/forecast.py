"""Forecast of suppressed rows, which saves checks and proves nothing."""

from __future__ import annotations

import math

from sqlanon.measures import Marginals
from sqlanon.support.coding import Levels

LEARNING_RATE = 0.5
"""Share of an error that is corrected at once."""

MISS_STEP, HIT_STEP = 0.15, 0.05
"""Changes of the margin after a miss and a hit, in ln(1 + rows)."""


class Forecast:
    """Predicts ln(1 + rows that a generalization suppresses) as a sum with one term for each attribute's level.

    The terms start with the mean number of leaves under a value: twice as many leaves, half as many classes. Each error
    is spread over the terms of its generalization (least mean squares). A search wants the highest generalization that
    is infeasible, because it prunes most; a margin learns how far to go: a little further after a hit, back after a
    miss.
    """

    def __init__(self, marginals: Marginals) -> None:
        self._terms = [[-math.log1p(leaves / marginals.rows) for leaves in sums] for sums in marginals.leaf_sums]
        self._base: float | None = None
        self._margin = 0.0

    def predict(self, levels: Levels) -> float:
        """Ln(1 + suppressed rows) of a generalization."""
        return (self._base or 0.0) + sum([terms[level] for terms, level in zip(self._terms, levels, strict=True)])

    def learn(self, levels: Levels, suppressed_rows: float) -> None:
        """Learn from a checked generalization."""
        error = math.log1p(suppressed_rows) - self.predict(levels)
        if self._base is None:
            self._base = error
            return
        self._base += LEARNING_RATE * error
        share = LEARNING_RATE * error / len(levels)
        for terms, level in zip(self._terms, levels, strict=True):
            terms[level] += share

    def highest_infeasible(self, path: list[Levels], start: int, end: int, allowed_rows: int) -> int:
        """The index in ``path[start:end]`` of the highest generalization that is probably infeasible, or ``start``."""
        border = math.log1p(allowed_rows) + self._margin
        return next((i for i in range(end - 1, start, -1) if self.predict(path[i]) >= border), start)

    def adjust_margin(self, infeasible: bool) -> None:
        """Learn whether the choice of `highest_infeasible` was infeasible."""
        self._margin += -HIT_STEP if infeasible else MISS_STEP

    def reset_margin(self) -> None:
        """Reset the margin after the suppression limit of the search has changed."""
        self._margin = 0.0

    def step_gain(self, attribute: int, level: int) -> float:
        """The decrease of the prediction by a step up from a level."""
        return self._terms[attribute][level] - self._terms[attribute][level + 1]
