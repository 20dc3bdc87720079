"""The individual risk of a row of a sample: the expected 1 / F, F the unknown size of its class in the population.

Source: R. Benedetti, L. Franconi, "Statistical and technological solutions for controlled data dissemination" (1998);
L. Franconi, S. Polettini, "Individual risk estimation in μ-Argus: a review" (2004); the approximation of large classes
as in sdcMicro (M. Templ, A. Kowarik, B. Meindl, Journal of Statistical Software 67:4, 2015).

With f the rows of the class in the sample, F̂ the sum of their weights, p = f / F̂, the risk is

- p / (1 − p) × ln(1/p) for f = 1,
- p / (1 − p) − (p / (1 − p))² ln(1/p) for f = 2,
- p / (f − (1 − p)) for f ≥ 3,
- 1/f where the sample is all of the class: f = F̂ (and where weights add up to less than f, which no sample has).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sqlanon.risk.individual_statements import NEAR


@dataclass(frozen=True)
class IndividualRisk:
    """The individual risk by the weights of the source.

    Attributes
    ----------
    highest, average:
        The greatest risk of a row, and the mean. (Of persons, where these are counted.)
    expected:
        The sum: how many re-identifications an attacker who tries all is expected to make.
    rows_above:
        By threshold, as text: the rows with a greater risk.
    population:
        The sum of the weights.
    """

    highest: float
    average: float
    expected: float
    rows_above: Mapping[str, int]
    population: float


@dataclass(frozen=True)
class HouseholdRisk:
    """The risk that somebody of a row's household is re-identified: 1 − Π (1 − r) over the household's rows.

    Source: as in sdcMicro (the hierarchical risk). Who finds one member knows the others.

    Attributes
    ----------
    households:
        Those that the source has; a row without one is by itself.
    highest, average:
        The greatest risk of a row by its household, and the mean over rows. (Of persons, where these are counted.)
    expected:
        The sum over rows.
    """

    households: int
    highest: float
    average: float
    expected: float


def individual_risk(size: int, share: float) -> float:
    """The risk of a row.

    Parameters
    ----------
    size:
        Rows of its class in the sample.
    share:
        Their share of the class in the population, p; more than 0.

    >>> [round(individual_risk(f, f / F), 8) for f, F in [(1, 17), (2, 110), (2, 84.5), (1, 5)]]  # sdcMicro's francdat
    [0.17707583, 0.01714426, 0.02204233, 0.40235948]
    >>> individual_risk(4, 1.0)
    0.25
    """
    p, rest = share, 1 - share
    if rest <= 0:
        return 1 / size
    if size > 2:
        return p / (size - rest)
    if rest < NEAR:  # two large numbers would leave few digits of their difference: as a series
        if size == 1:
            return p * (1 + rest / 2 + rest**2 / 3 + rest**3 / 4 + rest**4 / 5)
        return p * (1 / 2 + rest / 6 + rest**2 / 12 + rest**3 / 20 + rest**4 / 30)
    odds, log = p / rest, -math.log(p)
    return odds * log if size == 1 else odds - odds**2 * log
