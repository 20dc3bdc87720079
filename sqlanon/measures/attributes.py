"""Measures that combine figures of single attributes: `loss`, `precision`, the heights, `entropy`."""

# ruff: noqa: D102 - what the measures override is documented once, in Measure

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlanon.measures.base import Figures, Marginals, Measure, RecodingTotals

if TYPE_CHECKING:
    from sqlanon.support.coding import Levels


class Loss(Measure):
    """The share of the hierarchies' leaves that become indistinguishable."""

    name = "loss"
    formula = "mean over all rows of (leaves(v) − 1) / (leaves − 1); a suppressed row counts 1"
    description = "how much detail the values lose (loss, 0 to 1)"
    aggregates = True
    needs_leaves = True

    def __init__(
        self, marginals: Marginals, weights: Sequence[float] = (), aggregate: str = "mean", min_class_rows: int = 1
    ) -> None:
        super().__init__(marginals, weights, aggregate, min_class_rows)
        m = marginals
        self._bounds = [
            [((leaf_sum / (leaves - 1) if leaves > 1 else 0.0) + unknown) / m.rows for leaf_sum in leaf_sums]
            for leaves, unknown, leaf_sums in zip(m.leaves, m.unknown, m.leaf_sums, strict=True)
        ]
        # A search computes very many bounds, so terms of sums are computed once.
        total = {"mean": math.fsum(self.weights), "sum": 1.0}.get(aggregate)
        self._shares = [weight / total for weight in self.weights] if total else []
        self._parts = total and [
            [share * value for value in row] for share, row in zip(self._shares, self._bounds, strict=True)
        ]

    def bound(self, levels: Levels) -> float:
        """The score if only rows with unknown values were suppressed."""
        if self._parts:
            return math.fsum([row[level] for row, level in zip(self._parts, levels, strict=True)])
        return self.combine([row[level] for row, level in zip(self._bounds, levels, strict=True)], self.weights)

    def bound_with(self, levels: Levels, suppressed_rows: int) -> float:
        """No attribute loses less than the share of suppressed rows."""
        least = suppressed_rows / self.marginals.rows
        if self._parts:
            rows = zip(self._parts, self._shares, levels, strict=True)
            return math.fsum([max(row[level], share * least) for row, share, level in rows])
        losses = [max(row[level], least) for row, level in zip(self._bounds, levels, strict=True)]
        return self.combine(losses, self.weights)

    def lift(self, levels: Levels, figures: Figures) -> float:
        """The loss of the suppressed rows beyond their loss in the bound, which only shrinks at lower levels."""
        gains = [self._gain(i, level, figures) for i, level in enumerate(levels)]
        return self.least_gain(gains, self.weights)

    def _gain(self, attribute: int, level: int, figures: Figures) -> float:
        m, span = self.marginals, self.marginals.leaves[attribute] - 1
        known = figures.suppressed_rows - m.unknown[attribute]  # the bound has the others with 1
        if level == m.heights[attribute] and span:
            return 0.0
        return (known - (figures.suppressed_leaves.get(attribute, 0.0) / span if span else 0.0)) / m.rows

    def score(self, levels: Levels, figures: Figures) -> float:
        return self.combine([self._loss(i, level, figures) for i, level in enumerate(levels)], self.weights)

    def _loss(self, attribute: int, level: int, figures: Figures) -> float:
        m, suppressed = self.marginals, figures.suppressed_rows
        span = m.leaves[attribute] - 1
        if not span:
            return suppressed / m.rows
        if level == m.heights[attribute]:
            lost = float((suppressed - m.unknown[attribute]) * span)
        else:
            lost = figures.suppressed_leaves.get(attribute, 0.0)
        return ((m.leaf_sums[attribute][level] - lost) / span + suppressed) / m.rows

    def score_recoding(self, figures: Figures, totals: RecodingTotals) -> float:
        m = self.marginals
        spans = [max(leaves - 1, 1) for leaves in m.leaves]  # a hierarchy with one leaf loses nothing
        parts = [
            (total / span + figures.suppressed_rows) / m.rows for total, span in zip(totals.leaves, spans, strict=True)
        ]
        return self.combine(parts, self.weights)


