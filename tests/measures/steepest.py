"""A measure in one file outside the package: the attribute that is generalized furthest decides."""

from __future__ import annotations

from sqlanon.coding import Levels
from sqlanon.measures import Figures, Measure, Totals


class Steepest(Measure):
    """The largest share of its hierarchy that an attribute climbs; a suppressed row counts as the whole of it."""

    name = "steepest"
    formula = "the greatest mean over all rows of level / height of an attribute; a suppressed row counts 1"
    words = "how far the worst column is generalized (steepest)"
    follows_from = "levels"

    def bound(self, levels: Levels) -> float:
        return max(level / (height or 1) for level, height in zip(levels, self.marginals.heights, strict=True))

    def score(self, levels: Levels, figures: Figures) -> float:
        lost = figures.suppressed_rows / self.marginals.rows
        return self.bound(levels) * (1 - lost) + lost

    def recoded(self, figures: Figures, totals: Totals) -> float:
        pairs = zip(totals.levels, self.marginals.heights, strict=True)
        return max((total / (height or 1) + figures.suppressed_rows) / self.marginals.rows for total, height in pairs)
