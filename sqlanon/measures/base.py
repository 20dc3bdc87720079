"""What a measure is to the rest, and what it is computed from: figures of a check, marginals, totals of a recoding."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from sqlanon.support.coding import Levels


def _weighed(x: Sequence[float], w: Sequence[float]) -> list[float]:
    """The figures that count: the mark of earlier releases has no weight, and is no value that is lost."""
    return [value for value, weight in zip(x, w, strict=True) if weight]


def _geometric_mean(x: Sequence[float]) -> float:
    return math.prod(x) ** (1 / len(x))


AGGREGATES: Mapping[str, Callable[[Sequence[float], Sequence[float]], float]] = {
    "mean": lambda x, w: math.fsum(map(operator.mul, x, w)) / math.fsum(w),
    "sum": lambda x, w: math.fsum(map(operator.mul, x, w)),
    "max": lambda x, w: max(_weighed(x, w)),
    "geometric": lambda x, w: _geometric_mean([1 + value for value in _weighed(x, w)]) - 1,
}
"""How the attributes' figures combine; the second argument is their weights."""

LEAST_GAINS: Mapping[str, Callable[[Sequence[float], Sequence[float]], float]] = {
    "mean": AGGREGATES["mean"],
    "sum": AGGREGATES["sum"],
    "max": lambda gains, w: min(_weighed(gains, w)),
    "geometric": lambda gains, w: _geometric_mean(_weighed(gains, w)),
}
"""At most so much is gained by what is combined, where the attributes' figures x gain so much: combine(x + gains) is at
least combine(x) + this, for whatever x. For ``geometric`` that is Minkowski: the geometric mean of sums is at least the
sum of the geometric means."""


@dataclass(frozen=True)
class Figures:
    """What a check says of a generalization."""

    classes: int
    suppressed_rows: int
    """Kept classes, and rows in the others."""
    squared_sizes: float = 0.0
    """Sum of the squared sizes of the kept classes, for measures that need it."""
    least_suppressed: float | None = None
    """The fewest rows that are suppressed here and at every lower generalization; None: all requirements are
    hereditary, and the rows that are suppressed here are suppressed there, too."""
    count: int = 0
    singles: int = 0
    unmatched: int = 0
    """For requirements on the whole table: rows or persons in kept classes, kept classes of one, and the rows of those
    that match nobody of a population."""
    unmet: int = 0
    too_few: int = 0
    """For δ-presence: classes of the population that are not kept; those of which too little is in the source."""
    violated: Mapping[str, float] = field(default_factory=dict)
    """Of the requirements that are counted for each generalization separately, the names of those that it does not
    meet, with its figures; NaN: it has none."""
    suppressed_leaves: Mapping[int, float] = field(default_factory=dict)
    """For `loss`: for each attribute with labels that are not the top, the sum over suppressed rows of the leaves
    under its value, less one. It is needed only where no more rows are suppressed than may be."""
    counted_share: float = 1.0
    """The share of the classes that was counted: below 1 if that showed that too many rows are suppressed. Then all
    figures are of this part alone."""
    suppressed_entropy: float = 0.0
    """For `entropy`: −Σ over suppressed rows and attributes of log2(count of the value among them / suppressed
    rows)."""
    suppressed_persons: int | None = None
    """Persons with a suppressed row. None where rows are counted, and where more rows are suppressed than the persons
    who may lose one have."""

    @property
    def expected_least_suppressed(self) -> float:
        """An estimate of the rows that are lost in all classes."""
        return (self.suppressed_rows if self.least_suppressed is None else self.least_suppressed) / self.counted_share

    @property
    def expected_suppressed(self) -> float:
        """An estimate of the rows that all classes suppress."""
        return self.suppressed_rows / self.counted_share


@dataclass(frozen=True)
class Marginals:
    """What the attributes' own counts tell."""

    rows: int
    """Rows of the source."""
    heights: Levels
    leaves: Levels
    """Of each quasi-identifier's hierarchy."""
    unknown: Levels
    """For each, its rows with a value that is missing from the hierarchy."""
    leaf_sums: tuple[tuple[float, ...], ...]
    """For each and each level, the sum over its known rows of the leaves under the value, less one."""
    entropies: tuple[tuple[float, ...], ...] = ()
    """For each and each level, −Σ over rows of log2(count(value) / count(generalized value)). Empty unless asked."""