class Precision(Measure):
    """The share of the hierarchies' heights by which values are generalized.

    Source: L. Sweeney, "Achieving k-anonymity privacy protection using generalization and suppression" (2002),
    definition of Prec; reported as loss.
    """

    name = "precision"
    formula = "mean over all rows of level / height; a suppressed row counts 1 (as loss: 0 is best)"
    description = "how far the values are generalized (precision, as loss from 0 to 1)"
    aggregates = True
    derivable_from = "levels"

    def bound(self, levels: Levels) -> float:
        return self._with(levels, self._unknown_share)

    def bound_with(self, levels: Levels, suppressed_rows: int) -> float:
        return self._with(levels, max(self._unknown_share, suppressed_rows / self.marginals.rows))

    def lift(self, levels: Levels, figures: Figures) -> float:
        """The loss of the suppressed rows beyond level / height, their loss in the bound, which shrinks at lower
        levels."""
        more = max(figures.suppressed_rows / self.marginals.rows - self._unknown_share, 0.0)
        return self.least_gain([more * (1 - share) for share in self._shares(levels)], self.weights)

    def score(self, levels: Levels, figures: Figures) -> float:
        return self._with(levels, figures.suppressed_rows / self.marginals.rows)

    @property
    def _unknown_share(self) -> float:
        return min(1.0, max(self.marginals.unknown, default=0) / self.marginals.rows)

    def _shares(self, levels: Levels) -> list[float]:
        return [level / h if h else 0.0 for level, h in zip(levels, self.marginals.heights, strict=True)]

    def _with(self, levels: Levels, suppressed: float) -> float:
        shares = self._shares(levels)
        return self.combine([share * (1 - suppressed) + suppressed for share in shares], self.weights)

    def score_recoding(self, figures: Figures, totals: RecodingTotals) -> float:
        m = self.marginals
        parts = [
            (total / max(height, 1) + figures.suppressed_rows) / m.rows
            for total, height in zip(totals.levels, m.heights, strict=True)
        ]
        return self.combine(parts, self.weights)


class Height(Measure):
    """The minimum absolute distance of Samarati and Sweeney (1998)."""

    name = "height"
    formula = "Σ level; suppression does not count"
    description = "the number of generalization steps (height)"
    needs_levels = True
    counts_steps = True
    derivable_from = "levels"
    counts_suppression = False

    def bound(self, levels: Levels) -> float:
        return float(sum(levels))

    def score(self, levels: Levels, figures: Figures) -> float:
        return float(sum(levels))


class RelativeHeight(Measure):
    """The minimum relative distance of Samarati and Sweeney (1998)."""

    name = "relative_height"
    formula = "Σ level / height; suppression does not count"
    description = "the number of generalization steps, as a share of the height of each hierarchy (relative height)"
    needs_levels = True
    derivable_from = "levels"
    counts_suppression = False

    def bound(self, levels: Levels) -> float:
        pairs = zip(levels, self.marginals.heights, strict=True)
        return math.fsum(level / height for level, height in pairs if height)

    def score(self, levels: Levels, figures: Figures) -> float:
        return self.bound(levels)


class Entropy(Measure):
    """Non-uniform entropy, summed over attributes, with the entropy of the values among the suppressed rows."""

    name = "entropy"
    formula = (
        "Σ over attributes and all rows of −log2(count(value) / count(its generalized value)); plus, for suppressed "
        "rows, −log2(count of its generalized value among the suppressed / suppressed rows)"
    )
    description = "the information that the values lose (non-uniform entropy)"
    needs_levels = True
    compares_with_source = True
    needs_entropy = True

    def bound(self, levels: Levels) -> float:
        return math.fsum(row[level] for row, level in zip(self.marginals.entropies, levels, strict=True))

    def lift(self, levels: Levels, figures: Figures) -> float:
        """The entropy of the suppressed rows, which grows with more rows and with finer values.

        H is concave, so n·H of two sets of rows together is at least the sum of theirs.
        """
        return figures.suppressed_entropy

    def score(self, levels: Levels, figures: Figures) -> float:
        return self.bound(levels) + figures.suppressed_entropy
