"""The measures: how much a generalization loses, and a bound on that before it is checked.

Every measure is a cost: smaller is better. Each gives three numbers.

- ``bound(levels)``: at most the score of the generalization, from each attribute's own counts alone.
- ``after(figures)``: once a generalization is checked, at most the score of it and of everything above it.
- ``score(levels, figures)``: the score.

The exact meanings stand in the design's table; the names are the policy's.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlanon.queries.classes import Levels

AGGREGATES: Mapping[str, Callable[[Sequence[float], Sequence[float]], float]] = {
    "mean": lambda x, w: math.fsum(map(operator.mul, x, w)) / math.fsum(w),
    "sum": lambda x, w: math.fsum(map(operator.mul, x, w)),
    "max": lambda x, w: max(x),
    "geometric": lambda x, w: math.prod(1 + value for value in x) ** (1 / len(x)) - 1,
}
"""How the attributes' figures combine; the second argument is their weights."""


@dataclass(frozen=True)
class Figures:
    """What a check says of a generalization.

    Attributes
    ----------
    classes, suppressed_rows, smallest_class:
        Kept classes, rows in the others, rows of the smallest kept class (0 where there is none).
    squares:
        Sum of the squared sizes of the kept classes.
    suppressed_leaves:
        For `loss`: for each attribute strictly between bottom and top, the sum over suppressed rows of the leaves
        under its value, less one.
    suppressed_entropy:
        For `entropy`: −Σ over suppressed rows and attributes of log2(count of the value among them / suppressed rows).
    lost:
        At least so many rows are suppressed here and at every lower generalization; None: as many as here.
    count, singles:
        For requirements on the whole table: rows or persons in kept classes, and kept classes of one.
    unmet, too_few:
        For δ-presence: classes of the population that are not kept; those of which too little is in the source.
    estimate_holds:
        Whether an estimate is within its limit, where there is one.
    """

    classes: int
    suppressed_rows: int
    smallest_class: int = 0
    squares: float = 0.0
    lost: float | None = None
    count: int = 0
    singles: int = 0
    unmet: int = 0
    too_few: int = 0
    estimate_holds: bool = True
    suppressed_leaves: Mapping[int, float] = field(default_factory=dict)
    suppressed_entropy: float = 0.0


@dataclass(frozen=True)
class Marginals:
    """What the attributes' own counts tell.

    Attributes
    ----------
    rows:
        Rows of the source.
    heights, leaves:
        Of each quasi-identifier's hierarchy.
    unknown:
        For each, its rows with a value that is missing from the hierarchy.
    leaf_sums:
        For each and each level, the sum over its known rows of the leaves under the value, less one.
    entropies:
        For each and each level, −Σ over rows of log2(count(value) / count(generalized value)). Empty unless asked.
    """

    rows: int
    heights: Levels
    leaves: Levels
    unknown: Levels
    leaf_sums: tuple[tuple[float, ...], ...]
    entropies: tuple[tuple[float, ...], ...] = ()


class Measure:
    """A cost of a generalization. Subclasses give `score`, and the bounds that they know.

    The default bounds say nothing: every cost here is at least 0.

    Parameters
    ----------
    marginals:
        What the attributes' own counts tell.
    weights, aggregate:
        How the attributes' figures combine.
    least_class:
        No class of fewer rows is ever kept: k, where k-anonymity is required.
    """

    needs_leaves = False
    needs_entropy = False
    maximised = False

    def __init__(
        self,
        marginals: Marginals,
        weights: Sequence[float] = (),
        aggregate: str = "mean",
        least_class: int = 1,
    ) -> None:
        self.marginals = marginals
        self.least_class = least_class
        self.weights = tuple(weights) or (1.0,) * len(marginals.heights)
        self.combine = AGGREGATES[aggregate]

    def bound(self, levels: Levels) -> float:
        """At most the score of a generalization that was not checked."""
        return 0.0

    def after(self, figures: Figures) -> float:
        """At most the score of a checked generalization and of every one above it."""
        return 0.0

    def score(self, levels: Levels, figures: Figures) -> float:
        """The score of a checked generalization."""
        raise NotImplementedError

    def shown(self, cost: float) -> float:
        """The score as it is reported: positive where it is maximised."""
        return -cost if self.maximised else cost


class Loss(Measure):
    """Mean over all rows of (leaves(v) − 1) / (leaves − 1); a suppressed row counts 1."""

    needs_leaves = True

    def __init__(
        self,
        marginals: Marginals,
        weights: Sequence[float] = (),
        aggregate: str = "mean",
        least_class: int = 1,
    ) -> None:
        super().__init__(marginals, weights, aggregate, least_class)
        m = marginals
        self._bounds = [
            [((leaf_sum / (leaves - 1) if leaves > 1 else 0.0) + unknown) / m.rows for leaf_sum in leaf_sums]
            for leaves, unknown, leaf_sums in zip(m.leaves, m.unknown, m.leaf_sums, strict=True)
        ]

    def bound(self, levels: Levels) -> float:
        """The score if nothing more than the unknown values had to be suppressed."""
        return self.combine([row[level] for row, level in zip(self._bounds, levels, strict=True)], self.weights)

    def score(self, levels: Levels, figures: Figures) -> float:
        return self.combine([self._of(i, level, figures) for i, level in enumerate(levels)], self.weights)

    def _of(self, attribute: int, level: int, figures: Figures) -> float:
        m, suppressed = self.marginals, figures.suppressed_rows
        span = m.leaves[attribute] - 1
        if not span:
            return suppressed / m.rows
        if level == m.heights[attribute]:
            lost = float((suppressed - m.unknown[attribute]) * span)
        else:
            lost = figures.suppressed_leaves.get(attribute, 0.0)
        return ((m.leaf_sums[attribute][level] - lost) / span + suppressed) / m.rows


