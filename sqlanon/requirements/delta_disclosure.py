"""δ-disclosure privacy: no value of a sensitive attribute is much more, or much less, frequent than in the source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field
from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease, Check, figure
from sqlanon.requirements.base import (
    CUMULATED,
    TOLERANCE,
    ClassCondition,
    Distribution,
    Entry,
    Requirement,
    SourceFacts,
    format_number,
)
from sqlanon.requirements.macros import Macro
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.coding import ROWS
from sqlanon.support.expressions import anonymous, col, double_total, fragment, number
from sqlanon.support.fields import Name, Positive, Section

GREATEST_RATIO = fragment("max(n / share)")
LEAST_RATIO = fragment("min(n / share)")
NEAR = fragment(":distinct = :all AND abs(ln(:greatest / :total)) <= :most AND abs(ln(:least / :total)) <= :most")
FARTHEST = fragment("max(abs(ln(p / nullif(q, 0))))")
MISSING_OR_FAR = fragment("count(*) < max(values) OR :far > :most")

DELTA_DISCLOSURE = Macro("delta_disclosure", ("delta", "classes"))


class DeltaDisclosure(Section, Requirement):
    """δ-disclosure privacy: |ln(p / q)| ≤ δ for every value of the source, p in a class and q in the source.

    Source: J. Brickell, V. Shmatikov, "The cost of privacy: destruction of data-mining utility in anonymized data
    publishing" (KDD 2008), definition 3 (a strict < there, ≤ here).

    >>> DeltaDisclosure(attribute="diagnosis", delta=1).delta
    1.0
    """

    attribute: Name = Field(description="a sensitive attribute", examples=["diagnosis"])
    delta: Positive = Field(description="the greatest |ln(p / q)| of a value, more than 0", examples=[1.0])

    entry: ClassVar[Entry] = Entry(
        "delta_disclosure",
        "list",
        "no sensitive value much more or less frequent in a class than in the source",
        verifiable_alone=False,
        macros=(DELTA_DISCLOSURE,),
    )

    def bind(self, source: SourceFacts) -> Disclosure:
        values = source.domains[self.attribute].values if source.domains else 1
        return Disclosure(self.attribute, self.delta, values)

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        worst = figure(audited.against_source(DELTA_DISCLOSURE, self.attribute)["delta"])
        message = f"greatest |ln(p/q)|: {worst:.6g} (allowed: {format_number(self.delta)})"
        yield audited.as_source_check(Check(self.name, worst <= self.delta + TOLERANCE, message))

    def violations(self, released: WarehouseRelease) -> exp.Select:
        far = FARTHEST()
        return released.values(self.attribute).shares(far, MISSING_OR_FAR(far=far, most=self.delta + TOLERANCE))

    def sentence(self, who: str) -> str:
        return (
            f"No value of {self.attribute} is much more or less frequent in a group than in the whole table "
            f"(δ-disclosure privacy, δ = {format_number(self.delta)})."
        )


@dataclass(frozen=True)
class Disclosure(ClassCondition):
    """|ln(p / q)| ≤ δ for every value of the table, of which there are ``values`` (None: counted when it is asked).

    The share of a value in two classes merged lies between its shares in the two: monotone without suppression alone.
    A value that is missing from a class fails it, and then all rows are lost: its parts have that value no more.
    """

    attribute: str
    delta: float
    values: int | None = 1

    @property
    def name(self) -> str:
        return f"{format_number(self.delta)}-disclosure privacy of {self.attribute}"

    @property
    def distribution(self) -> Distribution:
        return Distribution(self.attribute)

    @property
    def min_class_rows(self) -> int:
        """A row for each value of the table."""
        return self.values or 1

    @property
    def needs_domain(self) -> bool:
        """Where the values are not counted yet."""
        return self.values is None

    def figures(self) -> Mapping[str, exp.Expr]:
        """``total``, ``distinct``, and the greatest and the least n / q."""
        return {
            "total": double_total(col(ROWS)),
            "distinct": exp.Count(this=exp.Star()),
            "greatest ratio": GREATEST_RATIO(),
            "least ratio": LEAST_RATIO(),
        }

    def derived_figures(self, min_rows: int) -> Mapping[str, exp.Expr]:
        """``values``: how many the table has, where that is not known yet."""
        return {"values": anonymous("len", col(CUMULATED))} if self.values is None else {}

    def condition(self) -> exp.Expr:
        figures = {name: self._figure(f"{name} ratio") for name in ("greatest", "least")}
        most = self.delta + TOLERANCE
        return NEAR(
            distinct=self._figure("distinct"), all=self._all(), total=self._figure("total"), **figures, most=most
        )

    def shortfall(self) -> exp.Expr:
        """All rows where a value is missing."""
        missing = self._figure("distinct") < self._all()
        return exp.If(this=missing, true=self._figure("total"), false=number(1))

    def _all(self) -> exp.Expr:
        return self._figure("values") if self.values is None else number(self.values)

    def _figure(self, name: str) -> exp.Expr:
        return self.distribution.column(name)
