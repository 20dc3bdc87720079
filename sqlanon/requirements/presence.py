"""Requirements that hold a release against a population table, generalized the same way.

Sources: L. Sweeney, "Computational disclosure control" (2001), section 4.4 (k-map, null-map and wrong-map
protection); M. Nergiz, M. Atzori, C. Clifton, "Hiding the presence of individuals from shared databases", SIGMOD
2007, definition 2 (δ-presence).
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from sqlanon.expressions import all_of, col, number
from sqlanon.requirements.base import CLASS_COUNT, CLASS_POPULATION, TOLERANCE, ClassRequirement, plain


@dataclass(frozen=True)
class KMap(ClassRequirement):
    """Every released row matches at least ``k`` rows, or persons, of the population.

    Monotone, with suppression too: a part of a class matches a part of the population that the class matches.
    """

    k: int
    hereditary = True

    @property
    def name(self) -> str:
        """``5-map``."""
        return f"{self.k}-map"

    def condition(self) -> exp.Expr:
        """``class_population >= k``."""
        return exp.GTE(this=col(CLASS_POPULATION), expression=number(self.k))


@dataclass(frozen=True)
class DeltaPresence(ClassRequirement):
    """Between ``least`` and ``most`` of the population that a class matches is in the class.

    Monotone without suppression: of two classes merged, the share is between theirs. Not with suppression. With
    ``least`` > 0 every class of the population has to be a kept class too, which no suppression can cure: a
    population class with fewer than that share breaks it here and at every lower generalization.
    """

    least: float
    most: float

    @property
    def name(self) -> str:
        """``(0.1, 0.5)-presence``."""
        return f"({plain(self.least)}, {plain(self.most)})-presence"

    def condition(self) -> exp.Expr:
        """least ≤ class_count / class_population ≤ most."""
        there = exp.GT(this=col(CLASS_POPULATION), expression=number(0))
        share = exp.Div(this=col(CLASS_COUNT), expression=col(CLASS_POPULATION))
        return all_of(
            [
                there,
                exp.GTE(this=share, expression=number(self.least - TOLERANCE)),
                exp.LTE(this=share.copy(), expression=number(self.most + TOLERANCE)),
            ]
        )

    def too_few(self) -> exp.Expr:
        """A class of the population of which less than ``least`` is in the source."""
        share = exp.Div(this=col(CLASS_COUNT), expression=col(CLASS_POPULATION))
        few = exp.LT(this=share, expression=number(self.least - TOLERANCE))
        return all_of([exp.GT(this=col(CLASS_POPULATION), expression=number(0)), few])
