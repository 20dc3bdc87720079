"""The interface of measures, and their inputs: figures of a check, marginals, and totals of a local recoding."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from sqlanon.support.coding import Levels


def _weighted_values(x: Sequence[float], w: Sequence[float]) -> list[float]:
    """The values with a weight. Marks of earlier releases have none."""
    return [value for value, weight in zip(x, w, strict=True) if weight]


def _geometric_mean(x: Sequence[float]) -> float:
    return math.prod(x) ** (1 / len(x))


AGGREGATES: Mapping[str, Callable[[Sequence[float], Sequence[float]], float]] = {
    "mean": lambda x, w: math.fsum(map(operator.mul, x, w)) / math.fsum(w),
    "sum": lambda x, w: math.fsum(map(operator.mul, x, w)),
    "max": lambda x, w: max(_weighted_values(x, w)),
    "geometric": lambda x, w: _geometric_mean([1 + value for value in _weighted_values(x, w)]) - 1,
}
"""How the attributes' figures combine; the second argument is their weights."""

MIN_GAINS: Mapping[str, Callable[[Sequence[float], Sequence[float]], float]] = {
    "mean": AGGREGATES["mean"],
    "sum": AGGREGATES["sum"],
    "max": lambda gains, w: min(_weighted_values(gains, w)),
    "geometric": lambda gains, w: _geometric_mean(_weighted_values(gains, w)),
}
"""A lower bound on the rise of the combination if the attributes' figures rise by ``gains``: combine(x + gains) is at
least combine(x) plus this, for every x. For ``geometric`` this is Minkowski's inequality: the geometric mean of sums is
at least the sum of the geometric means."""


@dataclass(frozen=True)
class Figures:
    """The figures of a checked generalization."""

    classes: int
    suppressed_rows: int
    """Number of kept classes, and of rows in the others."""
    squared_sizes: float = 0.0
    """Sum of the squared sizes of the kept classes, for measures that need it."""
    least_suppressed: float | None = None
    """The fewest rows that are suppressed here and at every lower generalization. None: all requirements are
    hereditary, so the rows suppressed here are suppressed there, too."""
    kept_count: int = 0
    single_classes: int = 0
    unmatched_rows: int = 0
    """For requirements on the whole table: rows or persons in kept classes, kept classes of one, and rows of kept
    classes without a match in the population."""
    uncovered_classes: int = 0
    uncoverable_classes: int = 0
    """For δ-presence: classes of the population that are not kept, and those with too few rows in the source."""
    violated: Mapping[str, float] = field(default_factory=dict)
    """The violated requirements among those with a separate statement, and their figures; NaN: no estimate."""
    suppressed_leaves: Mapping[int, float] = field(default_factory=dict)
    """For `loss`: for each attribute with labels other than the top, the sum over suppressed rows of the leaves under
    its value, less one. Needed only within the suppression limit."""
    counted_share: float = 1.0
    """The share of the classes that was counted: below 1 if it proved that too many rows are suppressed. All figures
    are then of this part."""
    suppressed_entropy: float = 0.0
    """For `entropy`: −Σ over suppressed rows and attributes of log2(count of the value among them / suppressed
    rows)."""
    suppressed_persons: int | None = None
    """Persons with a suppressed row. None if rows are counted, or if more rows are suppressed than the persons who may
    lose one can have."""

    @property
    def is_complete(self) -> bool:
        """Whether all classes were counted."""
        return self.counted_share == 1

    @property
    def expected_least_suppressed(self) -> float:
        """An estimate of ``least_suppressed`` for all classes."""
        return (self.suppressed_rows if self.least_suppressed is None else self.least_suppressed) / self.counted_share

    @property
    def expected_suppressed(self) -> float:
        """An estimate of the suppressed rows of all classes."""
        return self.suppressed_rows / self.counted_share


@dataclass(frozen=True)
class Marginals:
    """Counts of single attributes."""

    rows: int
    """Rows of the source."""
    heights: Levels
    leaves: Levels
    """Height and leaves of each quasi-identifier's hierarchy."""
    unknown: Levels
    """The rows with a value that is missing from the hierarchy, by quasi-identifier."""
    leaf_sums: tuple[tuple[float, ...], ...]
    """The sum over rows with a known value of the leaves under it, less one, by quasi-identifier and level."""
    entropies: tuple[tuple[float, ...], ...] = ()
    """By quasi-identifier and level, −Σ over rows of log2(count(value) / count(generalized value)). Empty unless the
    measure needs it."""