@dataclass(frozen=True)
class RecodingTotals:
    """Of a recoding that is no generalization, by attribute, over its kept rows."""

    leaves: tuple[float, ...]
    """The sum of the leaves under the released values, less one each."""
    levels: tuple[int, ...]
    """The sum of the levels of the released values."""


class Measure:
    """A cost of a generalization. Subclasses give `score`, and the bounds that they know.

    The default bounds say nothing: every cost here is at least 0.
    """

    name: ClassVar[str]
    """As policies name it."""
    formula: ClassVar[str]
    """What it is, in words."""
    description: ClassVar[str]
    """The same for readers of a report."""

    aggregates: ClassVar[bool] = False
    """Each attribute has a figure of its own, and the policy's ``aggregate`` and weights combine them."""
    needs_levels: ClassVar[bool] = False
    """It is of one level for all rows: there is none below the full domain."""
    counts_classes: ClassVar[bool] = False
    """It looks at the classes of the release."""
    compares_with_source: ClassVar[bool] = False
    """It compares with the values of the source, and of no other rows."""
    derivable_from: ClassVar[Literal["levels", "counts"] | None] = None
    """What a release shows that its score follows from, if anything does: its levels, or its counts of rows."""
    counts_suppression: ClassVar[bool] = True
    """Suppressed rows count in it."""
    counts_steps: ClassVar[bool] = False
    """It counts levels as such: it depends on how many there are above a released one."""

    needs_leaves: ClassVar[bool] = False
    """A check has to give `Figures.suppressed_leaves`."""
    needs_squares: ClassVar[bool] = False
    """A check has to give `Figures.squares`."""
    needs_entropy: ClassVar[bool] = False
    """A check has to give `Figures.suppressed_entropy`."""
    is_maximized: ClassVar[bool] = False
    """It is reported with the other sign, and more of it is better."""
    bounds_above: ClassVar[bool] = False
    """Whether `after` says more than nothing."""

    def __init__(
        self,
        marginals: Marginals,
        weights: Sequence[float] = (),
        aggregate: str = "mean",
        min_class_rows: int = 1,
    ) -> None:
        self.marginals = marginals
        self.min_class_rows = min_class_rows
        self.weights = tuple(weights) or (1.0,) * len(marginals.heights)
        self.combine = AGGREGATES[aggregate]
        self.least_gain = LEAST_GAINS[aggregate]

    def bound(self, levels: Levels) -> float:
        """A lower bound of the score of a generalization that is not checked."""
        return 0.0

    def bound_with(self, levels: Levels, suppressed_rows: int) -> float:
        """A lower bound of the score of a generalization that suppresses at least this number of rows."""
        return self.bound(levels)

    def bound_above(self, figures: Figures) -> float:
        """A lower bound of the scores of a checked generalization and of all above it."""
        return 0.0

    def lift(self, levels: Levels, figures: Figures) -> float:
        """By so much everything at or below a checked generalization is above its own bounds, at least: see `raised`.

        Only where all requirements are hereditary, and the generalization suppresses no more than is allowed: then the
        rows that it suppresses are suppressed in everything below it.
        """
        return 0.0

    def raise_bound(self, bound: float, lift: float) -> float:
        """A lower bound of the score of a generalization: a bound (`bound` of it, or `after` of one at or below it)
        raised by the lift of one at or above it."""
        return bound + lift

    def most_suppressed(self, cost: float) -> int:
        """No generalization with at most this score suppresses more rows."""
        return self.marginals.rows

    def score(self, levels: Levels, figures: Figures) -> float:
        """The score of a checked generalization."""
        raise NotImplementedError

    def score_recoding(self, figures: Figures, totals: RecodingTotals) -> float:
        """The score of a recoding that is no generalization. Measures of the whole release need no levels."""
        return self.score((), figures)

    def reported_score(self, cost: float) -> float:
        """The score as it is reported: positive where it is maximised."""
        return -cost if self.is_maximized else cost
