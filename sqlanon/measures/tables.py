"""Measures of the whole release: suppressed rows, and the number and size of its classes."""

# ruff: noqa: D102 - what the measures override is documented once, in Measure

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sqlanon.measures.base import Figures, Measure

if TYPE_CHECKING:
    from sqlanon.support.coding import Levels


class Suppression(Measure):
    """Minimum suppression of Samarati and Sweeney (1998)."""

    name = "suppression"
    formula = "the number of suppressed rows"
    description = "the number of rows left out (suppression)"
    derivable_from = "counts"

    def lift(self, levels: Levels, figures: Figures) -> float:
        return float(figures.suppressed_rows)

    def max_suppressed_rows(self, cost: float) -> int:
        return int(cost)

    def score(self, levels: Levels, figures: Figures) -> float:
        return float(figures.suppressed_rows)


class _ClassCount(Measure):
    """Bounds shared by the measures that count classes.

    A kept class stays in a kept class when classes merge, and a new one takes at least ``min_class_rows`` suppressed
    rows: that bounds the kept classes above a checked generalization.
    """

    counts_classes = True
    derivable_from = "counts"
    bounds_above = True

    def max_classes(self) -> int:
        """The maximum number of kept classes of any generalization."""
        return self.marginals.rows // self.min_class_rows

    def most_after(self, figures: Figures) -> int:
        """The maximum number of kept classes at a checked generalization and above it."""
        return figures.classes + figures.suppressed_rows // self.min_class_rows

    def lift(self, levels: Levels, figures: Figures) -> float:
        """The number of classes that suppressed rows cannot form.

        Both counts of classes assume that every suppressed row may become part of a new class. The number is rounded
        down, because ⌊a − b⌋ is at most ⌊a⌋ − ⌊b⌋.
        """
        return float(figures.suppressed_rows // self.min_class_rows)


class Distinct(_ClassCount):
    """Maximum distribution of Samarati and Sweeney (1998)."""

    name = "distinct"
    formula = "the number of distinct released tuples, to maximise"
    description = "the number of different rows (distinct; more is better)"
    is_maximized = True

    def bound(self, levels: Levels) -> float:
        return -float(self.max_classes())

    def bound_above(self, figures: Figures) -> float:
        return -float(self.most_after(figures))

    def score(self, levels: Levels, figures: Figures) -> float:
        return -float(figures.classes)


class AverageClassSize(_ClassCount):
    """The average size of a class, with suppressed rows as one class."""

    name = "average_class_size"
    formula = "rows / (kept classes + 1 if any row is suppressed)"
    description = "the average size of a class (average class size)"

    def bound(self, levels: Levels) -> float:
        return self.marginals.rows / (self.max_classes() + 1)

    def bound_above(self, figures: Figures) -> float:
        return self.marginals.rows / max(1, self.most_after(figures) + bool(figures.suppressed_rows))

    def raise_bound(self, bound: float, lift: float) -> float:
        return self.marginals.rows / max(1.0, self.marginals.rows / bound - lift)

    def score(self, levels: Levels, figures: Figures) -> float:
        return self.marginals.rows / (figures.classes + bool(figures.suppressed_rows))


class Discernibility(Measure):
    """The number of indistinguishable rows.

    Source: R. Bayardo, R. Agrawal, "Data privacy through optimal k-anonymization" (2005), metric C_DM.
    """

    name = "discernibility"
    formula = "Σ over kept classes of size² + rows × suppressed rows"
    description = "how many rows look alike (discernibility)"
    counts_classes = True
    derivable_from = "counts"
    bounds_above = True
    needs_squares = True

    def bound(self, levels: Levels) -> float:
        return float(self.marginals.rows) * self._least

    def bound_above(self, figures: Figures) -> float:
        # Kept classes only grow; a suppressed row costs at least the size of the class that it joins.
        return figures.squared_sizes + float(figures.suppressed_rows) * self._least

    def lift(self, levels: Levels, figures: Figures) -> float:
        """The cost of the suppressed rows beyond their cost in both bounds: each counts as the whole table, and in the
        bounds as the smallest class."""
        return float(figures.suppressed_rows) * (self.marginals.rows - self._least)

    def max_suppressed_rows(self, cost: float) -> int:
        rows = self.marginals.rows
        if rows == self._least:
            return rows
        return math.floor((cost * (1 + 1e-9) - self.bound(())) / (rows - self._least))

    @property
    def _least(self) -> int:
        return min(self.min_class_rows, self.marginals.rows)

    def score(self, levels: Levels, figures: Figures) -> float:
        return figures.squared_sizes + float(self.marginals.rows) * figures.suppressed_rows
