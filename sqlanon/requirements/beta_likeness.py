"""β-likeness: no value of a sensitive attribute is much more frequent in a class than in the source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease, to_float
from sqlanon.requirements.base import TOLERANCE, ClassCondition, Entry, Requirement, format_number
from sqlanon.requirements.macros import Macro
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.checks import Check
from sqlanon.support.coding import ROW_COUNT
from sqlanon.support.expressions import col, double_total, fragment, number
from sqlanon.support.fields import Name, Positive, Section, policy_key

BETA_LIKENESS = Macro("beta_likeness", ("beta", "enhanced_excess", "classes"))


class BetaLikeness(Section, Requirement, ClassCondition):
    """β-likeness: no value is much more frequent in a class than in the source; being rarer does no harm.

    Source: J. Cao, P. Karras, "Publishing microdata with a robust privacy guarantee" (PVLDB 5(11), 2012):
    (p − q) / q ≤ β (``basic``, definition 2), or ≤ min(β, −ln q) (``enhanced``, definition 3).

    >>> BetaLikeness(attribute="diagnosis", beta=2).kind
    'enhanced'
    """

    attribute: Name = policy_key("a sensitive attribute", example="diagnosis", default=...)
    kind: Literal["basic", "enhanced"] = policy_key("one of basic, enhanced", example="basic", default="enhanced")
    beta: Positive = policy_key("the greatest relative gain of a value, more than 0", example=1.0, default=...)

    entry: ClassVar[Entry] = Entry(
        "beta_likeness",
        "list",
        "no sensitive value much more frequent in a class than in the source",
        verifiable_alone=False,
        macros=(BETA_LIKENESS,),
    )

    # The share of a value in a merged class lies between its shares in the two: monotone without suppression only.

    @property
    def name(self) -> str:
        return f"{self.kind} {format_number(self.beta)}-likeness of {self.attribute}"

    def figures(self) -> Mapping[str, exp.Expr]:
        """``total``, and the greatest n / (q (1 + bound)), which exceeds the total if a value is beyond its bound."""
        if self.kind == "enhanced":
            worst = fragment("max(row_count / share / (:one + least(:beta, -ln(share))))")
        else:
            worst = fragment("max(row_count / share / (:one + :beta))")
        return {"total": double_total(col(ROW_COUNT)), self._worst: worst(one=1 + TOLERANCE, beta=self.beta)}

    def condition(self) -> exp.Expr:
        return self.figure_column(self._worst) <= self.figure_column("total")

    @property
    def _worst(self) -> str:
        return f"beyond {self.kind} {self.beta!r}"

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        figures = audited.against_source(BETA_LIKENESS, self.attribute)
        gain, excess = to_float(figures["beta"]), to_float(figures["enhanced_excess"])
        holds = gain <= self.beta + TOLERANCE and (self.kind == "basic" or excess <= TOLERANCE)
        message = f"greatest gain of a value: {gain:.6g} (allowed: {format_number(self.beta)})"
        if self.kind == "enhanced":
            message += f"; beyond -ln q by {excess:.6g}"
        yield audited.as_source_check(Check(self.name, holds, message))

    def violations(self, released: WarehouseRelease) -> exp.Select:
        if self.kind == "enhanced":
            gain = fragment("""
                max(
                    p / nullif(q, 0)
                    / nullif((1.0 + CASE WHEN -ln(q) < :beta::DOUBLE THEN -ln(q) ELSE :beta::DOUBLE END), 0)
                )
            """)(beta=self.beta)
        else:
            gain = fragment("max(p / nullif(q, 0) / nullif((1.0 + :beta::DOUBLE), 0))")(beta=self.beta)
        return released.values(self.attribute).violations_by_share(gain, gain > number(1 + TOLERANCE))

    def sentence(self, unit: str) -> str:
        return (
            f"No value of {self.attribute} is much more frequent in a group than in the whole table "
            f"({self.kind} β-likeness, β = {format_number(self.beta)})."
        )
