"""δ-presence: the share of a population class that is in the release is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field
from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease, Check, figure, needs_population
from sqlanon.requirements.base import (
    TOLERANCE,
    ClassCondition,
    Entry,
    Requirement,
    format_number,
)
from sqlanon.requirements.macros import Macro
from sqlanon.support.expressions import fragment, number
from sqlanon.support.fields import Flaw, NotNegative, Section

WITHIN = fragment("""
    class_population > 0 AND class_count / class_population >= :least AND class_count / class_population <= :most
""")
TOO_FEW = fragment("class_population > 0 AND class_count / class_population < :least")

PRESENCE = Macro("delta_presence", ("min", "max", "classes"))


class DeltaPresence(Section, Requirement, ClassCondition):
    """δ-presence: limits how certain anybody can be that a person of the population is in the release.

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

    min: NotNegative = Field(default=0.0, description="the least share of a population class", examples=[0.01])
    max: NotNegative = Field(description="the greatest share of a population class", examples=[0.5])

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

    # Monotone without suppression: of two classes merged, the share is between theirs. Not with suppression. With a
    # least share above 0 every class of the population has to be a kept class too, which no suppression can cure: a
    # population class with fewer than that share breaks it here and at every lower generalization.

    def _flaws(self) -> Iterator[Flaw]:
        if self.min > self.max:
            yield ("min",), f"{self.min:g} is greater than max, {self.max:g}"

    @property
    def name(self) -> str:
        return f"({format_number(self.min)}, {format_number(self.max)})-presence"

    def condition(self) -> exp.Expr:
        return WITHIN(least=number(self.min - TOLERANCE), most=number(self.max + TOLERANCE))

    def uncoverable_class(self) -> exp.Expr | None:
        """A class of the population of which less than ``min`` is in the source."""
        if not self.min > 0:
            return None
        return TOO_FEW(least=number(self.min - TOLERANCE))

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        population = audited.population
        if population is None:
            yield needs_population(self.name)
            return
        relation, options = population
        shares = audited.figures(
            PRESENCE, list(audited.quasi_identifiers), relation, **options, **audited.person_option
        )
        least, most = figure(shares["min"]), figure(shares["max"])
        holds = most <= self.max + TOLERANCE and (not self.min or least >= self.min - TOLERANCE)
        yield Check(self.name, holds, f"the shares of the population's classes are {least:.6g} to {most:.6g}")

    def sentence(self, who: str) -> str:
        least, most = format_number(self.min), format_number(self.max)
        return f"Of each group of the population, a share of {least} to {most} is in the release (δ-presence)."
