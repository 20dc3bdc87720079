"""k-map: every released row matches at least k rows of a population that is generalized the same way.

Source: L. Sweeney, "Computational disclosure control" (2001), section 4.4 (k-map, null-map and wrong-map protection).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease
from sqlanon.requirements.base import CLASS_POPULATION, ClassCondition, Entry, Requirement
from sqlanon.requirements.macros import Macro
from sqlanon.support.checks import Check
from sqlanon.support.expressions import col, number
from sqlanon.support.fields import Count

K_MAP = Macro("k_map", ("k", "null_map", "classes"))


@dataclass(frozen=True)
class KMap(Requirement, ClassCondition):
    """Every released row matches at least ``k`` rows, or persons, of the population.

    Monotone with suppression: a part of a class matches a part of what the class matches in the population.
    """

    k: int

    entry: ClassVar[Entry] = Entry(
        "k_map",
        "number",
        "k-map: every class matches at least this number of rows (or persons) of [population]",
        number=Count,
        example=5,
        scope="population",
        verifiable_alone=False,
        macros=(K_MAP,),
    )
    hereditary = True
    uses_population = True

    @property
    def name(self) -> str:
        return f"{self.k}-map"

    def condition(self) -> exp.Expr:
        return col(CLASS_POPULATION) >= number(self.k)

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        figures = audited.population_figures(K_MAP)
        k = figures["k"] or 0
        message = f"fewest in the population that match a class: {k} (required: {self.k})"
        yield Check(self.name, k >= self.k, message)

    def sentence(self, unit: str) -> str:
        return f"Each group matches at least {self.k} people in the population (k-map)."
