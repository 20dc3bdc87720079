"""The measures: how much a generalization loses, and a bound on that before it is checked.

Every measure is a cost: smaller is better. Each gives a score, and bounds on it.

- ``bound(levels)``: a lower bound of the score of a generalization, from each attribute's own counts alone.
- ``after(figures)``: a lower bound of the scores of a checked generalization and of all above it.
- ``lift(levels, figures)``: once one is checked, by so much everything at or below it is above these bounds.
- ``score(levels, figures)``: the score.

A measure is a class that `register` is called with; its attributes say what the rest has to know of it.
"""

from sqlanon.measures.attributes import Entropy, Height, Loss, Precision, RelativeHeight
from sqlanon.measures.base import Figures, Marginals, Measure, RecodingTotals
from sqlanon.measures.tables import AverageClassSize, Discernibility, Distinct, Suppression

MEASURES: dict[str, type[Measure]] = {}
"""The measures by the names of the policy."""


def find_measure(name: object) -> type[Measure] | None:
    """The measure of a name that anybody may have written; None for anything else."""
    return next((one for known, one in MEASURES.items() if known == name), None)


def register(measure: type[Measure]) -> None:
    """Add a measure. Policies know its name from now on."""
    if measure.name in MEASURES:
        raise ValueError(f"there is a measure {measure.name!r} already")
    MEASURES[measure.name] = measure


def unregister(measure: type[Measure]) -> None:
    """Take one out that was added."""
    del MEASURES[measure.name]


for _one in (
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
    register(_one)

__all__ = [
    "MEASURES",
    "Figures",
    "Loss",
    "Marginals",
    "Measure",
    "RecodingTotals",
    "find_measure",
    "register",
    "unregister",
]
