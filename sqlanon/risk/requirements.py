"""What each requirement of a policy says of a source as it stands."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlanon.requirements.base import ClassCondition, EstimateCondition, SubsetCondition, TableCondition


@dataclass(frozen=True)
class RequirementRisk:
    """What a requirement of the policy says of the source as it stands.

    Attributes
    ----------
    requirement:
        Its name.
    holds:
        Whether nothing breaks it.
    classes, rows:
        The classes that break it, and the rows in them; of a shield, classes over its own quasi-identifiers. None
        where it is about the table as a whole.
    figure, limit:
        Of a requirement on the whole table: what was found (0 in an empty table; None where there is no estimate),
        and the most that it may be.
    population_classes:
        Where each class of the population has to be kept: those of the population that have no row in the source.
    """

    requirement: str
    holds: bool
    classes: int | None = None
    rows: int | None = None
    figure: float | None = None
    limit: float | None = None
    population_classes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: ``classes`` and ``rows`` always, the rest where it means something.

        >>> RequirementRisk("5-anonymity", holds=False, classes=2, rows=7).to_dict()
        {'requirement': '5-anonymity', 'holds': False, 'classes': 2, 'rows': 7}
        """
        found = asdict(self)
        if self.limit is None:
            del found["figure"], found["limit"]
        if self.population_classes is None:
            del found["population_classes"]
        return found


def of_a_class(one: ClassCondition, number: int, figures: Mapping[str, int]) -> RequirementRisk:
    """A requirement on each class, from the row of `class_figures.figures` in which it has this number."""
    classes, rows = figures[f"classes_{number}"], figures[f"rows_{number}"]
    # A class of the population without a row has the share 0.
    absent = figures["absent"] if one.too_few() is not None else None
    return RequirementRisk(one.name, not classes and not absent, classes, rows, population_classes=absent)


def of_a_shield(one: SubsetCondition, figures: Mapping[str, int]) -> RequirementRisk:
    """A shield, from the row of `class_figures.figures` on its own classes."""
    classes, rows = figures["classes_0"], figures["rows_0"]
    return RequirementRisk(one.name, not classes, classes, rows)


def of_the_table(one: TableCondition, figures: Mapping[str, int]) -> RequirementRisk:
    """A requirement on all classes together, from the row of `class_figures.figures`."""
    found = figures["classes"], figures["count"], figures["singles"]
    figure = one.figure(*found) if figures["count"] else 0.0
    return RequirementRisk(one.name, one.holds(*found), figure=figure, limit=one.limit)


def of_the_population(one: EstimateCondition, sizes: Mapping[int, int], counted: int) -> RequirementRisk:
    """A limit on an estimate, from the numbers of classes by size, and the rows or persons of the source."""
    one.refuse(counted)
    estimate = one.estimate(sizes, counted)
    known = None if math.isnan(estimate) else estimate
    return RequirementRisk(one.name, one.holds(sizes, counted), figure=known, limit=one.limit)