@dataclass(frozen=True)
class RecodingTotals:
    """Totals of a local recoding over its kept rows, by attribute."""

    leaves: tuple[float, ...]
    """The sum of the leaves under the released values, less one each."""
    levels: tuple[int, ...]
    """The sum of the levels of the released values."""


class Measure:
    """A cost of a generalization. Subclasses define `score`, and bounds tighter than the defaults.

    Every cost is at least 0, which the default bounds return.
    """

    name: ClassVar[str]
    """The name in policies."""
    formula: ClassVar[str]
    """The definition in words."""
    description: ClassVar[str]
    """A description for readers of a report."""

    aggregates: ClassVar[bool] = False
    """Each attribute has a figure, and the policy's ``aggregate`` and weights combine them."""
    needs_levels: ClassVar[bool] = False
    """It needs one level for all rows, so local strategies cannot use it."""
    counts_classes: ClassVar[bool] = False
    """It depends on the classes of the release."""
    compares_with_source: ClassVar[bool] = False
    """It compares with the values of this source, so extensions by new rows cannot use it."""
    derivable_from: ClassVar[Literal["levels", "counts"] | None] = None
    """The part of a release from which its score can be recomputed: its levels or its row counts; None: neither."""
    counts_suppression: ClassVar[bool] = True
    """It counts suppressed rows."""
    counts_steps: ClassVar[bool] = False
    """It counts levels, so it depends on how many a hierarchy has."""

    needs_leaves: ClassVar[bool] = False
    """It needs `Figures.suppressed_leaves`."""
    needs_squares: ClassVar[bool] = False
    """It needs `Figures.squared_sizes`."""
    needs_entropy: ClassVar[bool] = False
    """It needs `Figures.suppressed_entropy`."""
    is_maximized: ClassVar[bool] = False
    """It is reported with the opposite sign, and more is better."""
    bounds_above: ClassVar[bool] = False
    """Whether `bound_above` is more than 0."""

    def __init__(
        self, marginals: Marginals, weights: Sequence[float] = (), aggregate: str = "mean", min_class_rows: int = 1
    ) -> None:
        self.marginals = marginals
        self.min_class_rows = min_class_rows
        self.weights = tuple(weights) or (1.0,) * len(marginals.heights)
        self.combine = AGGREGATES[aggregate]
        self.least_gain = MIN_GAINS[aggregate]

    def bound(self, levels: Levels) -> float:
        """A lower bound on the score of an unchecked generalization."""
        return 0.0

    def bound_with(self, levels: Levels, suppressed_rows: int) -> float:
        """A lower bound on the score of a generalization that suppresses at least this number of rows."""
        return self.bound(levels)

    def bound_above(self, figures: Figures) -> float:
        """A lower bound on the scores of a checked generalization and of all above it."""
        return 0.0

    def lift(self, levels: Levels, figures: Figures) -> float:
        """The amount by which `raise_bound` raises the bounds of everything at or below a checked generalization.

        It is used only if all requirements are hereditary and the generalization is within the suppression limit: then
        the rows that it suppresses are suppressed in everything below it.
        """
        return 0.0

    def raise_bound(self, bound: float, lift: float) -> float:
        """A lower bound on the score of a generalization.

        Combines a bound of it, or of one at or below it, with the `lift` of one at or above it.
        """
        return bound + lift

    def max_suppressed_rows(self, cost: float) -> int:
        """The maximum number of rows that a generalization with at most this score suppresses."""
        return self.marginals.rows

    def score(self, levels: Levels, figures: Figures) -> float:
        """The score of a checked generalization."""
        raise NotImplementedError

    def score_recoding(self, figures: Figures, totals: RecodingTotals) -> float:
        """The score of a local recoding. Measures of the whole release need no levels."""
        return self.score((), figures)

    def reported_score(self, cost: float) -> float:
        """The score as reported: with the opposite sign if it is maximized."""
        return -cost if self.is_maximized else cost
