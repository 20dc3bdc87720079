"""Measures: the information loss of a generalization, with bounds that are known before it is checked.

Every measure is a cost: smaller is better.

- ``bound(levels)``: a lower bound on the score of a generalization, from counts of single attributes.
- ``bound_above(figures)``: a lower bound on the scores of a checked generalization and of all above it.
- ``lift(levels, figures)``: the rise of these bounds for everything at or below a checked generalization.
- ``score(levels, figures)``: the score.

A measure is a class passed to `register`; its attributes are the properties that other modules rely on.
"""

from sqlanon.measures.attributes import Entropy, Height, Loss, Precision, RelativeHeight
from sqlanon.measures.base import Figures, Marginals, Measure, RecodingTotals
from sqlanon.measures.tables import AverageClassSize, Discernibility, Distinct, Suppression

MEASURES: dict[str, type[Measure]] = {}
"""The measures by the names of the policy."""


def find_measure(name: object) -> type[Measure] | None:
    """The measure of this name; None for any other value."""
    return MEASURES.get(name) if isinstance(name, str) else None


def register(measure: type[Measure]) -> None:
    """Add a measure; policies may name it from now on."""
    if measure.name in MEASURES:
        raise ValueError(f"measure {measure.name!r} is registered already")
    MEASURES[measure.name] = measure


def unregister(measure: type[Measure]) -> None:
    """Remove a registered measure."""
    del MEASURES[measure.name]


for _measure in (
    Loss,
    Precision,
    Height,
    RelativeHeight,
    Discernibility,
    AverageClassSize,
    Distinct,
    Suppression,
    Entropy,
):
    register(_measure)

__all__ = [
    "MEASURES", "Figures", "Loss", "Marginals", "Measure", "RecodingTotals", "find_measure", "register", "unregister",
]  # fmt: skip