class Precision(Measure):
    """Mean over all rows of level / height; a suppressed row counts 1.

    Source: L. Sweeney, "Achieving k-anonymity privacy protection using generalization and suppression" (2002),
    definition of Prec; reported as loss.
    """

    def bound(self, levels: Levels) -> float:
        return self._with(levels, min(1.0, max(self.marginals.unknown, default=0) / self.marginals.rows))

    def score(self, levels: Levels, figures: Figures) -> float:
        return self._with(levels, figures.suppressed_rows / self.marginals.rows)

    def _with(self, levels: Levels, suppressed: float) -> float:
        heights = self.marginals.heights
        shares = [level / height if height else 0.0 for level, height in zip(levels, heights, strict=True)]
        return self.combine([share * (1 - suppressed) + suppressed for share in shares], self.weights)


class Height(Measure):
    """Σ level: the minimum absolute distance of Samarati and Sweeney (1998)."""

    def bound(self, levels: Levels) -> float:
        return float(sum(levels))

    def score(self, levels: Levels, figures: Figures) -> float:
        return float(sum(levels))


class RelativeHeight(Measure):
    """Σ level / height: the minimum relative distance of Samarati and Sweeney (1998)."""

    def bound(self, levels: Levels) -> float:
        pairs = zip(levels, self.marginals.heights, strict=True)
        return math.fsum(level / height for level, height in pairs if height)

    def score(self, levels: Levels, figures: Figures) -> float:
        return self.bound(levels)


class Suppression(Measure):
    """The number of suppressed rows: minimum suppression of Samarati and Sweeney (1998)."""

    def score(self, levels: Levels, figures: Figures) -> float:
        return float(figures.suppressed_rows)


class _ClassCount(Measure):
    """What measures that count classes share.

    A kept class stays in a kept class when classes merge, and a new one takes at least ``least_class`` suppressed
    rows: that bounds the kept classes above a checked generalization.
    """

    def most(self) -> int:
        """At most so many kept classes, anywhere."""
        return self.marginals.rows // self.least_class

    def most_after(self, figures: Figures) -> int:
        """At most so many kept classes at a checked generalization and above it."""
        return figures.classes + figures.suppressed_rows // self.least_class


class Distinct(_ClassCount):
    """The number of distinct released tuples, to maximise: maximum distribution of Samarati and Sweeney (1998)."""

    maximised = True

    def bound(self, levels: Levels) -> float:
        return -float(self.most())

    def after(self, figures: Figures) -> float:
        return -float(self.most_after(figures))

    def score(self, levels: Levels, figures: Figures) -> float:
        return -float(figures.classes)


class AverageClassSize(_ClassCount):
    """Rows / (kept classes + 1 if any row is suppressed)."""

    def bound(self, levels: Levels) -> float:
        return self.marginals.rows / (self.most() + 1)

    def after(self, figures: Figures) -> float:
        return self.marginals.rows / max(1, self.most_after(figures) + bool(figures.suppressed_rows))

    def score(self, levels: Levels, figures: Figures) -> float:
        return self.marginals.rows / (figures.classes + bool(figures.suppressed_rows))


class Discernibility(Measure):
    """Σ over kept classes of size² + rows × suppressed rows.

    Source: R. Bayardo, R. Agrawal, "Data privacy through optimal k-anonymization" (2005), metric C_DM.
    """

    def bound(self, levels: Levels) -> float:
        return float(self.marginals.rows) * self.least_class

    def after(self, figures: Figures) -> float:
        # A kept class only grows; a suppressed row costs at least the size of a class wherever it ends.
        return figures.squares + float(figures.suppressed_rows) * min(self.least_class, self.marginals.rows)

    def score(self, levels: Levels, figures: Figures) -> float:
        return figures.squares + float(self.marginals.rows) * figures.suppressed_rows


class Entropy(Measure):
    """Non-uniform entropy, summed over attributes, with the entropy of the values among the suppressed rows."""

    needs_entropy = True

    def bound(self, levels: Levels) -> float:
        return math.fsum(row[level] for row, level in zip(self.marginals.entropies, levels, strict=True))

    def score(self, levels: Levels, figures: Figures) -> float:
        return self.bound(levels) + figures.suppressed_entropy


MEASURES: Mapping[str, type[Measure]] = {
    "loss": Loss,
    "precision": Precision,
    "height": Height,
    "relative_height": RelativeHeight,
    "discernibility": Discernibility,
    "average_class_size": AverageClassSize,
    "distinct": Distinct,
    "suppression": Suppression,
    "entropy": Entropy,
}
"""The measures by the names of the policy."""
