"""Average risk: the mean of 1 / class size over all rows.

Source: K. El Emam, "Guide to the De-Identification of Personal Health Information" (2013), chapter 16.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease, to_float
from sqlanon.requirements.base import TOLERANCE, Entry, KeptClasses, Requirement, TableCondition
from sqlanon.requirements.macros import Macro
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.checks import Check
from sqlanon.support.fields import ShareAboveZero

AVERAGE_RISK = Macro("average_risk", ("average_risk", "sample_uniqueness", "classes", "rows"))


@dataclass(frozen=True)
class ClassSizeLimit(TableCondition, Requirement):
    """An upper bound on a figure of the sizes of the kept classes, which the macro names as the policy does."""

    limit: float

    @property
    def upper_bound(self) -> float:
        return self.limit

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        figures = audited.figures(AVERAGE_RISK, audited.quasi_identifiers, **audited.person_option)
        value = to_float(figures[self.entry.key])
        yield audited.as_person_check(self.check(value, f"it is {value:.6g}"))


class AverageRisk(ClassSizeLimit):
    """Classes / rows (or persons) ≤ ``limit``.

    Monotone while the kept rows stay the same, as they do without suppression: merging reduces the classes. Not
    with suppression: rows that are kept only further up may form small classes.
    """

    entry: ClassVar[Entry] = Entry(
        "average_risk",
        "number",
        "the greatest average risk: kept classes / kept rows, more than 0 and at most 1",
        number=ShareAboveZero,
        example=0.05,
        scope="table",
        macros=(AVERAGE_RISK,),
    )
    label: ClassVar[str] = "average risk"

    def figure(self, kept_classes: KeptClasses) -> float:
        return kept_classes.classes / kept_classes.count

    def violations(self, released: WarehouseRelease) -> exp.Select:
        return released.share_above(exp.Count(this=exp.Star()), self.limit + TOLERANCE)

    def sentence(self, unit: str) -> str:
        return f"The average risk of being found is at most {100 * self.limit:g} %."
