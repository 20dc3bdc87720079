"""The measures: how much a generalization loses, and a bound on that before it is checked.

Every measure is a cost: smaller is better. Each gives a score, and bounds on it.

- ``bound(levels)``: at most the score of the generalization, from each attribute's own counts alone.
- ``after(figures)``: once a generalization is checked, at most the score of it and of everything above it.
- ``lift(levels, figures)``: once one is checked, by so much everything at or below it is above these bounds.
- ``score(levels, figures)``: the score.

The exact meanings stand in the design's table; the names are the policy's.
"""

from collections.abc import Mapping

from sqlanon.measures.attributes import Entropy, Height, Loss, Precision, RelativeHeight
from sqlanon.measures.base import Figures, Marginals, Measure
from sqlanon.measures.tables import AverageClassSize, Discernibility, Distinct, Suppression

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

__all__ = ["MEASURES", "Figures", "Marginals", "Measure"]
