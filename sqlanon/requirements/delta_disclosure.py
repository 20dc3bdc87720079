"""δ-disclosure privacy: no value of a sensitive attribute is much more, or much less, frequent than in the source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease, to_float
from sqlanon.requirements.base import (
    CUMULATED,
    TOLERANCE,
    ClassCondition,
    Entry,
    Requirement,
    SourceDomains,
    format_number,
)
from sqlanon.requirements.macros import Macro
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.checks import Check
from sqlanon.support.coding import ROW_COUNT
from sqlanon.support.expressions import anonymous, col, double_total, fragment, number
from sqlanon.support.fields import Name, Positive, Section, policy_key

DELTA_DISCLOSURE = Macro("delta_disclosure", ("delta", "classes"))


class DeltaDisclosure(Section, Requirement):
    """δ-disclosure privacy: |ln(p / q)| ≤ δ for every value of the source, p in a class and q in the source.

    Source: J. Brickell, V. Shmatikov, "The cost of privacy: destruction of data-mining utility in anonymized data
    publishing" (KDD 2008), definition 3 (a strict < there, ≤ here).

    >>> DeltaDisclosure(attribute="diagnosis", delta=1).delta
    1.0
    """

    attribute: Name = policy_key("a sensitive attribute", example="diagnosis", default=...)
    delta: Positive = policy_key("the greatest |ln(p / q)| of a value, more than 0", example=1.0, default=...)

    entry: ClassVar[Entry] = Entry(
        "delta_disclosure",
        "list",
        "no sensitive value much more or less frequent in a class than in the source",
        verifiable_alone=False,
        macros=(DELTA_DISCLOSURE,),
    )

    def bind(self, source: SourceDomains) -> DisclosureCondition:
        values = source.domains[self.attribute].values if source.domains else 1
        return DisclosureCondition(self.attribute, self.delta, values)

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        worst = to_float(audited.against_source(DELTA_DISCLOSURE, self.attribute)["delta"])
        message = f"greatest |ln(p/q)|: {worst:.6g} (allowed: {format_number(self.delta)})"
        yield audited.as_source_check(Check(self.name, worst <= self.delta + TOLERANCE, message))

    def violations(self, released: WarehouseRelease) -> exp.Select:
        worst = fragment("max(abs(ln(p / nullif(q, 0))))")()
        violated = fragment("count(*) < max(values) OR :worst > :max")(worst=worst, max=self.delta + TOLERANCE)
        return released.values(self.attribute).violations_by_share(worst, violated)

    def sentence(self, unit: str) -> str:
        return (
            f"No value of {self.attribute} is much more or less frequent in a group than in the whole table "
            f"(δ-disclosure privacy, δ = {format_number(self.delta)})."
        )


@dataclass(frozen=True)
class DisclosureCondition(ClassCondition):
    """|ln(p / q)| ≤ δ for every value of the table. ``values`` is their number (None: statements count them).

    The share of a value in a merged class lies between its shares in the two: monotone without suppression only. A
    class that lacks a value loses all its rows, because its parts lack that value as well.
    """

    attribute: str
    delta: float
    values: int | None = 1

    @property
    def name(self) -> str:
        return f"{format_number(self.delta)}-disclosure privacy of {self.attribute}"

    @property
    def min_class_rows(self) -> int:
        """Every value occurs in each class, so a class has at least one row per value."""
        return self.values or 1

    @property
    def needs_domain(self) -> bool:
        return self.values is None

    def figures(self) -> Mapping[str, exp.Expr]:
        return {
            "total": double_total(col(ROW_COUNT)),
            "distinct": exp.Count(this=exp.Star()),
            "greatest": fragment("max(row_count / share)")(),
            "least": fragment("min(row_count / share)")(),
        }

    def derived_figures(self, min_rows: int) -> Mapping[str, exp.Expr]:
        return {"values": anonymous("len", col(CUMULATED))} if self.values is None else {}

    def condition(self) -> exp.Expr:
        return fragment("""
            :distinct = :all AND abs(ln(:greatest / :total)) <= :max AND abs(ln(:least / :total)) <= :max
        """)(
            **self.figure_columns("distinct", "total", "greatest", "least"),
            all=self._all_values(),
            max=self.delta + TOLERANCE,
        )

    def shortfall(self) -> exp.Expr:
        missing = self.figure_column("distinct") < self._all_values()
        return exp.If(this=missing, true=self.figure_column("total"), false=number(1))

    def _all_values(self) -> exp.Expr:
        return self.figure_column("values") if self.values is None else number(self.values)
