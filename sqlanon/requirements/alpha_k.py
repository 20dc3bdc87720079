"""(α, k)-anonymity: no value of a sensitive attribute has more than a share α of a class. k is the policy's k."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease, to_float
from sqlanon.requirements.base import TOLERANCE, ClassCondition, Entry, Requirement, format_number
from sqlanon.requirements.l_diversity import L_DIVERSITY
from sqlanon.requirements.macros import Macro
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.checks import Check
from sqlanon.support.coding import ROW_COUNT
from sqlanon.support.expressions import col, double_total, fragment, greatest, number
from sqlanon.support.fields import Name, Section, ShareAboveZero, policy_key

ALPHA = Macro("alpha", ("alpha", "classes"))


class AlphaK(Section, Requirement, ClassCondition):
    """(α, k)-anonymity's α: no sensitive value has more than a share α of a class. Its k is the policy's k.

    Source: R. C.-W. Wong, J. Li, A. W.-C. Fu, K. Wang, "(α, k)-anonymity: an enhanced k-anonymity model for privacy
    preserving data publishing" (KDD 2006), definition 4, for every value.

    >>> AlphaK(attribute="diagnosis", alpha=0.5).alpha
    0.5
    """

    attribute: Name = policy_key("a sensitive attribute", example="diagnosis", default=...)
    alpha: ShareAboveZero = policy_key(
        "the greatest share of a value in a class, more than 0 and at most 1", example=0.5, default=...
    )

    entry: ClassVar[Entry] = Entry("alpha_k", "list", "no sensitive value above a share of a class", macros=(ALPHA,))

    # Monotone without suppression only. A class of n rows, c of them with one value, loses at least
    # (c − α n) / (1 − α) rows.

    @property
    def name(self) -> str:
        return f"share of at most {format_number(self.alpha)} of each {self.attribute}"

    @property
    def min_class_rows(self) -> int:
        """1 / α rounded up, the fewest values that satisfy it."""
        return math.ceil(1 / self.alpha - 1e-9)

    def figures(self) -> Mapping[str, exp.Expr]:
        return {"total": double_total(col(ROW_COUNT)), "largest": exp.Max(this=col(ROW_COUNT))}

    def condition(self) -> exp.Expr:
        return fragment(":largest / :total <= :max_share")(
            **self.figure_columns("largest", "total"), max_share=self.alpha + TOLERANCE
        )

    def shortfall(self) -> exp.Expr:
        if self.alpha >= 1:
            return number(0)
        columns = self.figure_columns("largest", "total")
        lost = fragment("(:largest - :alpha * :total) / :rest")(**columns, alpha=self.alpha, rest=1 - self.alpha)
        return greatest(number(1), lost)

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        """Audit with the macro ``alpha``. Too few distinct values fail the check even where persons cannot be
        counted."""
        quasi = audited.quasi_identifiers
        share = to_float(audited.figures(ALPHA, quasi, self.attribute, **audited.person_option)["alpha"])
        distinct = to_float(audited.figures(L_DIVERSITY, quasi, self.attribute)["distinct_l"])
        check = Check(self.name, share <= self.alpha + TOLERANCE, f"the greatest share is {share:.6g}")
        if audited.can_count or 1 / distinct > self.alpha + TOLERANCE:
            yield Check(self.name, audited.can_count and bool(check.passed), check.message)
        else:
            yield audited.as_person_check(check)

    def violations(self, released: WarehouseRelease) -> exp.Select:
        share = fragment("max(row_count) / nullif(sum(row_count), 0)")()
        violated = fragment(":share > :max_share")(share=share, max_share=self.alpha + TOLERANCE)
        return released.values(self.attribute).violations_by_count(share, violated)

    def sentence(self, unit: str) -> str:
        return f"No value of {self.attribute} has more than {100 * self.alpha:g} % of a group."
