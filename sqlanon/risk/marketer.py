"""The marketer: an attacker who tries to find everybody, and is content with some.

Source: K. El Emam, "Guide to the De-Identification of Personal Health Information" (2013), chapter 16; F. K. Dankar,
K. El Emam, "A method for evaluating marketer re-identification risk" (2010): the expected share of the rows that are
found: |J| / n where the table is the population, 1/n Σ f / F where it is a sample of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlanon.histogram import ClassSizes
from sqlanon.risk.individual import individual_risk
from sqlanon.risk.journalist import PopulationSizes


@dataclass(frozen=True)
class MarketerRisk:
    """The share that is expected to be found.

    Attributes
    ----------
    average:
        The share of the rows; where persons are counted, of the persons of each class.
    expected:
        Their number.
    population:
        As of `journalist.JournalistRisk`.
    """

    average: float
    expected: float
    population: Literal["table", "estimate"] | None


def marketer_by_table(sizes: PopulationSizes) -> MarketerRisk:
    """Σ f / F over the classes.

    >>> marketer_by_table(PopulationSizes(((4, 2, 8, 8),)))
    MarketerRisk(average=0.25, expected=2.0, population='table')
    """
    return MarketerRisk(sizes.expected / sizes.count if sizes.count else 0.0, sizes.expected, "table")


def marketer_by_estimate(sizes: ClassSizes, share: float | None) -> MarketerRisk:
    """By the expected 1 / F of each class; without a sampling fraction, 1 / f.

    >>> marketer_by_estimate(ClassSizes.of({1: 2, 4: 2}), None)
    MarketerRisk(average=0.4, expected=4.0, population=None)
    """
    if share is None:
        expected = float(sizes.classes)
    else:
        expected = sizes.mean(lambda size: individual_risk(size, share)) * sizes.count
    return MarketerRisk(expected / sizes.count if sizes.count else 0.0, expected, None if share is None else "estimate")
