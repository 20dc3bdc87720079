"""δ-presence: bounds on the share of each population class that is in the release."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease, to_float
from sqlanon.requirements.base import TOLERANCE, ClassCondition, Entry, Requirement, format_number
from sqlanon.requirements.macros import Macro
from sqlanon.support.checks import Check
from sqlanon.support.expressions import fragment, number
from sqlanon.support.fields import Flaw, NotNegative, Section, policy_key

PRESENCE = Macro("delta_presence", ("min", "max", "classes"))


class DeltaPresence(Section, Requirement, ClassCondition):
    """δ-presence: limits how certain an attacker can be that a person of the population is in the release.

    Source: M. E. Nergiz, M. Atzori, C. Clifton, "Hiding the presence of individuals from shared databases"
    (SIGMOD 2007), definition 2: for every population class, released count / population count is
    within [δmin, δmax].

    Attributes
    ----------
    min:
        More than 0: every class of the population must be in the release as well.
    max:
        May exceed 1: the counts of two tables can be of different things.

    >>> DeltaPresence(max=0.5).min
    0.0
    """

    min: NotNegative = policy_key("the least share of a population class", example=0.01, default=0.0)
    max: NotNegative = policy_key("the greatest share of a population class", example=0.5, default=...)

    entry: ClassVar[Entry] = Entry(
        "delta_presence",
        "table",
        "bounds for the share of every class of [population] that is released",
        scope="population",
        verifiable_alone=False,
        whole_source=True,
        macros=(PRESENCE,),
    )
    uses_population: ClassVar[bool] = True

    # Monotone without suppression: the share of a merged class lies between those of the two. Not with suppression.
    # With a minimum above 0, every class of the population has to be a kept class, which suppression cannot
    # achieve: a population class below the minimum violates it here and at every lower generalization.

    def _flaws(self) -> Iterator[Flaw]:
        if self.min > self.max:
            yield ("min",), f"{self.min:g} is greater than max, {self.max:g}"

    @property
    def name(self) -> str:
        return f"({format_number(self.min)}, {format_number(self.max)})-presence"

    def condition(self) -> exp.Expr:
        share = fragment("""
            class_population > 0 AND class_count / class_population >= :min AND class_count / class_population <= :max
        """)
        return share(min=number(self.min - TOLERANCE), max=number(self.max + TOLERANCE))

    def uncoverable_class(self) -> exp.Expr | None:
        """A class of the population with less than ``min`` of it in the source."""
        if not self.min > 0:
            return None
        too_few = fragment("class_population > 0 AND class_count / class_population < :min")
        return too_few(min=number(self.min - TOLERANCE))

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        shares = audited.population_figures(PRESENCE, **audited.person_option)
        least, most = to_float(shares["min"]), to_float(shares["max"])
        holds = most <= self.max + TOLERANCE and (not self.min or least >= self.min - TOLERANCE)
        yield Check(self.name, holds, f"the shares of the population's classes are {least:.6g} to {most:.6g}")

    def sentence(self, unit: str) -> str:
        least, most = format_number(self.min), format_number(self.max)
        return f"A share of {least} to {most} of each group of the population is in the release (δ-presence)."
